"""Synthetic tasks: an LLM brainstorms retrieval tasks and writes examples of each, for training.

The folder of a synthesis::

    step.json       identity of the folder: its settings
    tasks.jsonl     the tasks
    triples.jsonl   query, positive, negative, instruction (the task), source, constraints
    dropped.jsonl   dropped tasks and examples, with the reason
    failed.jsonl    prompts without a usable answer, with the reason
    report.json     report of the last run
    manifest.json   written last: counts, digests of the files
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.folder import alone, claim, write_text
from medteb_mteb.curation.files.read import MANIFEST
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm import (
    LLM,
    Cost,
    added,
    answers_path,
    estimate_cost,
    load_llm,
    refuse_unanswered,
)
from medteb_mteb.curation.synthetic.answers import read_example
from medteb_mteb.curation.synthetic.asking import Asking, portions
from medteb_mteb.curation.synthetic.brainstorm import Tasks, brainstorm, first_calls, most_calls, read_tasks
from medteb_mteb.curation.synthetic.grid import draw
from medteb_mteb.curation.synthetic.report import SynthesisReport, SynthesisRows, finished, reported, written
from medteb_mteb.curation.synthetic.task_checks import ExampleCheck
from medteb_mteb.curation.synthetic.task_prompts import (
    EXAMPLE_TASKS,
    brainstorm_version,
    example_prompt,
    example_version,
)
from medteb_mteb.curation.training.leaks import HeldOut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from medteb_mteb.curation.llm import Prompt
    from medteb_mteb.curation.synthetic.grid import Constraints
    from medteb_mteb.curation.synthetic.languages import Language

__all__ = ["TASKS_FILE", "TRIPLES_FILE", "TaskSettings", "estimate_tasks", "synthesize_tasks"]

TASKS_FILE = "tasks.jsonl"
TRIPLES_FILE = "triples.jsonl"
STEP_NAME = "synthesize-tasks"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class TaskSettings:
    """Settings of synthetic tasks.

    Attributes:
        language: Language of tasks and examples.
        tasks: Number of tasks to brainstorm.
        pairs_per_task: Number of examples of each task.
        tasks_from: File of tasks, one per line, instead of a brainstorm.
        seed: Seed for the constraints and for the medical fields that brainstorms focus on.
        source: Value of `source` in the rows.
    """

    language: Language = "zh"
    tasks: int = 20
    pairs_per_task: int = 10
    tasks_from: str | Path | None = None
    seed: int = 42
    source: str = "synthetic-tasks"

    def __post_init__(self) -> None:
        if self.tasks < 1 or self.pairs_per_task < 1:
            raise BuildError(
                f"At least one task and one example of each are needed; got {self.tasks} and "
                f"{self.pairs_per_task}."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the settings as stored in the manifest; a file of tasks is represented by a digest."""
        origin: dict[str, Any] = {"tasks": self.tasks}
        if self.tasks_from is not None:
            lines = "\n".join(read_tasks(self.tasks_from).kept)
            origin = {"tasks_from": hashlib.sha256(lines.encode()).hexdigest()}
        return {
            "language": self.language,
            **origin,
            "pairs_per_task": self.pairs_per_task,
            "seed": self.seed,
            "source": self.source,
        }


def synthesize_tasks(
    out: str | Path,
    llm: LLM | str | Path,
    settings: TaskSettings | None = None,
    *,
    held_out: HeldOut | None = None,
    journal: str | Path | None = None,
    retry_failed: bool = False,
    show_progress: bool = True,
) -> SynthesisReport:
    """Have an LLM brainstorm tasks and write examples of each, check them, and write the triples.

    The only one of your texts that is sent is the file of tasks, if given. Answers are kept in the journal
    and never paid for twice; with more examples per task, only the added ones cost. When all answers are in
    the journal, the folder is written from it, with the same bytes after any number of interruptions.

    Args:
        out: Folder to write.
        llm: The LLM, or its YAML file.
        settings: Settings of the synthesis.
        held_out: Queries that models will be tested on; near-duplicates of them are dropped.
        journal: The journal, see `answers_path`.
        retry_failed: Ask again for prompts that failed in earlier runs.
        show_progress: Show progress bars.

    Raises:
        BuildError: There is no usable task, the API key is missing, the folder or the journal belongs to
            something else, is in use or cannot be written, or every prompt of the examples failed.
    """
    settings, writer = settings or TaskSettings(), llm if isinstance(llm, LLM) else load_llm(llm)
    folder, path = Path(out), answers_path(out, journal)
    writer.key()
    versions = f"{brainstorm_version(settings.language)} {example_version(settings.language)}"
    identity = {
        "schema_version": SCHEMA_VERSION,
        "step": STEP_NAME,
        "settings": {"llm": writer.settings(versions), **settings.to_json()},
        **({"against": held_out.digest()} if held_out and held_out.texts else {}),
    }
    with alone(folder):
        claim(folder, identity)
        if (folder / MANIFEST).is_file() and not retry_failed:
            return finished(folder, path, TRIPLES_FILE)
        asking = Asking(writer, path, retry_failed=retry_failed, show_progress=show_progress)
        tasks = (
            read_tasks(settings.tasks_from)
            if settings.tasks_from is not None
            else brainstorm(asking, settings.tasks, settings.language, settings.seed)
        )
        rows = SynthesisRows(dropped=tasks.dropped, failed=tasks.failed)
        if not asking.stopped:
            if not tasks.kept:
                raise BuildError(_no_tasks(rows))
            write_text(folder / TASKS_FILE, _lines({"task": task} for task in tasks.kept))
            _examples(tasks, settings, asking, rows)
        rows.keep_away(held_out or HeldOut())
        rows.details = {"tasks": len(tasks.kept), "examples": len(tasks.kept) * settings.pairs_per_task}
        if not asking.stopped:
            written(
                folder,
                TRIPLES_FILE,
                identity,
                rows,
                read=rows.details["examples"],
                files={TASKS_FILE: [{"task": task} for task in tasks.kept]},
            )
        return reported(folder, path, TRIPLES_FILE, rows, asking, _notes(tasks, settings, asking))


