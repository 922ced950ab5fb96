"""Measures a query encoder beside its teacher (scores on tasks, speed, size), and writes its card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mar_st.errors import MarError
from mar_st.evaluation.statistics import Scores, bootstrap
from mar_st.evaluation.tasks import Task, TaskData, load_task, score_vectors
from mar_st.export.measure import BATCH_TEXTS, cosines, speed
from mar_st.model.describe import count_parameters
from mar_st.model.mar import MAR
from mar_st.modules.layout import saved_chain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.recipes.schema import Side
    from mar_st.spaces.space import Space

#: Resamples of the bootstrap.
RESAMPLES = 2000

#: Said below every table: the nearer of two encoders to the teacher's vectors may rank worse.
CAUTION = "Cosine compares vectors with the teacher's on held-out texts; it is no measure of search"


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
        bounds = np.quantile(drawn[usable] / taught[usable], (0.025, 0.975)) if best else ()
        report[task.task.name] = {
            "metric": task.metric,
            "queries": len(queries),
            "score": round(score, 5),
            "teacher": round(best, 5),
            "retention": round(score / best, 4) if best else None,
            "interval": [round(float(bound), 4) for bound in bounds] if best else None,
        }
    return report


def _scores(task: TaskData, queries: np.ndarray, documents: torch.Tensor) -> Scores:
    vectors = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32))
    return task.scores([score_vectors(task, vectors, documents, lambda a, b: a @ b.T)])


def encoders(
    folder: Path,
    routes: Mapping[str, str],
    space: Space,
    tasks: Sequence[TaskData],
    held: Mapping[Side, Sequence[str]],
    *,
    prompts: Mapping[Side, str],
    timed: Sequence[str],
    seed: int,
) -> dict[str, Any]:
    """Return scores, agreement with the teacher, speed and size of query encoders of a folder, by name.

    Args:
        folder: The folder.
        routes: Route of each query encoder.
        space: Their space.
        tasks: Tasks to search on.
        held: Held-out queries and documents, for the mean cosine with the teacher.
        prompts: Prompts of the query encoders before queries and before documents.
        timed: Queries to time.
        seed: Seed of the intervals.
    """
    rows: dict[str, Any] = {}
    for name, of_name in routes.items():
        model = MAR.from_pretrained(folder, routes="query", query=of_name)
        agreement: dict[str, Any] = {}
        for role, texts in held.items():
            if texts:
                own = model.encode(list(texts), task="query", prompt=prompts[role])
                taught = np.asarray(space.vectors(texts, role))
                agreement[f"cosine_{role}"] = round(float(cosines(own, taught).mean()), 4)
                agreement[f"held_out_{role}"] = len(texts)
        row = {"route": of_name, "tasks": task_scores(model, tasks, space, seed), "agreement": agreement}
        texts = [timed[number % len(timed)] for number in range(8 * BATCH_TEXTS)]
        rows[name] = row | speed(model.to("cpu").encode_queries, texts) | sizes(folder, of_name)
    return rows


def method() -> str:
    """Describe how the times of a report were measured."""
    return (
        "sentence-transformers in one process, one encoder after the other: p50 over three rounds of single "
        f"queries after a round that does not count; queries/s in calls of {BATCH_TEXTS}; "
        f"{torch.get_num_threads()} thread(s)"
    )


def sizes(folder: Path, route: str) -> dict[str, float]:
    """Return the values in the weights of a saved query encoder, and its MiB on disk."""
    folders = {part.path for part in saved_chain(folder, route)}
    files = [file for path in folders for file in path.rglob("*") if file.is_file()]
    return {
        "parameters": sum(map(count_parameters, folders)),
        "mib": round(sum(file.stat().st_size for file in files) / 2**20, 2),
    }


def table_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the measurements of all query encoders as a table in lines of text."""
    import pandas as pd  # lazy: pandas

    rows = []
    for rung, row in report["rungs"].items():
        line = {"rung": rung, "route": row["route"]}
        for name, task in row["tasks"].items():
            line[f"{name} {task['metric']}"] = f"{task['score']:.4f}"
            share = "-"
            if task["retention"] is not None:
                low, high = task["interval"]
                share = f"{task['retention']:.1%} [{low:.1%}, {high:.1%}]"
            line[f"of the teacher's {task['teacher']:.4f}"] = share
        line |= {name: f"{row['agreement'][name]:.3f}" for name in row["agreement"] if "cosine" in name}
        line |= {"p50 ms": f"{row['p50_ms']:.3f}", "queries/s": f"{row['per_second']:.0f}"}
        rows.append(line | {"parameters": f"{row['parameters']:,}", "MiB": f"{row['mib']:.1f}"})
    searched = any(row["tasks"] for row in report["rungs"].values())
    notes = [] if searched else ["Search was not measured: give a task with --eval."]
    table = pd.DataFrame(rows).to_string(index=False)
    return [*table.splitlines(), f"{CAUTION}. Times: {report['method']}.", *notes]


def card(
    name: str, teacher: str, manifest: Mapping[str, Any], table: Sequence[str], loading: str, *, whole: bool
) -> str:
    """Return the model card.

    Args:
        name: Name of the model.
        teacher: Name of its teacher.
        manifest: Content of `space.json`.
        table: Lines of the table of query encoders.
        loading: The call that loads the model.
        whole: Whether it can encode documents.
    """
    tag = "asymmetric" if whole else "query-encoder"
    of_full = f"of {manifest['full_dim']} " if manifest["dim"] < manifest["full_dim"] else ""
    documents = "documents = model.encode_document(texts)"
    return "\n".join(
        [
            "---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity",
            f"tags: [mar, {tag}]", "---", "", f"# {name}", "",
            f"A query encoder for the document space of `{teacher}`: {manifest['dim']} "
            f"{of_full}dimensions, compared by {manifest['similarity']}.", "",
            "```python", "from sentence_transformers import SentenceTransformer", "",
            f"model = {loading}  # the folder", "queries = model.encode_query(texts)",
            documents if whole else "# documents: the vectors that are stored already", "```", "",
            "```text", *table, "```", "", "Details: `space.json` and `ladder.json`.", "",
        ]
    )  # fmt: skip
