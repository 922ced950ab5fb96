"""Synthetic tasks: an LLM brainstorms retrieval tasks and writes examples of each, for training.

BMRetriever publishes the requests of its prompts, but not their full wording; these are ours. The first one
shows two example tasks and asks for a list of about 20 in a wide range; the second one asks for an example of
a task, as JSON with three keys under the constraints of the grid.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from mar_st.errors import MarError
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.llm.client import STRINGS_SCHEMA, object_schema, prompt_text
from medteb_mteb.curation.llm.settings import WriterSettings, added
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.step import SEED, Counts, Step
from medteb_mteb.curation.synthetic.checks import (
    EXAMPLE_TASKS,
    PAIR_KEYS,
    ExampleCheck,
    TaskCheck,
    read_example,
    strings_of,
)
from medteb_mteb.curation.synthetic.forms import LANGUAGES, Language
from medteb_mteb.curation.synthetic.grid import LENGTHS, Constraints, described, draw
from medteb_mteb.curation.training.rows import AgainstSettings, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.llm.generate import Generation
    from medteb_mteb.curation.step import Estimate
    from medteb_mteb.curation.synthetic.checks import Example
    from medteb_mteb.curation.synthetic.grid import Constraints

#: Number of tasks requested per call.
TASKS_PER_CALL = 20
#: Fields that a call focuses on; calls with different fields give different tasks even at temperature 0.
_FIELDS = {one: prompt_text(__file__, f"fields-{one}").splitlines() for one in LANGUAGES}
_FIELDS_PER_CALL = 3

_TASKS_SCHEMA = object_schema({"tasks": STRINGS_SCHEMA})
_TASKS = template(__file__, "tasks", system="tasks-system", schema=_TASKS_SCHEMA)
_EXAMPLE_SCHEMA = object_schema({name: {"type": "string"} for name in PAIR_KEYS})
_EXAMPLE = template(__file__, "example", system="example-system", schema=_EXAMPLE_SCHEMA)
#: Tokens of a word (English), and of a character (Chinese, the upper end for today's tokenizers).
_TOKENS_PER_UNIT: dict[Language, float] = {"zh": 1.0, "en": 1.4}
#: Tokens of the keys of an example and the JSON around it.
_OVERHEAD_TOKENS = 40
#: Tokens of a task sentence in an answer.
_TOKENS_PER_TASK = 40


def brainstorm_prompt(call: int, language: Language) -> Prompt:
    """Return the prompt of one call for tasks; calls differ by their fields and by their variant.

    Args:
        call: Number of the call, from 0.
        language: Language of the tasks.
    """
    fields = list(_FIELDS[language])
    random.Random(f"{SEED}\0{call * _FIELDS_PER_CALL // len(fields)}").shuffle(fields)
    start = call * _FIELDS_PER_CALL % len(fields)
    focus = ("、" if language == "zh" else "; ").join(fields[start : start + _FIELDS_PER_CALL])
    first, second = EXAMPLE_TASKS[language]
    shown: dict[str, Any] = {"count": TASKS_PER_CALL, "first": first, "second": second, "fields": focus}
    prompt = _TASKS.prompt(str(call), language, {}, 10 + _TOKENS_PER_TASK * TASKS_PER_CALL, **shown)
    return replace(prompt, variant=str(call))


def example_prompt(
    key: str, task: str, constraints: Constraints, language: Language, *, variant: str
) -> Prompt:
    """Return the prompt for one example of a task.

    Args:
        key: Key of the prompt.
        task: The task sentence.
        constraints: Constraints of the example.
        language: Language of the example.
        variant: Variant of the prompt, to get another example under the same constraints.
    """
    lengths = LENGTHS[language]
    units = 2 * lengths[constraints.num_words][1] + lengths[constraints.query_length][1]
    tokens = _OVERHEAD_TOKENS + round(units * _TOKENS_PER_UNIT[language])
    fields: dict[str, Any] = {**described(constraints, language)}
    prompt = _EXAMPLE.prompt(key, language, {"task": task}, tokens, **fields)
    return replace(prompt, variant=variant)


class TaskSettings(WriterSettings, AgainstSettings):
    """Options of `medteb synthesize-tasks`."""

    language: Language = Field("zh", description="Language of tasks and examples.")
    tasks: int = Field(20, ge=1, description="Number of tasks to brainstorm.")
    pairs_per_task: int = Field(10, ge=1, description="Number of examples of each task.")


def synthesize_tasks(settings: TaskSettings) -> Counts:
    """Have an LLM brainstorm tasks and write examples of each, check them, and write the triples.

    `tasks.jsonl` has the tasks, `triples.jsonl` query, positive, negative and the task as instruction,
    `dropped.jsonl` dropped tasks and examples with the reason, `failed.jsonl` prompts without a usable
    answer. With more examples per task, only the added ones cost.
    """
    rows = Rows()
    tasks, stopped = _brainstorm(settings, rows)
    if stopped:
        return Counts(0, details={"tasks": len(tasks), **rows.details()}, stopped=stopped)
    if not tasks:
        raise MarError(
            f"The LLM gave no task that can be used (dropped: {dict(rows.dropped)}). Try another model."
        )
    write_rows(settings.out / "tasks.jsonl", ({"task": task} for task in tasks))
    drawn = list(_examples(tasks, settings))
    generation = settings.ask([prompt for _, _, prompt in drawn], _EXAMPLE.version, read_example, "examples")
    if not generation.stopped:
        _take(tasks, drawn, generation, settings, rows)
        rows.write(settings.out, "triples", "dropped")
    note = (
        f"{len(tasks)} of {settings.tasks} tasks after {_most_calls(settings.tasks)} calls: the LLM repeats "
        "itself. A higher temperature or another model finds more."
    )
    return Counts(
        rows.number("triples"),
        details={"tasks": len(tasks), **rows.details(), **generation.counts()},
        notes=(note,) * (len(tasks) < settings.tasks),
        stopped=generation.stopped,
        provenance=settings.provenance(_EXAMPLE.version, generation),
    )


def _most_calls(wanted: int) -> int:
    """Return the number of calls after which a brainstorm gives up, in case the LLM repeats itself."""
    return 2 + 3 * math.ceil(wanted / TASKS_PER_CALL)


def _brainstorm(settings: TaskSettings, rows: Rows) -> tuple[list[str], str]:
    """Ask for tasks, round by round, until there are enough that differ from one another.

    Returns:
        At most `settings.tasks` tasks, and why the requests have stopped.
    """
    language, wanted = settings.language, settings.tasks
    tasks: list[str] = []
    check = TaskCheck(language)
    done, most = 0, _most_calls(wanted)
    while len(tasks) < wanted and done < most:
        calls = range(done, min(most, done + math.ceil((wanted - len(tasks)) / TASKS_PER_CALL)))
        prompts = [brainstorm_prompt(call, language) for call in calls]
        generation = settings.ask(prompts, _TASKS.version, strings_of("tasks"), "tasks")
        if generation.stopped:
            return tasks, generation.stopped
        for prompt in prompts:
            if prompt.key in generation.failed:
                rows.add("failed", {"call": int(prompt.key), "reason": generation.failed[prompt.key]})
            for task in generation.answers.get(prompt.key, ()):
                reason, detail = check(task) if len(tasks) < wanted else ("not-needed", "")
                if reason:
                    rows.drop({"task": task}, reason, detail)
                else:
                    tasks.append(task)
        done = calls.stop
    return tasks, ""


def _examples(tasks: Sequence[str], settings: TaskSettings) -> Iterator[tuple[int, Constraints, Prompt]]:
    """Yield the task's number, the constraints and the prompt of every example."""
    for number, task in enumerate(tasks):
        for i, (constraints, variant) in enumerate(draw(task, settings.pairs_per_task)):
            prompt = example_prompt(f"t{number}-{i}", task, constraints, settings.language, variant=variant)
            yield number, constraints, prompt


