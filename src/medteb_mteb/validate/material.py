"""Input of `medteb validate`: an edition, and runs, pools, judgements and training sets to compare with."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import read_json, read_record
from medteb_mteb.curation.labels.grades import read_judgements
from medteb_mteb.curation.lineage import STEP_FILE
from medteb_mteb.curation.texts.near_duplicates import QUERY_SIMILARITY, clusters
from medteb_mteb.curation.training.rows import training_texts
from medteb_mteb.folders.content import collect_retrieval
from medteb_mteb.folders.layout import FolderError, Problems, inspect_folder
from medteb_mteb.measures import QueryScores, score_queries
from medteb_mteb.report.intervals import IntervalEstimate, estimated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from medteb_mteb.curation.labels.grades import Judgement
    from medteb_mteb.folders.content import RetrievalData
    from medteb_mteb.folders.layout import Layout
    from medteb_mteb.validate import ValidateSettings

#: Number of documents that a baseline retrieves, as in mteb's runs.
DEPTH = 1000
#: Lexical baselines that are run here.
BASELINES = ("bm25-char-bigram", "bm25-jieba")

Run = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Material:
    """An edition and what belongs to it.

    Attributes:
        layout: Paths of the tables, and the content of card and manifest.
        data: The content; unusable rows are left out and recorded.
        problems: The unusable rows.
        qrels: Positives by query: pairs whose query and document exist.
        runs: Scores by run, query and document.
        pooled: Documents that each retriever contributed to the pools, as a run; empty without pools.
        judgements: Judgements of the edition's queries, or None.
        places: Place of a passage in its prompt, from 0 (first) to 1 (last), by judge, query and document.
        training: Texts of the training sets, or None.
        review: Report of `medteb review` on the answers of experts, or None.
    """

    layout: Layout
    data: RetrievalData
    problems: Problems
    qrels: dict[str, dict[str, int]]
    runs: Mapping[str, Run] = field(default_factory=dict)
    pooled: Mapping[str, Run] = field(default_factory=dict)
    judgements: tuple[Judgement, ...] | None = None
    places: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    training: tuple[str, ...] | None = None
    review: Mapping[str, Any] | None = None

    @cached_property
    def scores(self) -> dict[str, dict[str, QueryScores]]:
        """Return the scores by run and query, of the queries that have a positive."""
        return {name: score_queries(self.qrels, self.data.judged, run) for name, run in self.runs.items()}

    @cached_property
    def clusters(self) -> dict[str, int]:
        """Return the number of the cluster of near-duplicates of every query."""
        names = [row["id"] for row in self.data.queries]
        groups = clusters([row["text"] for row in self.data.queries], threshold=QUERY_SIMILARITY)
        return {names[row]: number for number, group in enumerate(groups) for row in group}

    def mean(self, scores: Mapping[str, float]) -> IntervalEstimate:
        """Return the mean over queries with its 95 % bootstrap interval over clusters of near-duplicates."""
        groups = np.array([self.clusters[query] for query in scores])
        return mean_over_groups(np.array(list(scores.values()), dtype=float), groups)


@dataclass(frozen=True)
class _Ratio:
    """A mean over items that come in groups: sums and counts by group."""

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.sums)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean under each weighting of the groups, see `medteb_mteb.report.intervals.Sample`."""
        return np.asarray((weights @ self.sums) / (weights @ self.counts))


def mean_over_groups(values: NDArray[np.float64], groups: NDArray[np.int64]) -> IntervalEstimate:
    """Return a mean with its 95 % bootstrap interval over groups of values, such as the pairs of a query.

    Args:
        values: Shape (values,), float64.
        groups: Group of each value, shape (values,).
    """
    if not len(values):
        return IntervalEstimate(float("nan"), float("nan"), float("nan"))
    _, numbers = np.unique(groups, return_inverse=True)
    sample = _Ratio(np.bincount(numbers, weights=values).astype(float), np.bincount(numbers).astype(float))
    return estimated(sample)


