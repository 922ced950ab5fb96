"""What a query encoder keeps of its teacher: agreement on held-out texts, retention, and its speed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.evaluation.statistics import Scores, bootstrap
from mar_st.evaluation.tasks import Task, load_task, score_vectors
from mar_st.export.measure import BATCH_TEXTS, TIMED_TEXTS, timings
from mar_st.modules.bigrams import count_values
from mar_st.modules.layout import saved_chain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.evaluation.tasks import TaskData
    from mar_st.model.mar import MAR
    from mar_st.spaces.space import Space
    from mar_st.teachers import Vectors

#: Maximum documents that are ranked.
MAX_DOCUMENTS = 100_000
#: Rows of the corpus that are scored at a time.
BLOCK = 8192
#: Resamples of the bootstrap.
RESAMPLES = 2000


def mean_cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the mean cosine of two vectors per text, both arrays `(n, dim)`."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(np.mean((one * other).sum(axis=1) / np.maximum(lengths, 1e-12)))


def ranked(queries: np.ndarray, corpus: Vectors, own: Sequence[int] | None, *, top: int = 10) -> np.ndarray:
    """Return the rows of the highest inner products for each query, `(queries, top)`, best first.

    Args:
        queries: Query vectors, `(n, dim)`.
        corpus: Document vectors, read block by block.
        own: For each query, the corpus row to exclude because it is the query itself; -1: none.
        top: Rows per query; fewer if the corpus is smaller.
    """
    excluded = np.full(len(queries), -1) if own is None else np.asarray(own)
    top = min(top, len(corpus) - (own is not None))
    best = np.empty((len(queries), 0), dtype=np.float32)
    rows = np.empty((len(queries), 0), dtype=np.int64)
    for start in tqdm(range(0, len(corpus), BLOCK), desc="ranking", unit="blocks", disable=None, leave=False):
        scores = queries @ corpus[start : start + BLOCK].T
        here = np.arange(start, start + scores.shape[1])
        scores[excluded[:, None] == here[None]] = -np.inf
        best = np.concatenate([best, scores], axis=1)
        rows = np.concatenate([rows, np.broadcast_to(here, scores.shape)], axis=1)
        # Stable, so that the first of equally scored documents wins, whatever the block size.
        order = np.argsort(-best, axis=1, kind="stable")[:, :top]
        best, rows = np.take_along_axis(best, order, axis=1), np.take_along_axis(rows, order, axis=1)
    return rows


def overlaps(
    students: np.ndarray, teachers: np.ndarray, corpus: Vectors, own: Sequence[int] | None, *, top: int = 10
) -> np.ndarray:
    """Return the share of the teacher's `top` documents in the student's `top`, `(queries,)` float64."""
    first, second = (ranked(vectors, corpus, own, top=top) for vectors in (students, teachers))
    return np.array([len(set(a) & set(b)) / len(b) for a, b in zip(first, second, strict=True)])


def interval(values: np.ndarray, *, seed: int) -> list[float]:
    """Return the 95 % bootstrap interval of a mean over queries."""
    drawn = bootstrap(Scores(values[None]), resamples=RESAMPLES, seed=[seed])
    return [round(float(bound), 4) for bound in np.quantile(drawn, (0.025, 0.975))]


def agreement(
    encoded: dict[str, np.ndarray],
    taught: dict[str, np.ndarray],
    corpus: Vectors | None,
    own: Sequence[int] | None,
    *,
    seed: int,
) -> dict[str, Any]:
    """Measure the agreement on held-out texts.

    Args:
        encoded: The student's vectors of held-out texts by role (`query`, `document`), `(n, dim)` each.
        taught: The teacher's vectors of the same texts.
        corpus: Vectors of the documents to retrieve from; `None` leaves retrieval out.
        own: Corpus rows of the held-out documents; these are the queries if there are no others.
        seed: Seed of the sample of a corpus of more than 100,000 documents.

    Returns:
        Mean cosine by role (`cosine_query`, `cosine_document`), `overlap_at_10` with its 95 %
        interval over the queries, and the counts.
    """
    report: dict[str, Any] = {}
    for role, vectors in encoded.items():
        if len(vectors):
            report[f"cosine_{role}"] = round(mean_cosine(vectors, taught[role]), 4)
            report[f"held_out_{role}"] = len(vectors)
    if corpus is None or len(corpus) < 2:
        return report
    role = "query" if len(encoded.get("query", ())) else "document"
    if len(corpus) > MAX_DOCUMENTS:
        kept = np.sort(np.random.default_rng(seed).choice(len(corpus), MAX_DOCUMENTS, replace=False))
        places = {int(row): place for place, row in enumerate(kept)}
        own = [places.get(int(row), -1) for row in own or ()]
        corpus = corpus.select(kept)
    if len(encoded.get(role, ())):
        rows = own if role == "document" else None
        shares = overlaps(encoded[role], taught[role], corpus, rows)
        report["overlap_at_10"] = round(float(shares.mean()), 4)
        report["overlap_interval"] = interval(shares, seed=seed)
        report["overlap_queries"] = "held-out queries" if role == "query" else "held-out documents"
        report["overlap_corpus"] = len(corpus)
    return report


_AVERAGE = "average"


def load_tasks(folders: Sequence[str], split: str) -> list[TaskData]:
    """Load the tasks to measure on.

    Args:
        folders: Folders in the Hub layout (corpus, queries, qrels), or names of packaged tasks.
        split: Split of their qrels.

    Raises:
        MarError: The task does not exist, or it is neither retrieval nor reranking.
    """
    tasks: list[TaskData] = []
    for folder in folders:
        name = "".join(c if c.isascii() and c.isalnum() else "-" for c in Path(folder).name.lower())
        data = load_task(Task(name=name.strip("-") or "task", path=folder, split=split))
        if data.type == "sts":
            raise MarError(f"--eval takes retrieval and reranking tasks; {folder} holds pairs of texts.")
        if data.task.name == _AVERAGE and len(folders) > 1:
            raise MarError(f"{folder}: the report calls the mean of all tasks 'average'; rename the folder.")
        if data.task.name in [other.task.name for other in tasks]:
            raise MarError(f"--eval names two tasks {data.task.name!r}; rename one of the folders.")
        tasks.append(data)
    return tasks


@dataclass
class JudgedTasks:
    """Tasks with the vectors of their documents, and the scores of the teacher's own query vectors.

    Attributes:
        tasks: The tasks.
        documents: Vectors of their documents, `(documents, dim)` each.
        taught: The teacher's vectors of their queries, `(queries, dim)` each.
        teacher: Scores of the teacher's vectors.
        seed: Seed of the bootstrap.
    """

    tasks: list[TaskData]
    documents: list[torch.Tensor]
    taught: list[np.ndarray]
    teacher: list[Scores]
    seed: int

    @classmethod
    def of(cls, tasks: Sequence[TaskData], space: Space, seed: int) -> JudgedTasks:
        """Ask the teacher for the vectors of all documents and queries; its store keeps them."""
        documents = [torch.from_numpy(np.asarray(space.documents(list(t.corpus.values())))) for t in tasks]
        taught = [np.asarray(space.vectors(list(task.queries.values()), "query")) for task in tasks]
        scores = [
            _scores(task, vectors, corpus)
            for task, vectors, corpus in zip(tasks, taught, documents, strict=True)
        ]
        return cls(list(tasks), documents, taught, scores, seed)

    def queries(self, model: MAR) -> list[np.ndarray]:
        """Return an encoder's vectors of the queries of each task, `(queries, dim)`."""
        return [model.encode_queries(list(task.queries.values())) for task in self.tasks]

    def report(self, queries: Sequence[np.ndarray]) -> dict[str, Any]:
        """Return an encoder's scores and retention, by task and on average.

        Args:
            queries: Vectors that `queries` returned for the model.

        Returns:
            For each task name, and `average` if there are several: `metric`, `score`, `teacher`,
            `retention` (score over that of the teacher's queries on the same documents), `interval` (95 %,
            the same resampled queries for both), `queries`.
        """
        own = [
            _scores(task, vectors, corpus)
            for task, vectors, corpus in zip(self.tasks, queries, self.documents, strict=True)
        ]
        report: dict[str, Any] = {}
        drawn, taught = [], []
        for number, (task, scores, teacher) in enumerate(zip(self.tasks, own, self.teacher, strict=True)):
            drawn.append(self._drawn(scores, number))
            taught.append(self._drawn(teacher, number))
            report[task.task.name] = {
                "metric": task.metric,
                "queries": len(task.queries),
                **_ratio(_mean([scores]), _mean([teacher]), drawn[-1], taught[-1]),
            }
        if len(self.tasks) > 1:
            report[_AVERAGE] = {
                "metric": ", ".join(dict.fromkeys(task.metric for task in self.tasks)),
                "queries": sum(len(task.queries) for task in self.tasks),
                **_ratio(_mean(own), _mean(self.teacher), np.mean(drawn, axis=0), np.mean(taught, axis=0)),
            }
        return report

    def _drawn(self, scores: Scores, number: int) -> np.ndarray:
        """Return means over resampled queries, which are the same for every encoder."""
        return bootstrap(scores, resamples=RESAMPLES, seed=[self.seed, number])


