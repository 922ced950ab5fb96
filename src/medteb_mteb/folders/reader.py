"""Reads a whole data folder into memory, after checking it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medteb_mteb.folders.labelled import guess_type, read_labelled
from medteb_mteb.folders.layout import Layout, inspect_folder
from medteb_mteb.folders.problems import FolderError, Problems
from medteb_mteb.folders.retrieval import RetrievalData, read_retrieval
from medteb_mteb.folders.rows import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from medteb_mteb.folders.settings import TaskType

__all__ = ["TaskFolder", "detect_type", "read_folder"]


@dataclass(frozen=True)
class TaskFolder:
    """The checked content of one folder.

    Attributes:
        layout: Paths of the tables, and the content of card and manifest.
        type: Task type, as named by mteb.
        revision: sha256 (hex) that identifies the data; see :meth:`Layout.revision`.
        retrieval: Content of a retrieval or reranking folder, else None.
        records: Rows by split of any other folder, else empty.
    """

    layout: Layout
    type: TaskType
    revision: str
    retrieval: RetrievalData | None
    records: dict[str, list[dict[str, Any]]]

    @property
    def name(self) -> str:
        """Return the task's name."""
        return self.layout.name

    @property
    def split(self) -> str:
        """Return the split to evaluate."""
        return self.layout.split


def read_folder(
    path: Path | str, split: str = "test", *, check_manifest: bool = True, card_first: bool = False
) -> TaskFolder:
    """Check a folder in the Hub layout and read it, straight from its files.

    The task type (retrieval, reranking, STS, pair classification, classification or clustering) follows from
    the files present, unless the manifest or the README header declares it. For a retrieval folder, the
    judged pairs are read, too (`medteb_mteb.folders.judged`). Other files (``labels.json``, a ``train/``
    folder, ...) are ignored.

    Args:
        path: The folder.
        split: The split to evaluate.
        check_manifest: Whether to compare the files with the manifest; False, e.g., to write a new one.
        card_first: Whether the card's settings replace the manifest's; see `inspect_folder`.

    Raises:
        FolderError: With every problem found, each with file and line.
    """
    layout = inspect_folder(path, split, check_manifest=check_manifest, card_first=card_first)
    revision = layout.revision()
    problems = Problems(layout.path)
    declared = layout.settings.type
    if "corpus" in layout.tables:
        kind = detect_type(layout)
        data = read_retrieval(layout, problems)
        return TaskFolder(layout, kind, revision, data, {})
    kind, records = read_labelled(layout, declared, problems)
    return TaskFolder(layout, kind, revision, None, records)


def detect_type(layout: Layout) -> TaskType:
    """Return the task type of a folder, from its declaration, its files, or the columns of its first row.

    Raises:
        FolderError: If no type fits, or the declared type does not fit the files.
    """
    declared = layout.settings.type
    if "corpus" in layout.tables:
        detected: TaskType = "Reranking" if "top_ranked" in layout.tables else "Retrieval"
        if declared is not None and declared != detected:
            raise FolderError(
                layout.path, [f"the type is declared as {declared}, but the files are those of {detected}"]
            )
        return detected
    if declared is not None:
        return declared
    problems = Problems(layout.path)
    rows = read_rows(layout.tables["rows"][:1], problems)
    guessed = guess_type(rows[0]) if rows else None
    # Without a unique type, the full reader reports the problem with file and line.
    return guessed or read_labelled(layout, None, Problems(layout.path))[0]
