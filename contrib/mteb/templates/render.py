"""Python source of tasks in the form of mteb's own files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from medteb_mteb.tasks.citations import cite

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Line length of mteb.
WIDTH = 88
FIELDS = (
    "name", "description", "reference", "dataset", "type", "category", "modalities", "eval_splits",
    "eval_langs", "main_score", "date", "domains", "task_subtypes", "license", "annotations_creators",
    "dialect", "sample_creation", "prompt", "adapted_from",
)  # fmt: skip

#: Base class of tasks whose data need a loader of their own.
BASE = """

class {name}(AbsTaskRetrieval):
    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        if self.data_loaded:
            return
        data = self.metadata.dataset
        split = self.metadata.eval_splits[0]
        loader = _Loader(data["path"], data["revision"], split=split)
        self.dataset = {{"default": {{split: loader.load(num_proc)}}}}
        self.data_loaded = True
"""


def literal(value: Any, indent: int = 0, used: int = 0) -> str:
    """Return a value as Python source, one element a line if it does not fit on one line.

    Args:
        value: The value; elements of collections are not collections themselves.
        indent: Indentation of the line on which the value begins.
        used: Characters of that line before the value.
    """
    if isinstance(value, str):
        return repr(value) if '"' in value and "'" not in value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        parts, ends = [f"{literal(key)}: {literal(one)}" for key, one in value.items()], "{}"
    elif isinstance(value, list | tuple):
        parts, ends = [literal(one) for one in value], "[]" if isinstance(value, list) else "()"
    else:
        return repr(value)
    line = f"{ends[0]}{', '.join(parts)}{ends[1]}"
    if indent + used + len(line) < WIDTH:  # a comma follows
        return line
    comma = "," if len(parts) > 1 else ""
    inner = ",\n".join(f"{' ' * (indent + 4)}{part}" for part in parts)
    return f"{ends[0]}\n{inner}{comma}\n{' ' * indent}{ends[1]}"


def bibtex(*citations: str) -> str:
    """Return citations as a raw string, in the order that mteb's tests expect: by key."""
    return f'r"""{cite(*citations)}"""'


def task_class(base: str, fields: Mapping[str, Any], citation: str) -> str:
    """Return a class with its metadata.

    Args:
        base: Name of the base class.
        fields: Fields of the metadata by name; those that are None or not in `FIELDS` are left out.
        citation: Source of the citation.
    """
    lines = ["", "", f"class {fields['name']}({base}):", "    metadata = TaskMetadata("]
    lines += [
        f"        {field}={literal(fields[field], 8, len(field) + 1)},"
        for field in FIELDS
        if fields.get(field) is not None
    ]
    return "\n".join([*lines, f"        bibtex_citation={citation},", "    )", ""])
