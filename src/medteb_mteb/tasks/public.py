"""The packaged tasks, over editions; tasks of mteb and CMIRB, with a copy as an option; tasks to be built."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from datasets import load_dataset
from mteb import tasks as mtebs
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
from mteb.abstasks.sts import AbsTaskSTS

from medteb_mteb.abstasks import DataUnavailableError, JudgedRetrieval, LocalTask
from medteb_mteb.editions import DATA_VARIABLE, find_edition, load_edition
from medteb_mteb.folders.tasks import FolderTask, load_into
from medteb_mteb.tasks.tables import licence_for_mteb, make_task, metadata, table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from datasets import Dataset
    from mteb.abstasks.abstask import AbsTask
    from mteb.abstasks.task_metadata import TaskMetadata

#: Revision of data of the Hub of which no source names one, and of data that nobody has built yet.
UNPINNED, NOT_BUILT = "main", "not-built"
_PAPER = "https://openreview.net/forum?id=JsNmDdKJmx"
_MINI = {
    "description": "Data of this edition: `mini`, synthetic text written by a generator from hand-written "
    "knowledge tables, with labels that follow from construction. It is for smoke tests and teaching, not "
    "for ranking models. The published benchmark's data are closed and are not part of it.",
    "annotations_creators": "algorithmic",
    "sample_creation": "created",
    "date": ("2026-11-01", "2026-11-30"),
}


class EditionTask(LocalTask):
    """A task whose data is the active edition: `$MEDTEB_DATA/<task>/`, else the packaged one."""

    base_metadata: ClassVar[TaskMetadata]

    def find(self) -> Path | None:
        """Return the folder of the active edition."""
        return find_edition(self.copy_name).path

    def describe(self, folder: Path) -> dict[str, Any]:
        """Return revision, licence and description of the edition, and how its labels were made if stated."""
        edition = load_edition(folder)
        note = f"Data of this edition: `{edition.name}` {edition.version}, found in a local folder; licence "
        known: dict[str, Any] = dict.fromkeys(_MINI) | {"description": f"{note}{edition.licence}."}
        known = _MINI if edition.name == "mini" else known
        stated = {key: edition.extra.get(key, known[key]) for key in _MINI if key != "description"}
        description = f"{self.base_metadata.description} {known['description']}"
        licence = licence_for_mteb(edition.licence)
        return {"revision": edition.digest, "license": licence, "description": description, **stated}

    def read(self, folder: Path) -> None:
        """Verify the edition's files against the manifest and read them."""
        load_into(self, folder)


def _edition_task(name: str, fields: Mapping[str, Any]) -> type[EditionTask]:
    of = metadata(
        name, f"medteb/{name}", "no-edition", "medteb", eval_langs=["cmn-Hans"], reference=_PAPER, **fields
    )
    base: Any = AbsTaskSTS if of.type == "STS" else JudgedRetrieval
    made = make_task(of, EditionTask, base, base_metadata=of)
    # mteb lists and filters classes, so the class shows the active edition at import.
    made.metadata = made().metadata
    return made


EDITION_TASKS = tuple(_edition_task(name, fields) for name, fields in table("editions").items())

#: mteb's tasks in the benchmarks of this package, which may also read a copy in `$MEDTEB_DATA/<task>/`.
_OF_MTEB: tuple[type[AbsTask], ...] = (
    mtebs.CMedQAv1,
    mtebs.CMedQAv2,
    mtebs.CmedqaRetrieval,
    mtebs.MedicalRetrieval,
    mtebs.CovidRetrieval,
    mtebs.NFCorpus,
    mtebs.SciFact,
    mtebs.SCIDOCS,
    mtebs.TRECCOVID,
)
REPLACED: Mapping[type[AbsTask], type[AbsTask]] = {
    **{theirs: make_task(theirs.metadata, FolderTask, JudgedRetrieval, theirs) for theirs in _OF_MTEB},
    mtebs.BiossesSTS: make_task(mtebs.BiossesSTS.metadata, FolderTask, mtebs.BiossesSTS),
}


