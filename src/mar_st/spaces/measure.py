"""What a query encoder keeps of its teacher: scores on tasks, agreement of vectors, speed and size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mar_st.errors import MarError
from mar_st.evaluation.statistics import Scores, bootstrap
from mar_st.evaluation.tasks import Task, load_task, score_vectors
from mar_st.export.measure import BATCH_TEXTS, cosines
from mar_st.export.measure import speed as measured_speed
from mar_st.model.describe import count_parameters
from mar_st.modules.layout import saved_chain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.evaluation.tasks import TaskData
    from mar_st.model.mar import MAR
    from mar_st.spaces.space import Space
    from mar_st.teachers import Vectors

#: Maximum documents that are ranked for the overlap of the best ten; more are sampled.
MAX_DOCUMENTS = 50_000

#: Resamples of the bootstrap.
RESAMPLES = 2000

#: Said below every table: the nearer of two encoders to the teacher's vectors may rank worse.
CAUTION = (
    "Cosine and overlap@10 compare vectors and hits with the teacher's on held-out texts; they are no "
    "measure of search"
)


def ranked(
    queries: np.ndarray, corpus: np.ndarray, own: Sequence[int] | None, *, top: int = 10
) -> np.ndarray:
    """Return the rows of the highest inner products for each query, `(queries, top)`, best first.

    Args:
        queries: Query vectors, `(n, dim)`.
        corpus: Document vectors, `(documents, dim)`.
        own: For each query, the corpus row to exclude because it is the query itself; -1: none.
        top: Rows per query; fewer if the corpus is smaller.
    """
    scores = queries @ corpus.T
    if own is not None:
        rows = np.asarray(own)
        known = np.flatnonzero(rows >= 0)
        scores[known, rows[known]] = -np.inf
        top = min(top, len(corpus) - 1)
    return np.argsort(-scores, axis=1, kind="stable")[:, :top]


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
        seed: Seed of the sample of a large corpus.

    Returns:
        Mean cosine by role (`cosine_query`, `cosine_document`), `overlap_at_10` (share of the teacher's ten
        best documents among the student's) with its 95 % interval over the queries, and the counts.
    """
    report: dict[str, Any] = {}
    for role, vectors in encoded.items():
        report[f"cosine_{role}"] = round(float(cosines(vectors, taught[role]).mean()), 4)
        report[f"held_out_{role}"] = len(vectors)
    role = "query" if "query" in encoded else "document"
    if corpus is None or len(corpus) < 2 or role not in encoded:
        return report
    if len(corpus) > MAX_DOCUMENTS:
        kept = np.sort(np.random.default_rng(seed).choice(len(corpus), MAX_DOCUMENTS, replace=False))
        places = {int(row): place for place, row in enumerate(kept)}
        own = [places.get(int(row), -1) for row in own]
        corpus = corpus.select(kept)
    documents = np.asarray(corpus)
    excluded = own if role == "document" else None
    tops = [ranked(vectors[role], documents, excluded) for vectors in (encoded, taught)]
    shares = np.array([len(set(one) & set(other)) / len(other) for one, other in zip(*tops, strict=True)])
    drawn = bootstrap(Scores(shares[None]), resamples=RESAMPLES, seed=[seed])
    report["overlap_at_10"] = round(float(shares.mean()), 4)
    report["overlap_interval"] = _interval(drawn)
    report["overlap_queries"] = "held-out queries" if role == "query" else "held-out documents"
    report["overlap_corpus"] = len(documents)
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


def task_scores(model: MAR, tasks: Sequence[TaskData], space: Space, seed: int) -> dict[str, Any]:
    """Return an encoder's score and retention by task; the teacher's store keeps the vectors of its texts.

    Returns:
        For each task name: `metric`, `queries`, `score`, `teacher`, `retention` (score over that of the
        teacher's queries on the same documents) and its 95 % `interval` (the same resampled queries for
        both); None where the teacher finds nothing.
    """
    report: dict[str, Any] = {}
    for number, task in enumerate(tasks):
        documents = torch.from_numpy(np.asarray(space.documents(list(task.corpus.values()))))
        queries = list(task.queries.values())
        own = _scores(task, model.encode_queries(queries), documents)
        teacher = _scores(task, np.asarray(space.vectors(queries, "query")), documents)
        drawn, taught = (
            bootstrap(scores, resamples=RESAMPLES, seed=[seed, number]) for scores in (own, teacher)
        )
        score, best = float(own.per_seed()[0]), float(teacher.per_seed()[0])
        usable = taught > 0
        report[task.task.name] = {
            "metric": task.metric,
            "queries": len(queries),
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
    """Return `p50_ms` of one query and queries `per_second` of a MAR's query route on this processor."""
    many = [texts[number % len(texts)] for number in range(8 * BATCH_TEXTS)]
    return measured_speed(lambda block: model.encode_queries(block, show_progress_bar=False), many)


def sizes(folder: Path, route: str) -> dict[str, float]:
    """Return the values in the weights of a saved query encoder, and its MiB on disk."""
    folders = {part.path for part in saved_chain(folder, route)}
    files = [file for path in folders for file in path.rglob("*") if file.is_file()]
    return {
        "parameters": sum(map(count_parameters, folders)),
        "mib": round(sum(file.stat().st_size for file in files) / 2**20, 2),
    }


def table_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the measurements of all query encoders as lines of text: scores on the tasks first."""
    rows = report["rungs"]
    lines, notes = [], []
    for name in next(iter(rows.values()))["tasks"]:
        own = {rung: row["tasks"][name] for rung, row in rows.items()}
        one = next(iter(own.values()))
        lines.append(
            f"{name}: {one['metric']} of {one['queries']} queries; the teacher's is {one['teacher']:.4f}"
        )
        for rung, task in own.items():
            share = "-"
            if task["retention"] is not None:
                low, high = task["interval"]
                share = f"{task['retention']:.1%} of the teacher's [{low:.1%}, {high:.1%}]"
            lines.append(f"{rung:8} {task['score']:.4f}  {share}")
        lines.append("")
    if not lines:
        notes = ["Search was not measured: give a task with --eval."]
    lines.append(
        f"{'rung':8} {'route':14} {'cosine':>7} {'overlap@10':>10} {'p50 ms':>9} {'queries/s':>9} "
        f"{'parameters':>12} {'MiB':>8}"
    )
    for rung, row in rows.items():
        agreed = row["agreement"]
        cosine = agreed.get("cosine_query", agreed.get("cosine_document"))
        figures = (
            "-" if value is None else f"{value:.3f}" for value in (cosine, agreed.get("overlap_at_10"))
        )
        lines.append(
            f"{rung:8} {row['route']:14} {next(figures):>7} {next(figures):>10} {row['p50_ms']:9.3f} "
            f"{row['per_second']:9.0f} {row['parameters']:12,} {row['mib']:8.1f}"
        )
    return [*lines, f"{CAUTION}. Times: {report['method']}.", *notes]
