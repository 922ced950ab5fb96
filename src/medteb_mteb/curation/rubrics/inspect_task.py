"""Rubrics as a task of Inspect (`inspect-ai`), whose runner, models and logs then take the place of `answer`.

    inspect eval medteb_mteb/rubrics -T rubrics=FILE -T grader=GRADER.yaml --model MODEL

The extra is `medteb[inspect]`. Inspect imports this module for its decorators, nothing else does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, metric, scorer
from inspect_ai.solver import generate
from pydantic import TypeAdapter

from mar_st.errors import MarError
from mar_st.options import read_yaml
from medteb_mteb.curation.llm.settings import PrivateSettings
from medteb_mteb.curation.rubrics.files import Message, Rubric, read_rubrics
from medteb_mteb.curation.rubrics.grade import MEAN, PER_CASE, ratio, variants
from medteb_mteb.curation.rubrics.graders import Grader, Item

if TYPE_CHECKING:
    from inspect_ai.scorer import Target
    from inspect_ai.solver import TaskState

_MESSAGES = {"user": ChatMessageUser, "assistant": ChatMessageAssistant, "system": ChatMessageSystem}


@task(name="rubrics")
def rubrics_task(rubrics: str, grader: str, out: str = "graded", already_anonymous: bool = False) -> Task:
    """Return the task: the model answers the conversations of rubrics, and a grader scores the answers.

    Args:
        rubrics: Rubrics, as for `medteb grade`.
        grader: YAML file of the grader.
        out: A folder; the journal of an LLM's answers is beside it.
        already_anonymous: Also send texts that were not anonymised: they hold no personal data.

    Raises:
        MarError: A file is missing or unusable, or the texts were not anonymised.
    """
    PrivateSettings(out=Path(out), already_anonymous=already_anonymous).refuse_raw(Path(rubrics))
    found = {one.id: one for one in read_rubrics(Path(rubrics))}
    samples = [Sample(id=one.id, input=[_message(some) for some in one.messages]) for one in found.values()]
    chosen = TypeAdapter(Grader).validate_python(read_yaml(Path(grader)))
    return Task(MemoryDataset(samples), solver=generate(), scorer=rubric_scorer(found, chosen, Path(out)))


def _message(one: Message) -> ChatMessage:
    return _MESSAGES.get(one.role, ChatMessageUser)(content=one.content)


@metric(name=PER_CASE)
def per_case() -> Metric:
    """Return the metric `clipped per case`."""
    return _metric(PER_CASE)


@metric(name=MEAN)
def clipped_mean() -> Metric:
    """Return the metric `clipped mean`."""
    return _metric(MEAN)


def _metric(name: str) -> Metric:
    def variant(scores: list[SampleScore]) -> float:
        ratios = np.array([one.score.as_float() for one in scores])
        known = ratios[~np.isnan(ratios)]
        return variants(known)[name][0] if len(known) else float("nan")

    return variant


@scorer(name="rubric", metrics=[per_case(), clipped_mean()])
def rubric_scorer(rubrics: dict[str, Rubric], grader: Any, out: Path) -> Scorer:
    """Return a scorer whose value is the ratio of an answer, see `scores`."""
    one_at_a_time = asyncio.Lock()  # the journal has one writer

    async def score(state: TaskState, target: Target) -> Score:
        del target
        rubric, answer = rubrics[str(state.sample_id)], state.output.completion.strip()
        if not answer:
            return Score(value=0.0, answer=answer, explanation="missing")
        item = Item(rubric.id, rubric.question, answer, rubric.texts)
        async with one_at_a_time:
            graded = await asyncio.to_thread(grader.grade, [item], out)
        if graded.stopped:
            raise MarError(f"{grader.name}: {graded.stopped}.")
        verdicts = graded.verdicts[item.key]
        told = {text: verdict._asdict() for text, verdict in zip(rubric.texts, verdicts, strict=True)}
        value = ratio(zip(rubric.criteria, (one.met for one in verdicts), strict=True))
        return Score(value=value, answer=answer, metadata=told)

    return score