class _Loader(RetrievalDatasetLoader):
    """mteb's loader for qrels whose columns are named as in C-MTEB."""

    def _load_dataset_split(self, config: str, num_proc: int | None) -> Dataset:
        dataset = load_dataset(
            self.hf_repo, config, split=self._get_split(config), revision=self.revision, num_proc=num_proc
        )
        names = {"q_id": "query-id", "p_id": "corpus-id"}
        return dataset.rename_columns({old: new for old, new in names.items() if old in dataset.column_names})


class CMIRBTask(FolderTask, JudgedRetrieval):
    """Retrieval on one set of CMIRB.

    Names, sizes and scores in `cmirb.json` are those of the readme of github.com/CMIRB-benchmark/CMIRB,
    commit a0c94fa; revisions are those seen on the Hub. The published layout: `corpus.jsonl` and
    `queries.jsonl` (`id`, `text`), `qrels/test.jsonl` (`q_id`, `p_id`, `score`), declared as configurations
    by the card.
    """

    def fetch(self, num_proc: int | None, **kwargs: Any) -> None:
        """Load the data from the Hub."""
        del kwargs
        data, split = self.metadata.dataset, self.metadata.eval_splits[0]
        loader = _Loader(data["path"], data["revision"], split=split)
        self.dataset = {"default": {split: loader.load(num_proc)}}


def _cmirb_task(row: Mapping[str, Any]) -> type[CMIRBTask]:
    pinned = "" if row["revision"] else f" The revision of {row['hub']} is not pinned: no source gives one."
    same = f" The data are those of {row['adapted_from']}." if row["adapted_from"] else ""
    of = metadata(
        row["task"],
        row["hub"],
        row["revision"] or UNPINNED,
        "cmirb",
        description=f"{row['about']} Part of CMIRB; texts from {row['source']}.{same}{pinned}",
        reference="https://arxiv.org/abs/2410.20050",
        eval_langs=["cmn-Hans"],
        main_score="ndcg_at_10",
        # Day on which the data were uploaded; the sources do not say when the texts were written.
        date=("2024-10-21", "2024-10-21"),
        domains=row["domains"],
        task_subtypes=["Article retrieval"] if "Academic" in row["domains"] else ["Question answering"],
        license=row["licence"] or "not specified",
        annotations_creators=row["annotations"],
        sample_creation="found",
        prompt={"query": row["prompt"]},
        adapted_from=[row["adapted_from"]] if row["adapted_from"] else None,
        contributed_by="CMIRB",
    )
    return make_task(of, CMIRBTask)


CMIRB_TASKS = tuple(_cmirb_task(row) for row in table("cmirb")["sets"])


class BuiltTask(FolderTask, JudgedRetrieval):
    """A task whose data are built from raw files with `tools/relatives`, in `$MEDTEB_DATA/<task>/`.

    Attributes:
        sources: Raw files that the data are built from, for the message about missing data.
    """

    sources: ClassVar[str]

    def fetch(self, num_proc: int | None, **kwargs: Any) -> None:
        """Say how to build the data, which are not published in this form.

        Raises:
            DataUnavailableError: Always.
        """
        del num_proc, kwargs
        raise not_built(self.copy_name, self.sources)


def not_built(task: str, sources: str) -> DataUnavailableError:
    """Return an error that says how to build the data of a task.

    Args:
        task: Name of the task.
        sources: What its data are built from.
    """
    root = os.environ.get(DATA_VARIABLE)
    then = "" if root else f", then set {DATA_VARIABLE}=DATA"
    return DataUnavailableError(
        f"The data of {task} were not built. Get {sources}, and run `python -m tools.relatives build {task} "
        f"RAW {root or 'DATA'}` in a checkout of medteb{then}."
    )


def _built_task(name: str, row: Mapping[str, Any]) -> type[BuiltTask]:
    own = {"sources", "citations"}
    fields: dict[str, Any] = {
        "eval_langs": ["eng-Latn"],
        "sample_creation": "found",
        "license": "not specified",
        **{key: value for key, value in row.items() if key not in own},
    }
    of = metadata(name, f"medteb/{name}", NOT_BUILT, *row.get("citations", ["bmretriever"]), **fields)
    return make_task(of, BuiltTask, sources=row["sources"])


BUILT_TASKS = tuple(_built_task(name, row) for name, row in table("built").items())
