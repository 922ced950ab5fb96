"""Share of its teacher's quality that a query encoder keeps, on judged queries or on held-out texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mar_st.evaluation.statistics import bootstrap
from mar_st.evaluation.tasks import Task, load_task, score_vectors
from mar_st.spaces.agreement import RESAMPLES
from mar_st.spaces.space import SpaceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.evaluation.statistics import Scores
    from mar_st.evaluation.tasks import TaskData
    from mar_st.model.mar import MAR
    from mar_st.spaces.space import Space

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
            raise SpaceError(f"--eval takes retrieval and reranking tasks; {folder} holds pairs of texts.")
        if data.task.name == _AVERAGE and len(folders) > 1:
            raise SpaceError(
                f"{folder}: the report calls the mean of all tasks 'average'; rename the folder."
            )
        if data.task.name in [other.task.name for other in tasks]:
            raise SpaceError(f"--eval names two tasks {data.task.name!r}; rename one of the folders.")
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
