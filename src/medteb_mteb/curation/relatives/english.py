"""Files of a snapshot of English MedTEB: those tasks that raw files of public repositories are enough for."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mar_st.files import finished
from medteb_mteb.curation.files.folder import alone, write_json
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import exams, medquad
from medteb_mteb.editions import sha256_of
from medteb_mteb.english.snapshot import COLUMNS, FOLDER, MANIFEST, Options, file_of, read_manifest
from medteb_mteb.english.table import english_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = ["SNAPSHOT_TASKS", "SnapshotBuilder", "write_task"]

#: Most rows of a pair or retrieval task, as published.
MOST_ROWS = 16_384


@dataclass(frozen=True)
class SnapshotBuilder:
    """How a task's rows are made.

    Attributes:
        make: Makes the rows of the raw files.
        differs: How they differ from the published ones.
        licence: What the source states.
    """

    make: Callable[[Raw], Sequence[Mapping[str, Any]]]
    differs: str
    licence: str


def _medquad_rows(raw: Raw) -> list[dict[str, str]]:
    pairs, _ = medquad.read_pairs(raw)
    return [{"query": pair.question, "corpus": pair.answer} for pair in pairs[:MOST_ROWS]]


SNAPSHOT_TASKS: Mapping[str, SnapshotBuilder] = {
    "pairclassification_medmcqa_pair_classification": SnapshotBuilder(
        exams.medmcqa_pairs,
        "the development split alone, whose answers are public; the authors do not say which they drew",
        "mit",
    ),
    "pairclassification_medqa_pair_classification": SnapshotBuilder(
        exams.medqa_pairs,
        "the US test split with four options; the authors do not say which split they drew",
        "mit",
    ),
    "retrieval_medquad_dataset": SnapshotBuilder(
        _medquad_rows,
        "raw answers, with the key words of the question, where the authors had GPT-4o rewrite them without; "
        "the first 16,384 distinct pairs with an answer, where the authors drew as many",
        "cc-by-4.0",
    ),
}


def write_task(
    name: str, raw: Raw, out: Path, options: Mapping[str, str]
) -> tuple[Path, dict[str, Any], bool]:
    """Write a task's file into the snapshot `out/MedTEB-eng`.

    Args:
        name: Name of the task, one of `SNAPSHOT_TASKS`.
        raw: The raw files.
        out: Root of editions, as `MEDTEB_DATA`.
        options: Options of the whole snapshot (`medteb_mteb.english.snapshot.Options`); those that are not
            given stay as they are there.

    Returns:
        The file, what `snapshot.json` says of it, and True if it was there already.

    Raises:
        BuildError: A raw file is missing or malformed, or the snapshot holds another file of the task.
    """
    builder, task = SNAPSHOT_TASKS[name], english_tasks()[name]
    rows = builder.make(raw)
    if not rows:
        raise BuildError(f"{name}: the raw files hold nothing to build from.")
    folder = out / FOLDER
    with alone(folder):
        manifest = read_manifest(folder)
        before = manifest["options"]
        manifest["options"] = asdict(Options()) | before | dict(options)
        path = file_of(folder, task)
        content = _table(rows, COLUMNS[task.type])
        there = path.is_file()
        if there and path.read_text(encoding="utf-8") != content:
            raise BuildError(f"{path} is of other raw files. Give another folder, or delete it.")
        if not there:
            with finished(path) as part:
                part.write_text(content, encoding="utf-8")
        found = {
            "sha256": sha256_of(path),
            "rows": len(rows),
            "differs": builder.differs,
            "licence": builder.licence,
            "made_from": dict(sorted(raw.used.items())),
        }
        manifest["tasks"] = dict(sorted({**manifest["tasks"], name: found}.items()))
        if json.dumps(manifest) != json.dumps(read_manifest(folder)):
            write_json(folder / MANIFEST, manifest)
    return path, found, there


def _table(rows: Sequence[Mapping[str, Any]], columns: tuple[str, ...]) -> str:
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row[name] for name in columns] for row in rows)
    return table.getvalue()
