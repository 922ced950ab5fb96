"""Requirements for running a task, and its size, without loading its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from medteb_mteb.nano.table import published_sets
from medteb_mteb.tasks._built import BuiltTask
from medteb_mteb.tasks._edition_task import EditionTask
from medteb_mteb.tasks.cmirb import CMIRBTask
from medteb_mteb.tasks.english import SnapshotTask
from medteb_mteb.tasks.nano import NanoTask

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

__all__ = ["Needs", "needs_of", "size_of"]

Needs = Literal["nothing", "network", "credentials", "an LLM"]


def needs_of(task: AbsTask) -> Needs:
    """Return what a task needs to get its data.

    A task may state it in an attribute `needs`. Otherwise it needs nothing if its data are an edition or a
    local copy, and the network if not.

    Raises:
        ValueError: The attribute is not one of the four.
    """
    stated = getattr(task, "needs", None)
    if stated is not None:
        if stated not in get_args(Needs):
            raise ValueError(
                f"{task.metadata.name} needs {stated!r}; expected one of {', '.join(get_args(Needs))}."
            )
        return stated  # type: ignore[no-any-return]
    if isinstance(task, EditionTask):
        return "nothing" if task.edition is not None else "network"
    return "nothing" if getattr(task, "local_copy", None) or getattr(task, "folder", None) else "network"


def size_of(task: AbsTask) -> tuple[int, int] | None:
    """Return the number of queries and of documents of a retrieval or reranking task, if it is known.

    Editions and snapshots state it in their manifest, Nano sets and CMIRB in published tables, sets built
    from raw files in their class, others in mteb's statistics.
    """
    if isinstance(task, EditionTask):
        counts = task.edition.counts if task.edition is not None else {}
        return _both(counts.get("queries"), counts.get("corpus"))
    if isinstance(task, BuiltTask | SnapshotTask):
        return task.size
    if isinstance(task, NanoTask) and task.set_name in published_sets():
        split = published_sets()[task.set_name].splits[task.split]
        return split.queries, split.documents
    if isinstance(task, CMIRBTask):
        return task.published_size
    statistics: Any = task.metadata.descriptive_stats or {}
    splits = [statistics[split] for split in task.metadata.eval_splits if split in statistics]
    sizes = [_both(one.get("num_queries"), one.get("num_documents")) for one in splits]
    if not sizes or None in sizes:
        return None
    return sum(one[0] for one in sizes if one), sum(one[1] for one in sizes if one)


def _both(queries: int | None, documents: int | None) -> tuple[int, int] | None:
    return None if queries is None or documents is None else (queries, documents)
