"""Scores on a development set while a stage trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentence_transformers.base.evaluation import BaseEvaluator

from mar_st.evaluation.tasks import Task, load_task, score

if TYPE_CHECKING:
    from mar_st.recipes.schema import Evaluation


class DevEvaluator(BaseEvaluator):
    """Mean score over the queries of a development set, under one name.

    The numbers are those of `mar ablate`, and of mteb on the same folder. Queries and documents go through
    the routes of the model, if it has any, with its stored prompts.

    Args:
        evaluation: Path, split and metric of a development set: a `package:` name or a folder in the Hub
            layout of a retrieval (corpus.jsonl, queries.jsonl, qrels), reranking or STS task.

    Attributes:
        primary_metric: Name of the score that decides which weights are kept.

    Raises:
        MarError: A file is missing or broken, or the metric does not fit the task.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        path, split, metric = evaluation.path, evaluation.split, evaluation.metric
        self.data = load_task(Task(name="dev", path=path, split=split, metric=metric))
        self.primary_metric: str = f"dev_{self.data.metric}"

    def __call__(
        self,
        model: Any,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Return the score of a model, `{"dev_METRIC": value}`."""
        del output_path, epoch, steps
        training = model.training
        model.eval()
        try:
            values = score(model, self.data)
        finally:
            model.train(training)
        return {self.primary_metric: float(self.data.scores([values]).per_seed()[0])}
