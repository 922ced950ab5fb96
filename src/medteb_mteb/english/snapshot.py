"""Snapshots: a folder with a CSV file per task, in the columns of the authors' scrapers.

Columns are `text`, `label` (classification, clustering), `sentence1`, `sentence2`, `label` (pairs) and
`query`, `corpus` (retrieval). `snapshot.json` is optional: it holds the options, and for each task the digest
of the file, how it was made and how it differs from the published one. Files that a scraper wrote can be used
without it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from medteb_mteb.editions import leads_outside, sha256_of
from medteb_mteb.folders.problems import FolderError
from medteb_mteb.folders.rows import MAX_CELL_CHARACTERS

if TYPE_CHECKING:
    from pathlib import Path

    from medteb_mteb.english.table import EnglishTask

__all__ = [
    "COLUMNS",
    "FOLDER",
    "MANIFEST",
    "SnapshotOptions",
    "file_of",
    "read_manifest",
    "read_options",
    "read_rows",
    "revision_of",
]

#: Name of the folder in `$MEDTEB_DATA`.
FOLDER = "MedTEB-eng"
MANIFEST = "snapshot.json"
COLUMNS = {
    "CLS": ("text", "label"),
    "CLU": ("text", "label"),
    "PAIR": ("sentence1", "sentence2", "label"),
    "RET": ("query", "corpus"),
}
#: Values of `label` in pairs.
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "False": 0, "True": 1}


@dataclass(frozen=True)
class SnapshotOptions:
    """Options where the paper and its code differ; defaults follow the code, except for the title.

    Attributes:
        title: `none`, or `No title`: a constant that the authors' wrapper prepends to every document.
        threshold: `test`: F1 of pairs at the best threshold for the same pairs (code); `train`: at one chosen
            on 70 % of the pairs and used on the others (paper).
        classifier: `frozen`: a logistic regression on vectors of the unchanged model (code); `fine-tuned`: on
            vectors of the model fine-tuned on the train split (paper, which does not say how).
    """

    title: Literal["none", "No title"] = "none"
    threshold: Literal["test", "train"] = "test"
    classifier: Literal["frozen", "fine-tuned"] = "frozen"

    @classmethod
    def allowed(cls) -> dict[str, tuple[str, ...]]:
        """Return the allowed values by option, the default first."""
        return {
            "title": ("none", "No title"),
            "threshold": ("test", "train"),
            "classifier": ("frozen", "fine-tuned"),
        }

    def relevant(self, kind: str) -> dict[str, str]:
        """Return the options that change the scores of a type of task.

        Args:
            kind: `CLS`, `CLU`, `PAIR` or `RET`.
        """
        names = {"RET": ("title",), "PAIR": ("threshold",), "CLS": ("classifier",), "CLU": ()}[kind]
        return {name: value for name, value in asdict(self).items() if name in names}


def file_of(folder: Path, task: EnglishTask) -> Path:
    """Return the path of a task's file in a snapshot, whether or not it is there."""
    return folder / f"{task.name}.csv"


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the content of `snapshot.json`; empty without one.

    Raises:
        FolderError: `snapshot.json` is malformed.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {"options": {}, "tasks": {}}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FolderError(folder, [f"{MANIFEST} is not valid JSON ({str(error)[:100]})"]) from None
    if not isinstance(content, dict) or not all(
        isinstance(content.get(key), dict) for key in ("options", "tasks")
    ):
        raise FolderError(folder, [f"{MANIFEST}: expected an object with 'options' and 'tasks'"])
    return content


def read_options(folder: Path) -> SnapshotOptions:
    """Return the options of a snapshot; the defaults for options that it does not set.

    Raises:
        FolderError: `snapshot.json` is malformed, or has an unknown option or value.
    """
    given = read_manifest(folder)["options"]
    for name, value in given.items():
        known = SnapshotOptions.allowed().get(name)
        if known is None or value not in known:
            names = ", ".join(SnapshotOptions.allowed())
            expected = f"one of {', '.join(known)}" if known else f"options are {names}"
            raise FolderError(folder, [f"{MANIFEST}: {name} is {value!r}; {expected}"])
    return SnapshotOptions(**given)


def revision_of(folder: Path, task: EnglishTask) -> str:
    """Return the sha256 (hex) of a task's file and the options that change its scores.

    Raises:
        FolderError: The file is a link out of the folder, or differs from its digest in `snapshot.json`.
    """
    path = file_of(folder, task)
    if leads_outside(path, folder):
        raise FolderError(folder, [f"{path.name} is a symbolic link out of the folder"])
    digest = sha256_of(path)
    recorded = read_manifest(folder)["tasks"].get(task.name)
    if isinstance(recorded, dict) and recorded.get("sha256") != digest:
        raise FolderError(folder, [f"{path.name} is not the file that {MANIFEST} names; it was changed"])
    content = {"file": digest, "options": read_options(folder).relevant(task.type)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_rows(folder: Path, task: EnglishTask) -> list[dict[str, Any]]:
    """Return the rows of a task, in file order; rows with an empty cell are dropped, as the authors do.

    Returns:
        Rows with the columns of `COLUMNS`; labels of pairs are 0 or 1, other labels are text.

    Raises:
        FolderError: A column is missing, a row is malformed, or too few rows are left to score.
    """
    path, columns = file_of(folder, task), COLUMNS[task.type]
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FolderError(folder, [f"{path.name} cannot be read ({type(error).__name__})"]) from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows: list[dict[str, Any]] = []
    try:
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            header = ", ".join(reader.fieldnames or ())[:200]
            raise FolderError(folder, [f"{path.name}: no column {', '.join(missing)}; got {header}"])
        for row in reader:
            if None in row or None in row.values():
                raise FolderError(
                    folder, [f"{path.name}:{reader.line_num}: another number of cells than the header"]
                )
            if all(row[name].strip() for name in columns):
                rows.append({name: row[name] for name in columns})
    except csv.Error as error:
        raise FolderError(folder, [f"{path.name}:{reader.line_num}: {error}"]) from None
    if task.type == "PAIR":
        _number_labels(folder, path, rows)
    if len(rows) < 2 or ("label" in columns and len({row["label"] for row in rows}) < 2):
        raise FolderError(
            folder, [f"{path.name}: {len(rows)} full rows, or one label alone, cannot be scored"]
        )
    return rows


def _number_labels(folder: Path, path: Path, rows: list[dict[str, Any]]) -> None:
    for number, row in enumerate(rows, start=1):
        if row["label"].strip() not in _LABELS:
            raise FolderError(
                folder, [f"{path.name}: full row {number}: label {row['label'][:40]!r} is not 0 or 1"]
            )
        row["label"] = _LABELS[row["label"].strip()]
