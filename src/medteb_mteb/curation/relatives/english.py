"""Files of a snapshot of English MedTEB, one per task."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.folder import alone, write_json, write_text
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import exams, medquad, mimic, scraped
from medteb_mteb.curation.relatives.fetch.tables import (
    PMC_TERMS,
    PREPRINT_TASKS,
    TRIAL_FIELDS,
    WIKI_CATEGORIES,
    WIKI_PAIRS,
)
from medteb_mteb.curation.relatives.rows import retrieval_rows
from medteb_mteb.curation.relatives.written import WRITTEN_TASKS
from medteb_mteb.editions import sha256_of
from medteb_mteb.english.snapshot import COLUMNS, FOLDER, MANIFEST, SnapshotOptions, file_of, read_manifest
from medteb_mteb.english.table import english_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = ["SNAPSHOT_TASKS", "SnapshotBuilder", "write_rows"]


@dataclass(frozen=True)
class SnapshotBuilder:
    """Builder of a task's rows.

    Attributes:
        make: Builds the rows from the raw files and the options.
        differs: Differences between the rows and the published ones.
        options: Allowed values by option of the task; the first one is the default.
    """

    make: Callable[[Raw, Mapping[str, str]], Sequence[Mapping[str, Any]]]
    differs: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _medquad_rows(raw: Raw, options: Mapping[str, str]) -> list[dict[str, str]]:
    del options
    pairs, _ = medquad.read_pairs(raw)
    return retrieval_rows([(pair.question, pair.answer) for pair in pairs])


def _scraped(make: Callable[..., Sequence[Mapping[str, Any]]], *given: str, differs: str) -> SnapshotBuilder:
    """Return a builder from frozen responses of a source that changes."""
    return SnapshotBuilder(lambda raw, _: make(raw, *given), f"{differs}; of the day when it was fetched")


def _needs_llm(raw: Raw, options: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    """Refuse to build a task without an LLM.

    Raises:
        BuildError: Always.
    """
    del raw, options
    raise BuildError(
        "An LLM writes the texts of this task, and there is no substitute for them: give --llm FILE, the "
        "YAML file of an LLM."
    )


def _with_negatives(
    make: Callable[..., Sequence[Mapping[str, Any]]], *given: str, differs: str
) -> SnapshotBuilder:
    """Return a builder of pairs with an option for the hard negatives."""
    return SnapshotBuilder(
        lambda raw, options: make(raw, *given, options["negatives"]),
        f"{differs}; one negative per positive, of the 64 texts nearest to the right one, by a model whose "
        "revision is not pinned or by BM25; of the day when it was fetched",
        {"negatives": ("all-MiniLM-L6-v2", "bm25")},
    )


_WIKI_DIFFERENCES = (
    "pages of a category and its subcategories in the order of Wikipedia's lists, each section longer than "
    "50 characters a text, the lead too; a text in two categories has the first one's label; 8,192 rows "
    "drawn with seed 42"
)
_PMC_DIFFERENCES = (
    "open-access articles alone, in the order of the search; the abstract, or else the section called "
    "introduction; a text that two terms find has the first one's label; 8,192 rows drawn with seed 42"
)
_TRIALS_DIFFERENCES = (
    "the first 17,000 studies in the order of the API; an outcome is its measure and description, without "
    "the time frame; studies without one of the texts and repeated pairs are left out, then the first 16,384 "
    "rows count"
)
_PUBMED_DIFFERENCES = "the first 9,999 articles that the search gives"
_PREPRINTS_DIFFERENCES = (
    "the first 16,384 preprints from 2018-01-01 on in the order of the API, each in its first version there; "
    "how many the authors took is not published"
)


_NOTES_DIFFERENCES = (
    "from a copy of the user's own; the first discharge summary of an admission, in the sections that its "
    "headings name"
)
_PRESENTED_DIFFERENCES = f"{_NOTES_DIFFERENCES}; complaint and history"
_NOTE_PAIRS_DIFFERENCES = (
    f"{_NOTES_DIFFERENCES}; equal pairs once; 8,192 drawn with seed 42, with one negative each, of the 128 "
    "texts nearest to the right one that are of another discharge diagnosis, by a model whose revision is "
    "not pinned or by BM25"
)


def _own_notes(
    make: Callable[..., Sequence[Mapping[str, Any]]], *given: Any, differs: str
) -> SnapshotBuilder:
    """Return a builder from a user's own copy of MIMIC-IV."""
    return SnapshotBuilder(lambda raw, _: make(raw, *given), differs)


