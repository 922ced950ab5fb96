"""Scores on a development set while a stage trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentence_transformers.base.evaluation import BaseEvaluator

from mar_st.study.schema import Task
from mar_st.study.tasks import load_task, score

if TYPE_CHECKING:
    from mar_st.schema import Evaluation
    from mar_st.study.tasks import TaskData


class DevEvaluator(BaseEvaluator):
    """Mean score over the queries of a development set, under one name.

    The numbers are those of `mar ablate`, and of mteb on the same folder. Queries and documents go through
    the routes of the model, if it has any, with its stored prompts.

    Args:
        data: The development set.
    """

    def __init__(self, data: TaskData) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.data = data
        self.primary_metric: str = f"dev_{data.metric}"

    @property
    def description(self) -> str:
        """What is evaluated, for the log."""
        return f"{self.data.task.name} {self.data.metric}"

    def __call__(
        self,
        model: Any,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """The score of a model, `{"dev_METRIC": value}`."""
        del output_path, epoch, steps
        training = model.training
        model.eval()
        try:
            values = score(model, self.data)
        finally:
            model.train(training)
        return {self.primary_metric: float(self.data.scores([values]).per_seed()[0])}

    def get_config_dict(self) -> dict[str, Any]:
        """Settings, for the model card."""
        return {"path": self.data.task.path, "split": self.data.task.split, "metric": self.data.metric}


def dev_evaluator(evaluation: Evaluation) -> DevEvaluator:
    """Evaluator of a recipe's development set.

    Args:
        evaluation: Folder in the Hub layout (retrieval: corpus.jsonl, queries.jsonl, qrels; reranking and STS
            too) or `package:` name, split and metric.

    Raises:
        DataError: A file is missing or broken; the message names file and line.
        StudyError: The metric does not go with the task.
    """
    return DevEvaluator(
        load_task(Task(name="dev", path=evaluation.path, split=evaluation.split, metric=evaluation.metric))
    )