def _take(
    tasks: Sequence[str],
    drawn: Sequence[tuple[int, Constraints, Prompt]],
    generation: Generation[Example],
    settings: TaskSettings,
    rows: Rows,
) -> None:
    """Check the examples and add them to `rows`."""
    checks = [ExampleCheck(task, settings.language) for task in tasks]
    for number, constraints, prompt in drawn:
        row: dict[str, Any] = {"instruction": tasks[number], "constraints": constraints._asdict()}
        example = generation.answers.get(prompt.key)
        if example is None:
            rows.add("failed", {**row, "reason": generation.failed[prompt.key]})
            continue
        row = {**example._asdict(), **row, "source": "synthetic-tasks"}
        reason, detail = checks[number](example, constraints)
        if reason:
            rows.drop(row, reason, detail)
        else:
            rows.add("triples", row)
    rows.drop_leaks("triples", settings.held_out())


def _estimate(settings: TaskSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate the requests: a round of brainstorms, and every example."""
    del sizes
    calls, rows = math.ceil(settings.tasks / TASKS_PER_CALL), settings.tasks * settings.pairs_per_task
    asked = settings.estimate(brainstorm_prompt(0, settings.language), calls, 0)
    _, _, like = next(_examples(EXAMPLE_TASKS[settings.language], settings))
    return added([asked, settings.estimate(like, rows, rows)], rows)


SYNTHESIZE_TASKS = Step(
    "synthesize-tasks",
    TaskSettings,
    synthesize_tasks,
    "triples",
    estimate=_estimate,
    result_file="triples.jsonl",
    trains=True,
    version=f"{_TASKS.version} {_EXAMPLE.version}",
)