def read_material(folder: Path, settings: ValidateSettings) -> Material:
    """Read a folder and the material to compare with it.

    Args:
        folder: An edition, or any retrieval or reranking folder in the Hub layout.
        settings: Where the further material is.

    Raises:
        FolderError: The folder is unusable or of another type.
        MarError: Other material is unusable, or belongs to other queries or documents.
    """
    layout = inspect_folder(folder, pinned=False)
    if "corpus" not in layout.tables:
        raise FolderError(layout.path, ["holds no corpus; validate looks at retrieval and reranking folders"])
    problems = Problems(layout.path)
    data = collect_retrieval(layout, problems)
    if not data.corpus or not data.queries:
        problems.raise_if_any()
        raise FolderError(layout.path, ["holds no query with judgements"])
    queries, documents = {row["id"] for row in data.queries}, {row["id"] for row in data.corpus}
    qrels = {
        query: {d: score for d, score in row.items() if score > 0 and d in documents}
        for query, row in data.qrels.items()
        if query in queries
    }
    steps = {} if settings.build is None else _steps(settings.build)
    pools, judgements = steps.get("pool"), steps.get("judge")
    judged = None if judgements is None else read_judgements(judgements)
    return Material(
        layout=layout,
        data=data,
        problems=problems,
        qrels={query: row for query, row in qrels.items() if row},
        runs=_runs(settings.runs, data),
        pooled={} if pools is None else _pooled(pools, queries, documents),
        judgements=None
        if judged is None
        else tuple(one for one in judged if one.query_id in queries and one.grade),
        places={} if judgements is None else _places(judgements),
        training=_training(settings),
        review=None if settings.review is None else _review(settings.review),
    )


def _steps(build: Path) -> dict[str, Path]:
    """Return the folders of a build's steps by kind; of several of a kind, the last one."""
    files = sorted(build.glob(f"*/{STEP_FILE}"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise MarError(f"{build} holds no step of a build. Give the folder that medteb build wrote ('out').")
    return {str((read_record(file) or {}).get("step")): file.parent for file in files}


def _runs(names: tuple[str, ...], data: RetrievalData) -> dict[str, Run]:
    from mar_st.data.trec import read_run  # lazy: transformers

    queries, documents = {row["id"] for row in data.queries}, {row["id"] for row in data.corpus}
    runs: dict[str, Run] = {}
    for name in names:
        label = name if name in BASELINES else Path(name).stem
        if label in runs:
            raise MarError(f"Two of the runs are called {label!r}; rename a file.")
        searched = name in BASELINES
        runs[label] = (
            _search(name, data) if searched else read_run(Path(name), queries=queries, documents=documents)
        )
    return runs


def _search(name: str, data: RetrievalData) -> Run:
    from datasets import Dataset  # lazy: datasets

    from medteb_mteb.models.bm25 import BM25Model  # lazy: mteb

    model = BM25Model(name.removeprefix("bm25-"))
    model.index(Dataset.from_list(data.corpus))
    queries: Any = Dataset.from_list(data.queries)
    results = model.search(queries, top_k=DEPTH, top_ranked=data.top_ranked)
    return {query: dict(documents) for query, documents in results.items()}


def _pooled(pools: Path, queries: set[str], documents: set[str]) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for row in read_rows(pools / "pools.jsonl", lambda row: row.values):
        query, names = row["query-id"], row["corpus-ids"]
        for retriever, ranks in row["ranks"].items() if query in queries else ():
            found = {name: rank for name, rank in zip(names, ranks, strict=True) if name in documents}
            run = runs.setdefault(retriever, {})
            run[query] = {name: -float(rank) for name, rank in found.items() if rank is not None}
    if not runs:
        raise MarError(f"{pools} holds no pools of the queries of this edition.")
    return runs


def _places(judgements: Path) -> dict[tuple[str, str, str], float]:
    """Return places in prompts with several passages; none if they were not written."""
    file = judgements / "places.jsonl"
    rows = read_rows(file, lambda row: row.values) if file.is_file() else ()
    return {
        (row["judge"], row["query-id"], row["corpus-id"]): (row["place"] - 1) / (row["of"] - 1)
        for row in rows
        if row["of"] > 1
    }


def _review(folder: Path) -> dict[str, Any]:
    file = folder / "review.json"
    if not file.is_file():
        raise MarError(f"There is no {file}. Give the folder of medteb review --answer.")
    report: dict[str, Any] = read_json(file)
    return report


def _training(settings: ValidateSettings) -> tuple[str, ...] | None:
    own = settings.build / "data" / "train" if settings.build is not None else None
    of_build = (str(own),) if own is not None and own.is_dir() and any(own.iterdir()) else ()
    sources = settings.against or of_build
    return tuple(text for source in sources for text in training_texts(source)) if sources else None