def _scores(task: TaskData, queries: np.ndarray, documents: torch.Tensor) -> Scores:
    vectors = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32))
    return task.scores([score_vectors(task, vectors, documents, lambda a, b: a @ b.T)])


def _mean(scores: Sequence[Scores]) -> float:
    return float(np.mean([one.per_seed()[0] for one in scores]))


def _ratio(score: float, teacher: float, drawn: np.ndarray, taught: np.ndarray) -> dict[str, Any]:
    """Return the retention of a score, with its interval from scores of the same resampled queries."""
    usable = taught > 0
    report: dict[str, Any] = {"score": round(score, 5), "teacher": round(teacher, 5)}
    if not teacher or not usable.any():  # the teacher finds nothing, so there is nothing to keep
        return report | {"retention": None, "interval": None}
    bounds = np.quantile(drawn[usable] / taught[usable], (0.025, 0.975))
    return report | {
        "retention": round(score / teacher, 4),
        "interval": [round(float(bound), 4) for bound in bounds],
    }


#: How the times are taken; goes into the report.
TIMING_METHOD = (
    "sentence-transformers in one process, one encoder after the other: p50 over three rounds of single "
    "queries after a round that does not count; queries/s in calls of {together}; {threads} thread(s)"
)

#: Queries that are timed together.
_TIMED_QUERIES = 8 * BATCH_TEXTS


