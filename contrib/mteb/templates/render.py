"""Python source of tasks in the form of mteb's own files."""

from __future__ import annotations

import subprocess
import sys
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


def formatted(source: str) -> str:
    """Return Python source as mteb formats it, with ruff."""
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", str(WIDTH), "-"]
    completed = subprocess.run(  # noqa: S603 -- a fixed command
        command, input=source, capture_output=True, text=True, encoding="utf-8", check=True
    )
    return completed.stdout


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
    lines += [f"        {field}={fields[field]!r}," for field in FIELDS if fields.get(field) is not None]
    return "\n".join([*lines, f"        bibtex_citation={citation},", "    )", ""])