def estimate_tasks(
    out: str | Path,
    llm: LLM | str | Path,
    settings: TaskSettings | None = None,
    *,
    journal: str | Path | None = None,
    retry_failed: bool = False,
) -> Cost:
    """Estimate the requests and cost of `synthesize_tasks`; nothing is sent, and no journal is created.

    The tasks are those of the file or of an earlier run into the folder. If there are none yet, sample tasks
    give the lengths of the prompts, and one round of brainstorms is counted; further rounds and repeated
    requests for invalid answers cost extra.

    Raises:
        BuildError: The file of tasks or the journal is unusable.
    """
    settings, writer = settings or TaskSettings(), llm if isinstance(llm, LLM) else load_llm(llm)
    path, known = answers_path(out, journal), Path(out) / TASKS_FILE
    costs = []
    if settings.tasks_from is not None:
        tasks = read_tasks(settings.tasks_from).kept
    else:
        prompts = first_calls(settings.tasks, settings.language, settings.seed)
        version = brainstorm_version(settings.language)
        costs = [estimate_cost(prompts, writer, path, version=version, retry_failed=retry_failed)]
        if known.is_file():
            tasks = [json.loads(line)["task"] for line in known.read_text(encoding="utf-8").splitlines()]
        else:
            names = EXAMPLE_TASKS[settings.language]
            tasks = [f"{names[i % len(names)]} {i}" for i in range(settings.tasks)]
    version = example_version(settings.language)
    for portion in portions(_drawn(tasks, settings)):
        prompts = [prompt for _, _, prompt in portion]
        costs.append(estimate_cost(prompts, writer, path, version=version, retry_failed=retry_failed))
    return added(costs)


def _drawn(tasks: Sequence[str], settings: TaskSettings) -> Iterator[tuple[int, Constraints, Prompt]]:
    """Yield the task's number, the constraints and the prompt of every example."""
    for number, task in enumerate(tasks):
        for i, (constraints, variant) in enumerate(draw(task, settings.pairs_per_task, settings.seed)):
            key = f"t{number}-{i}"
            prompt = example_prompt(key, task, constraints, settings.language, variant=variant)
            yield number, constraints, prompt


def _examples(tasks: Tasks, settings: TaskSettings, asking: Asking, rows: SynthesisRows) -> None:
    """Ask for the examples and check them.

    Raises:
        BuildError: Every prompt failed.
    """
    version = example_version(settings.language)
    checks = [ExampleCheck(task, settings.language) for task in tasks.kept]
    reasons: Counter[str] = Counter()
    for portion in portions(_drawn(tasks.kept, settings)):
        answers, failed = asking([prompt for _, _, prompt in portion], version, read_example, "examples")
        reasons.update(failed.values())
        for number, constraints, prompt in portion:
            task = tasks.kept[number]
            if prompt.key in failed:
                row = {"task": task, "constraints": constraints.to_json(), "reason": failed[prompt.key]}
                rows.failed.append(row)
            if prompt.key not in answers:
                continue
            example = answers[prompt.key]
            row = {
                "query": example.query,
                "positive": example.positive,
                "negative": example.negative,
                "instruction": task,
                "source": settings.source,
                "constraints": constraints.to_json(),
            }
            reason, detail = checks[number](example, constraints)
            if reason:
                rows.drop(row, reason, detail)
            else:
                rows.kept.append(row)
        if asking.stopped:
            return
    refuse_unanswered(len(tasks.kept) * settings.pairs_per_task, reasons)


def _no_tasks(rows: SynthesisRows) -> str:
    reasons = [f"{count} {reason}" for reason, count in rows.reasons().items()]
    reasons += sorted({f"call {row['call']}: {row['reason']}" for row in rows.failed})
    return (
        f"The LLM gave no task that can be used ({', '.join(reasons) or 'empty lists'}). Try another model, "
        "or give your own with --tasks-from."
    )


def _notes(tasks: Tasks, settings: TaskSettings, asking: Asking) -> list[str]:
    if settings.tasks_from is not None or len(tasks.kept) >= settings.tasks or asking.stopped:
        return []
    return [
        f"{len(tasks.kept)} of {settings.tasks} tasks after {most_calls(settings.tasks)} calls: the LLM "
        "repeats itself. A higher temperature or another model finds more."
    ]


def _lines(rows: Iterator[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
