"""CMIRB: ten Chinese medical retrieval sets, as tasks made from one table.

Names, sizes and scores are those of the readme of github.com/CMIRB-benchmark/CMIRB, commit a0c94fa; revisions
are those seen on the Hub. Revisions that no source gives are not pinned.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar, cast

from datasets import load_dataset
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.timing import TimingStack

from medteb_mteb.tasks._copied import CopiedRetrieval

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.abstask import AbsTask

__all__ = ["CMIRB_TASKS", "CMIRBScores", "CMIRBSet", "CMIRBTask", "cmirb_scores", "cmirb_sets"]

UNPINNED = "main"
REFERENCE = "https://arxiv.org/abs/2410.20050"
CITATION = r"""
@article{li2024automir,
  author = {Li, Lei and Zhang, Xiangxu and Zhou, Xiao and Liu, Zheng},
  journal = {arXiv preprint arXiv:2410.20050},
  title = {AutoMIR: Effective Zero-Shot Medical Information Retrieval without Relevance Labels},
  year = {2024},
}
"""
#: Day on which the data were uploaded to the Hub; the sources do not say when the texts were written.
UPLOADED = "2024-10-21"


@dataclass(frozen=True)
class CMIRBSet:
    """A published set.

    Attributes:
        task: Name of the task: the authors' name, prefixed with `CMIRB` for the three that mteb already has.
        column: Name in the published table of scores.
        hub: Hub name.
        revision: Revision on the Hub; None if no source gives one.
        queries: Number of queries.
        documents: Number of documents.
        licence: Licence on its Hub card; None if the card states none or was not seen.
        about: Short description.
        source: Source of the texts.
        domains: Domains, as named by mteb.
        annotations: Who made the labels, as named by mteb.
        adapted_from: mteb's task on the same data, if there is one.
        prompt: Instruction for queries; mteb's if it has the task, else this package's own.
    """

    task: str
    column: str
    hub: str
    revision: str | None
    queries: int
    documents: int
    licence: str | None
    about: str
    source: str
    domains: list[str]
    annotations: str
    adapted_from: str | None
    prompt: str


@dataclass(frozen=True)
class CMIRBScores:
    """A row of the published table, in percent.

    Attributes:
        model: Name in the table.
        hub: Hub name of the model; None for BM25.
        average: Published mean.
        ndcg_at_10: nDCG@10 by set, in the order of `cmirb_sets`.
    """

    model: str
    hub: str | None
    average: float
    ndcg_at_10: list[float]


@lru_cache(maxsize=1)
def _table() -> dict[str, list[dict[str, Any]]]:
    table: dict[str, list[dict[str, Any]]] = json.loads(
        files("medteb_mteb.tasks").joinpath("cmirb.json").read_text(encoding="utf-8")
    )
    return table


def cmirb_sets() -> list[CMIRBSet]:
    """Return the ten sets in the published order."""
    return [CMIRBSet(**row) for row in _table()["sets"]]


def cmirb_scores() -> list[CMIRBScores]:
    """Return the rows of the published table."""
    return [CMIRBScores(**row) for row in _table()["scores"]]


class _Loader(RetrievalDatasetLoader):
    """mteb's loader for qrels whose columns are named as in C-MTEB."""

    def _load_dataset_split(self, config: str, num_proc: int | None) -> Dataset:
        dataset = load_dataset(
            self.hf_repo, config, split=self._get_split(config), revision=self.revision, num_proc=num_proc
        )
        names = {"q_id": "query-id", "p_id": "corpus-id"}
        return dataset.rename_columns({old: new for old, new in names.items() if old in dataset.column_names})


class CMIRBTask(CopiedRetrieval):
    """Retrieval on one set of CMIRB.

    The published layout: `corpus.jsonl` and `queries.jsonl` (`id`, `text`), `qrels/test.jsonl` (`q_id`,
    `p_id`, `score`), declared as configurations by the card. A copy is in `$MEDTEB_DATA/<task name>/`.

    Attributes:
        published: The row of the table.
        published_size: Number of queries and of documents.
    """

    published: ClassVar[CMIRBSet]
    published_size: ClassVar[tuple[int, int]]

    def _fetch(self, num_proc: int | None, *, timer: TimingStack | None, **kwargs: Any) -> None:
        del kwargs
        data = self.metadata.dataset
        with (timer or TimingStack())("Data loading", log_message=f"Loading {self.metadata.name}..."):
            split = self.metadata.eval_splits[0]
            loader = _Loader(data["path"], data["revision"], split=split)
            self.dataset = {"default": {split: loader.load(num_proc)}}
            self.data_loaded = True


def _metadata(one: CMIRBSet) -> TaskMetadata:
    pinned = "" if one.revision else f" The revision of {one.hub} is not pinned: no source gives one."
    same = f" The data are those of {one.adapted_from}." if one.adapted_from else ""
    return TaskMetadata.model_validate(
        {
            "name": one.task,
            "description": f"{one.about} Part of CMIRB; texts from {one.source}.{same}{pinned}",
            "dataset": {"path": one.hub, "revision": one.revision or UNPINNED},
            "reference": REFERENCE,
            "type": "Retrieval",
            "category": "t2t",
            "modalities": ["text"],
            "eval_splits": ["test"],
            "eval_langs": ["cmn-Hans"],
            "main_score": "ndcg_at_10",
            "date": (UPLOADED, UPLOADED),
            "domains": one.domains,
            "task_subtypes": ["Article retrieval"] if "Academic" in one.domains else ["Question answering"],
            "license": one.licence or "not specified",
            "annotations_creators": one.annotations,
            "dialect": [],
            "sample_creation": "found",
            "prompt": {"query": one.prompt},
            "bibtex_citation": CITATION,
            "adapted_from": [one.adapted_from] if one.adapted_from else None,
            "contributed_by": "CMIRB",
        }
    )


def _make(one: CMIRBSet) -> type[CMIRBTask]:
    metadata = _metadata(one)
    attributes = {
        "metadata": metadata,
        "published": one,
        "published_size": (one.queries, one.documents),
        "__doc__": metadata.description,
        "__module__": __name__,
    }
    return cast("type[CMIRBTask]", type(one.task, (CMIRBTask,), attributes))


CMIRB_TASKS: tuple[type[AbsTask], ...] = tuple(_make(one) for one in cmirb_sets())