def _note_pairs(fields: tuple[str, str], raw: Raw, options: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    return mimic.note_pairs(raw, fields, options["negatives"])


def _note_tasks() -> dict[str, SnapshotBuilder]:
    """Return the builders of the 26 tasks of MIMIC-IV."""
    builders: dict[str, SnapshotBuilder] = {}
    for name, task in english_tasks().items():
        end = name.partition("_mimic")[2]
        if not end:
            continue
        end = end.removeprefix("iv").removeprefix("_")
        if end in mimic.READMISSIONS:
            builders[name] = _own_notes(
                mimic.return_rows,
                name,
                mimic.READMISSIONS[end],
                differs=f"{_PRESENTED_DIFFERENCES}; the next admission by hosp/admissions.csv.gz, stays that "
                "ended in death left out; as many of each label, at most 4,096, drawn with seed 42",
            )
        elif end in mimic.DIAGNOSES:
            builders[name] = _own_notes(
                mimic.label_rows,
                name,
                end,
                differs=f"{_PRESENTED_DIFFERENCES}; equal texts once; 8,192 rows drawn with seed 42",
            )
        elif task.type == "RET":
            builders[name] = _own_notes(
                mimic.note_retrieval,
                mimic.FIELD_PAIRS[end],
                differs=f"{_NOTES_DIFFERENCES}; equal pairs once; 16,384 drawn with seed 42",
            )
        else:
            builders[name] = SnapshotBuilder(
                partial(_note_pairs, mimic.FIELD_PAIRS[end]),
                _NOTE_PAIRS_DIFFERENCES,
                {"negatives": ("all-MiniLM-L6-v2", "bm25")},
            )
    return builders


SNAPSHOT_TASKS: Mapping[str, SnapshotBuilder] = {
    **_note_tasks(),
    "pairclassification_medmcqa_pair_classification": SnapshotBuilder(
        lambda raw, _: exams.medmcqa_pairs(raw),
        "the development split alone, whose answers are public; the authors do not say which they drew",
    ),
    "pairclassification_medqa_pair_classification": SnapshotBuilder(
        lambda raw, _: exams.medqa_pairs(raw),
        "the US test split with four options; the authors do not say which split they drew",
    ),
    "retrieval_medquad_dataset": SnapshotBuilder(
        _medquad_rows,
        "raw answers, with the key words of the question, where the authors had GPT-4o rewrite them without; "
        "the first 16,384 distinct pairs with an answer, where the authors drew as many",
    ),
    **{task: _scraped(scraped.wiki_rows, task, differs=_WIKI_DIFFERENCES) for task in WIKI_CATEGORIES},
    **{task: _scraped(scraped.pmc_rows, task, differs=_PMC_DIFFERENCES) for task in PMC_TERMS},
    **{
        task: (_with_negatives if task.startswith("pair") else _scraped)(
            scraped.trial_pairs if task.startswith("pair") else scraped.trial_retrieval,
            task,
            differs=_TRIALS_DIFFERENCES,
        )
        for task in TRIAL_FIELDS
    },
    "retrieval_pubmed_retrieval": _scraped(
        scraped.pubmed_titles,
        differs=f"titles in the place of GPT-4o's questions: another task; {_PUBMED_DIFFERENCES}",
    ),
    **{
        task: _scraped(
            scraped.preprint_titles,
            server,
            differs=f"titles in the place of GPT-4o's questions: another task; {_PREPRINTS_DIFFERENCES}",
        )
        for server, task in PREPRINT_TASKS.items()
    },
    **{task: SnapshotBuilder(_needs_llm, WRITTEN_TASKS[task].differs) for task in WIKI_PAIRS},
    "pairclassification_pubmed_pair_classification": _with_negatives(
        scraped.pubmed_pairs,
        differs="title and abstract in the place of two sentences by GPT-4o: another task; "
        f"{_PUBMED_DIFFERENCES}",
    ),
}


def write_rows(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    provenance: Mapping[str, Any],
    out: Path,
    options: Mapping[str, str],
) -> tuple[Path, dict[str, Any], bool]:
    """Write a task's file into the snapshot `out/MedTEB-eng`.

    Args:
        name: Name of the task.
        rows: Its rows, with the columns of its type.
        provenance: Entry of `snapshot.json` without digest and number of rows.
        out: Root of editions, as `MEDTEB_DATA`.
        options: Options of the whole snapshot (`SnapshotOptions`); options that are not
            given keep their values.

    Returns:
        The file, its entry in `snapshot.json`, and True if it already existed.

    Raises:
        BuildError: There are no rows, or the snapshot holds another file of the task.
    """
    task = english_tasks()[name]
    if not rows:
        raise BuildError(f"{name}: the raw files hold nothing to build from.")
    folder = out / FOLDER
    with alone(folder):
        manifest = read_manifest(folder)
        before = manifest["options"]
        manifest["options"] = asdict(SnapshotOptions()) | before | dict(options)
        path = file_of(folder, task)
        content = _table(rows, COLUMNS[task.type])
        existed = path.is_file()
        if existed and path.read_text(encoding="utf-8") != content:
            raise BuildError(
                f"{path} is of other raw files, options or answers. Give another folder, or delete it."
            )
        if not existed:
            write_text(path, content, private=task.needs == "credentials")
        entry = {"sha256": sha256_of(path), "rows": len(rows), **provenance}
        manifest["tasks"] = dict(sorted({**manifest["tasks"], name: entry}.items()))
        if json.dumps(manifest) != json.dumps(read_manifest(folder)):
            write_json(folder / MANIFEST, manifest)
    return path, entry, existed


def _table(rows: Sequence[Mapping[str, Any]], columns: tuple[str, ...]) -> str:
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row[name] for name in columns] for row in rows)
    return table.getvalue()
