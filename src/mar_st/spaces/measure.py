"""What a query encoder keeps of its teacher: agreement on held-out texts, retention, and its speed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
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
#: Queries that are timed together.
_TIMED_QUERIES = 8 * BATCH_TEXTS


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


def agreement(
    encoded: Mapping[str, np.ndarray],
    taught: Mapping[str, np.ndarray],
    corpus: Vectors | None,
    own: Sequence[int],
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
        report[f"cosine_{role}"] = round(mean_cosine(vectors, taught[role]), 4)
        report[f"held_out_{role}"] = len(vectors)
    role = "query" if "query" in encoded else "document"
    if corpus is None or len(corpus) < 2 or role not in encoded:
        return report
    if len(corpus) > MAX_DOCUMENTS:
        kept = np.sort(np.random.default_rng(seed).choice(len(corpus), MAX_DOCUMENTS, replace=False))
        places = {int(row): place for place, row in enumerate(kept)}
        own = [places.get(int(row), -1) for row in own]
        corpus = corpus.select(kept)
    shares = overlaps(encoded[role], taught[role], corpus, own if role == "document" else None)
    drawn = bootstrap(Scores(shares[None]), resamples=RESAMPLES, seed=[seed])
    report["overlap_at_10"] = round(float(shares.mean()), 4)
    report["overlap_interval"] = _interval(drawn)
    report["overlap_queries"] = "held-out queries" if role == "query" else "held-out documents"
    report["overlap_corpus"] = len(corpus)
    return report


def load_tasks(folders: Sequence[str]) -> list[TaskData]:
    """Load the tasks to measure on: folders in the Hub layout, or names of packaged tasks.

    Raises:
        MarError: The task does not exist, or it is neither retrieval nor reranking.
    """
    tasks: list[TaskData] = []
    for folder in folders:
        name = "".join(c if c.isascii() and c.isalnum() else "-" for c in Path(folder).name.lower())
        data = load_task(Task(name=name.strip("-") or "task", path=folder))
        if data.type == "sts":
            raise MarError(f"--eval takes retrieval and reranking tasks; {folder} holds pairs of texts.")
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
        teacher: Scores of the teacher's vectors of their queries.
        seed: Seed of the bootstrap.
    """

    tasks: list[TaskData]
    documents: list[torch.Tensor]
    teacher: list[Scores]
    seed: int

    @classmethod
    def of(cls, tasks: Sequence[TaskData], space: Space, seed: int) -> JudgedTasks:
        """Ask the teacher for the vectors of all documents and queries; its store keeps them."""
        documents = [torch.from_numpy(np.asarray(space.documents(list(t.corpus.values())))) for t in tasks]
        taught = [np.asarray(space.vectors(list(task.queries.values()), "query")) for task in tasks]
        return cls(list(tasks), documents, list(map(_scores, tasks, taught, documents)), seed)

    def report(self, model: MAR) -> dict[str, Any]:
        """Return an encoder's score and retention by task.

        Returns:
            For each task name: `metric`, `queries`, `score`, `teacher`, `retention` (score over that of the
            teacher's queries on the same documents) and its 95 % `interval` (the same resampled queries for
            both); None where the teacher finds nothing.
        """
        report: dict[str, Any] = {}
        for number, (task, documents, teacher) in enumerate(
            zip(self.tasks, self.documents, self.teacher, strict=True)
        ):
            own = _scores(task, model.encode_queries(list(task.queries.values())), documents)
            drawn, taught = (
                bootstrap(scores, resamples=RESAMPLES, seed=[self.seed, number]) for scores in (own, teacher)
            )
            score, best = float(own.per_seed()[0]), float(teacher.per_seed()[0])
            usable = taught > 0
            report[task.task.name] = {
                "metric": task.metric,
                "queries": len(task.queries),
                "score": round(score, 5),
                "teacher": round(best, 5),
                "retention": round(score / best, 4) if best else None,
                "interval": _interval(drawn[usable] / taught[usable]) if best else None,
            }
        return report


def _scores(task: TaskData, queries: np.ndarray, documents: torch.Tensor) -> Scores:
    vectors = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32))
    return task.scores([score_vectors(task, vectors, documents, lambda a, b: a @ b.T)])


def _interval(drawn: np.ndarray) -> list[float]:
    return [round(float(bound), 4) for bound in np.quantile(drawn, (0.025, 0.975))]


def method() -> str:
    """Describe how the times of a report were measured."""
    return (
        "sentence-transformers in one process, one encoder after the other: p50 over three rounds of single "
        f"queries after a round that does not count; queries/s in calls of {BATCH_TEXTS}; "
        f"{torch.get_num_threads()} thread(s)"
    )


def speed(model: MAR, texts: Sequence[str]) -> dict[str, float]:
    """Measure the times of a query encoder on this processor.

    Args:
        model: A MAR with its query route.
        texts: Queries to time, at least one.

    Returns:
        `p50_ms` of one query, and `per_second`: queries per second in calls of 16.
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
        "per_second": round(_TIMED_QUERIES / (time.perf_counter() - started), 1),
    }


def sizes(model: MAR, folder: Path, route: str) -> dict[str, float]:
    """Return the parameters of a query encoder, vectors of token pairs included, and its MiB on disk."""
    modules = model.route_modules("query")
    parameters = {id(p): p.numel() for module in modules for p in module.parameters()}
    files = [file for path in {part.path for part in saved_chain(folder, route)} for file in path.rglob("*")]
    return {
        "parameters": sum(parameters.values()) + sum(map(count_values, modules)),
        "mib": round(sum(file.stat().st_size for file in files if file.is_file()) / 2**20, 2),
    }


def headline(row: Mapping[str, Any]) -> tuple[str, float | None, list[float] | None]:
    """Return the metric that stands for a rung's quality: name, value and 95 % interval."""
    agreed = row["agreement"]
    for task in row["tasks"].values():
        return task["metric"], task["retention"], task["interval"]
    if "overlap_at_10" in agreed:
        return "overlap@10 with the teacher", agreed["overlap_at_10"], agreed["overlap_interval"]
    return "cosine", agreed.get("cosine_query", agreed.get("cosine_document")), None


def table_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the rungs of a report as lines of text."""
    lines = [
        f"{'rung':8} {'route':14} {'retention':>9} {'95 % interval':>15} {'p50 ms':>9} {'queries/s':>9} "
        f"{'parameters':>12} {'MiB':>8}"
    ]
    label = ""
    for name, row in report["rungs"].items():
        label, value, bounds = headline(row)
        figures = "-" if value is None else f"{value:.4f}"
        spread = "-" if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"
        lines.append(
            f"{name:8} {row['route']:14} {figures:>9} {spread:>15} {row['p50_ms']:9.3f} "
            f"{row['per_second']:9.0f} {row['parameters']:12,} {row['mib']:8.1f}"
        )
    return [*lines, f"retention: {label}. Times: {report['method']}."]


def summary(report: Mapping[str, Any]) -> str:
    """Return the agreement of a student with its teacher as a line of text."""
    names = {"cosine_query": "cosine of queries", "cosine_document": "cosine of documents",
             "overlap_at_10": "overlap@10"}  # fmt: skip
    return ", ".join(f"{text} {report[name]:.3f}" for name, text in names.items() if name in report) or (
        "too few texts to hold some out"
    )
