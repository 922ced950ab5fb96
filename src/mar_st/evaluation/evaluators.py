"""Scores on a development set while a stage trains."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Router

from mar_st.data import locate
from mar_st.errors import MarError
from mar_st.evaluation.tasks import Task, load_task, score

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mar_st.evaluation.tasks import TaskData
    from mar_st.recipes.schema import Evaluation


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

    def __call__(
        self,
        model: Any,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Return the score of a model, `{"dev_METRIC": value}`."""
        del output_path, epoch, steps
        with _evaluating(model):
            values = score(model, self.data)
        return {self.primary_metric: float(self.data.scores([values]).per_seed()[0])}


class TaskEvaluator(BaseEvaluator):
    """Main scores of mteb tasks, as `mteb run` gives them, and their mean.

    Nothing is written into mteb's cache: the model is not finished.

    Args:
        tasks: Names of mteb tasks, those of installed plugins included.

    Raises:
        MarError: mteb is not installed, or has no such task.
    """

    def __init__(self, tasks: Sequence[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tasks = mteb_tasks(tasks)
        self.primary_metric: str = "mteb_mean"

    def __call__(
        self,
        model: Any,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Return the scores of a model, `{"mteb_mean": value, "mteb_TASK": value, ...}`."""
        import mteb  # lazy: mteb

        del output_path, epoch, steps
        with _evaluating(model), _queries_by_default(model):
            results = mteb.evaluate(
                model, self.tasks, cache=None, co2_tracker=False, show_progress_bar=False
            ).task_results
        scores = {f"mteb_{result.task_name}": float(result.get_score()) for result in results}
        return {self.primary_metric: sum(scores.values()) / len(scores), **scores}


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def _queries_by_default(model: Any) -> Iterator[None]:
    """Send texts without a role, such as those of STS, through the query route if a model has no default."""
    routers: list[Any] = [module for module in model.children() if isinstance(module, Router)]
    before = [router.default_route for router in routers]
    for router in routers:
        if router.default_route is None and "query" in router.sub_modules:
            router.default_route = "query"
    try:
        yield
    finally:
        for router, route in zip(routers, before, strict=True):
            router.default_route = route


def mteb_tasks(names: Sequence[str]) -> list[Any]:
    """Return the tasks of mteb by name; their data are read when they are evaluated.

    Raises:
        MarError: mteb is not installed, or has no such task.
    """
    try:
        import mteb  # lazy: mteb
    except ImportError as error:
        raise MarError("evaluation on 'tasks' needs mteb: pip install mteb") from error
    try:
        return list(mteb.get_tasks(tasks=list(names)))
    except (KeyError, ValueError) as error:
        reason = str(error.args[0] if error.args else error)
        raise MarError(
            f"evaluation: mteb has no such task ({reason[:300]}). 'mteb available-tasks' lists them, "
            "those of installed plugins too."
        ) from error


def check_evaluation(evaluation: Evaluation) -> None:
    """Check before any training that the evaluation data exist.

    Raises:
        MarError: The development set does not exist; mteb is not installed, or has no such task.
    """
    if evaluation.path is not None:
        locate(evaluation.path)
    else:
        mteb_tasks(evaluation.tasks or ())


def evaluator_of(evaluation: Evaluation) -> DevEvaluator | TaskEvaluator:
    """Return the evaluator that a recipe asks for; `primary_metric` names the score that decides.

    Args:
        evaluation: Names of mteb tasks; or path, split and metric of a development set: a `package:` name or
            a folder in the Hub layout of a retrieval (corpus.jsonl, queries.jsonl, qrels), reranking or STS
            task.

    Raises:
        MarError: A file is missing or broken, or the metric does not fit the task.
    """
    if evaluation.tasks is not None:
        return TaskEvaluator(evaluation.tasks)
    path, split, metric = str(evaluation.path), evaluation.split, evaluation.metric
    return DevEvaluator(load_task(Task(name="dev", path=path, split=split, metric=metric)))
