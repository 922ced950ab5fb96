"""Audit of an existing benchmark: false negatives and false positives of its qrels.

Source: the false-negative audit of public sets (MAR paper, Table 13): the top 50 of one retriever are judged
on the five-letter scale and compared with the released positives among them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.labels.intervals import interval, rounded
from medteb_mteb.folders import inspect_folder
from medteb_mteb.folders.problems import Problems
from medteb_mteb.folders.retrieval import read_retrieval
from medteb_mteb.report.intervals import MeanSample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from medteb_mteb.curation.files.layout import Qrels
    from medteb_mteb.curation.labels.grades import Label

__all__ = ["Audit", "Benchmark", "QueryAudit", "audit", "read_benchmark"]


@dataclass(frozen=True)
class Benchmark:
    """A retrieval or reranking folder.

    Attributes:
        folder: Folder of the benchmark.
        queries: Queries of the test, by id.
        documents: Documents by id.
        qrels: Released positives: query -> document -> score above 0.
        candidates: Candidates of each query, for reranking; empty for retrieval.
        licence: Licence of the data.
    """

    folder: Path
    queries: dict[str, Text]
    documents: dict[str, Text]
    qrels: Qrels
    candidates: dict[str, list[str]]
    licence: str


@dataclass(frozen=True)
class QueryAudit:
    """Audit of one query: numbers of documents among those judged.

    Attributes:
        query: Id of the query.
        judged: Number of documents with a label.
        undecided: Number of documents that the judges disagree on.
        released: Number of released positives.
        found: Number of positives according to the judges.
        false_positives: Number of released positives that are negative according to the judges.
        false_negatives: Number of positives according to the judges that were not released.
    """

    query: str
    judged: int
    undecided: int
    released: int
    found: int
    false_positives: int
    false_negatives: int


@dataclass(frozen=True)
class Audit:
    """Audit of all queries, with means over them.

    Attributes:
        queries: Result of each query.
        means: Mean per query of each number, with its 95 % bootstrap interval over queries.
        affected: Share of queries with a false negative.
    """

    queries: list[QueryAudit]
    means: dict[str, tuple[float, float, float]]
    affected: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content."""
        return {
            "means": {name: [rounded(x) for x in estimate] for name, estimate in self.means.items()},
            "queries_with_a_false_negative": round(self.affected, 4),
            "queries": [asdict(query) for query in self.queries],
        }


def read_benchmark(folder: Path) -> Benchmark:
    """Read a retrieval or reranking folder in the Hub layout.

    Raises:
        BuildError: The benchmark has another type.
        FolderError: Rows are unusable; each is listed with file and line.
    """
    layout = inspect_folder(folder)
    if "qrels" not in layout.tables:
        raise BuildError(f"{folder} is not a retrieval or reranking folder.")
    data = read_retrieval(layout, Problems(folder))
    return Benchmark(
        folder=folder,
        queries={row["id"]: Text(row["id"], row["text"]) for row in data.queries},
        documents={row["id"]: Text(row["id"], row["text"], row["title"]) for row in data.corpus},
        qrels={
            query: {name: int(score) for name, score in row.items() if score > 0}
            for query, row in data.qrels.items()
        },
        candidates=data.top_ranked or {},
        licence=layout.licence or "unknown",
    )


def audit(benchmark: Benchmark, labels: Iterable[Label]) -> Audit:
    """Compare labels with the released qrels, among the documents that were judged.

    Args:
        benchmark: The benchmark.
        labels: Labels of pairs of its queries and documents.

    Raises:
        BuildError: A label belongs to another benchmark, or there are no labels.
    """
    by_query: dict[str, dict[str, int | None]] = {}
    for label in labels:
        if label.query_id not in benchmark.queries or label.document_id not in benchmark.documents:
            raise BuildError(
                f"The labels have {label.query_id!r} and {label.document_id!r}, which are not both in "
                f"{benchmark.folder}."
            )
        by_query.setdefault(label.query_id, {})[label.document_id] = label.relevance
    if not by_query:
        raise BuildError("There are no labels to compare with.")
    queries = [
        _compare(query, by_query[query], benchmark.qrels.get(query, {}))
        for query in benchmark.queries
        if query in by_query
    ]
    names = ("released", "found", "false_positives", "false_negatives", "judged", "undecided")
    table = np.array([[getattr(query, name) for name in names] for query in queries], dtype=float)
    means = {
        name: (float(column.mean()), *interval(MeanSample(column)))
        for name, column in zip(names, table.T, strict=True)
    }
    return Audit(queries, means, float((table[:, names.index("false_negatives")] > 0).mean()))


def _compare(query: str, labels: Mapping[str, int | None], released: Mapping[str, int]) -> QueryAudit:
    known = {name for name, relevance in labels.items() if relevance is not None}
    relevant = {name for name in known if labels[name]}
    return QueryAudit(
        query,
        judged=len(known),
        undecided=len(labels) - len(known),
        released=sum(name in released for name in labels),
        found=len(relevant),
        false_positives=sum(name in released for name in known - relevant),
        false_negatives=sum(name not in released for name in relevant),
    )