def method() -> str:
    """Describe how the times of a report were measured."""
    return TIMING_METHOD.format(together=BATCH_TEXTS, threads=torch.get_num_threads())


def speed(model: MAR, texts: Sequence[str]) -> dict[str, float]:
    """Measure the times of a query encoder on this processor.

    Args:
        model: A MAR with its query route.
        texts: Queries to time, at least one.

    Returns:
        `p50_ms` and `p99_ms` of one query, and `per_second`: queries per second in calls of 16.
    """

    def encode(block: Sequence[str]) -> np.ndarray:
        return model.encode_queries(block, show_progress_bar=False)

    seconds = timings(encode, list(texts)[:TIMED_TEXTS])
    many = [texts[number % len(texts)] for number in range(_TIMED_QUERIES)]
    blocks = [many[start : start + BATCH_TEXTS] for start in range(0, _TIMED_QUERIES, BATCH_TEXTS)]
    for block in blocks[:2]:
        encode(block)
    started = time.perf_counter()
    for block in blocks:
        encode(block)
    return {
        "p50_ms": round(float(np.median(seconds)) * 1e3, 3),
        "p99_ms": round(float(np.quantile(seconds, 0.99)) * 1e3, 3),
        "per_second": round(_TIMED_QUERIES / (time.perf_counter() - started), 1),
    }


def parameters(model: MAR) -> dict[str, int]:
    """Count the parameters of a query encoder, and those that are not embeddings.

    Vectors of token pairs count as embeddings.
    """
    parts = [part for module in model.route_modules("query") for part in module.modules()]
    every = {id(p): p.numel() for part in parts for p in part.parameters(recurse=False)}
    tables = (nn.Embedding, nn.EmbeddingBag)
    embedded = {
        id(p): p.numel() for part in parts if isinstance(part, tables) for p in part.parameters(recurse=False)
    }
    paired = sum(count_values(module) for module in model.route_modules("query"))
    total = sum(every.values())
    return {
        "parameters": total + paired,
        "parameters_without_embeddings": total - sum(embedded.values()),
    }


def mebibytes(folder: Path, route: str) -> float:
    """Return the size of the files of a saved query encoder in MiB."""
    parts = {part.path for part in saved_chain(folder, route)}
    size = sum(file.stat().st_size for path in parts for file in path.rglob("*") if file.is_file())
    return round(size / 2**20, 2)


def headline(row: Mapping[str, Any]) -> tuple[str, float | None, list[float] | None]:
    """Return the metric that stands for a rung's quality: name, value and 95 % interval."""
    tasks = row.get("tasks") or {}
    if tasks:
        best = tasks.get("average") or next(iter(tasks.values()))
        return f"retention of {best['metric']}", best["retention"], best["interval"]
    agreed = row["agreement"]
    for name, label in (("overlap_at_10", "overlap@10 with the teacher"), ("cosine_query", "cosine"),
                        ("cosine_document", "cosine")):  # fmt: skip
        if name in agreed:
            return label, agreed[name], agreed.get("overlap_interval") if "overlap" in name else None
    return "retention", None, None


def table_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the rungs of a report as lines of text."""
    rows = report["rungs"]
    label = next((headline(row)[0] for row in rows.values()), "retention")
    lines = [
        f"{'rung':8} {'route':14} {'retention':>9} {'95 % interval':>15} {'p50 ms':>9} {'queries/s':>9} "
        f"{'parameters':>12} {'no embed.':>12} {'MiB':>8}"
    ]
    for name, row in rows.items():
        _, value, bounds = headline(row)
        figures = "-" if value is None else f"{value:.4f}"
        spread = "-" if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"
        lines.append(
            f"{name:8} {row['route']:14} {figures:>9} {spread:>15} {row['p50_ms']:9.3f} "
            f"{row['per_second']:9.0f} {row['parameters']:12,} {row['parameters_without_embeddings']:12,} "
            f"{row['mib']:8.1f}"
        )
    lines.append(f"retention: {label.removeprefix('retention of ')}. Times: {report['method']}.")
    return lines


def summary(report: Mapping[str, Any]) -> str:
    """Return the agreement of a student with its teacher as a line of text."""
    names = {"cosine_query": "cosine of queries", "cosine_document": "cosine of documents",
             "overlap_at_10": "overlap@10"}  # fmt: skip
    return ", ".join(f"{text} {report[name]:.3f}" for name, text in names.items() if name in report) or (
        "too few texts to hold some out"
    )
