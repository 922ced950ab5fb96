"""Classes of tasks made from tables: `tables.yaml`, `cmirb.json`, `english.json` and `nano.json`."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any, get_args

import yaml
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.types import Licenses

#: Fields that all tasks of this package share, unless a table says otherwise.
_COMMON: dict[str, Any] = {
    "type": "Retrieval",
    "category": "t2t",
    "modalities": ["text"],
    "eval_splits": ["test"],
    "domains": ["Medical", "Written"],
    "dialect": [],
}


@cache
def table(name: str) -> Any:
    """Return the content of a table.

    Args:
        name: `cmirb`, `english`, `nano`, or a section of `tables.yaml`.
    """
    file = files("medteb_mteb.tasks") / f"{name}.json"
    if file.is_file():
        return json.loads(file.read_text("utf-8"))
    return yaml.safe_load((files("medteb_mteb.tasks") / "tables.yaml").read_text("utf-8"))[name]


def cite(*sources: str | None) -> str:
    """Return BibTeX entries once each, sorted by key as mteb's own tests require.

    Args:
        sources: Keys of the table of citations, or BibTeX; `None` for a source without one.
    """
    texts = [table("citations").get(source, source) for source in sources if source]
    entries = {entry.strip() for text in texts for entry in re.split(r"\n(?=@)", text.strip())}
    return "\n" + "\n\n".join(sorted(entries, key=lambda one: one.partition("{")[2].lower())) + "\n"


def metadata(name: str, path: str, revision: str, *cited: str | None, **fields: Any) -> TaskMetadata:
    """Return a task's metadata.

    Args:
        name: Name of the task.
        path: Hub name of its data.
        revision: Revision of its data.
        cited: What the task cites, see `cite`.
        **fields: Further fields.
    """
    named = {"name": name, "dataset": {"path": path, "revision": revision}, "bibtex_citation": cite(*cited)}
    return TaskMetadata.model_validate({**_COMMON, **fields, **named})


def make_task(of: TaskMetadata, /, *bases: type[Any], **attributes: Any) -> type[Any]:
    """Return a class of tasks.

    Args:
        of: The tasks' metadata.
        bases: Base classes.
        **attributes: Further class attributes.
    """
    content = {"metadata": of, "__doc__": of.description, "__module__": __name__, **attributes}
    return type(re.sub(r"\W", "_", of.name), bases, content)


def licence_for_mteb(licence: str) -> str:
    """Return a licence as mteb spells it: one of its identifiers, a URL, or `not specified`."""
    known = {name for part in get_args(Licenses) for name in (get_args(part) or (part,))}
    if licence.lower() in known:
        return licence.lower()
    return licence if licence.startswith(("http://", "https://")) else "not specified"
