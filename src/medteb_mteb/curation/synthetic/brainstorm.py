"""The tasks of synthetic examples: from a file, or brainstormed by an LLM."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.synthetic.answers import strings_of
from medteb_mteb.curation.synthetic.task_checks import TaskCheck
from medteb_mteb.curation.synthetic.task_prompts import (
    TASKS_KEY,
    TASKS_PER_CALL,
    brainstorm_prompt,
    brainstorm_version,
)

if TYPE_CHECKING:
    from medteb_mteb.curation.llm import Prompt
    from medteb_mteb.curation.synthetic.asking import Asking
    from medteb_mteb.curation.synthetic.languages import Language

__all__ = ["Tasks", "brainstorm", "first_calls", "most_calls", "read_tasks"]


@dataclass
class Tasks:
    """Task sentences, with dropped ones and failed calls.

    Attributes:
        kept: Task sentences, in the order in which they were found.
        dropped: Rows with `task`, `reason` and sometimes `detail`.
        failed: Rows with `call` and `reason`.
        calls: Number of calls that were answered or failed.
    """

    kept: list[str] = field(default_factory=list)
    dropped: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0


def read_tasks(path: str | Path) -> Tasks:
    """Return the tasks of a text file, one per line; blank lines and repeated tasks are left out.

    Raises:
        BuildError: The file cannot be read, or has no tasks.
    """
    file = Path(path)
    try:
        lines = [" ".join(line.split()) for line in file.read_text(encoding="utf-8-sig").splitlines()]
    except OSError as error:
        raise BuildError(f"{file} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise BuildError(f"{file} is not text in UTF-8; give one task on each line.") from error
    tasks = Tasks()
    seen: set[str] = set()  # looked up once per line, of which there may be many
    for line in filter(None, lines):
        if line in seen:
            tasks.dropped.append({"task": line, "reason": "repeated"})
        else:
            seen.add(line)
            tasks.kept.append(line)
    if not tasks.kept:
        raise BuildError(f"{file} holds no task; give one on each line.")
    return tasks


def first_calls(wanted: int, language: Language, seed: int) -> list[Prompt]:
    """Return the prompts of the first round for this number of tasks."""
    return [brainstorm_prompt(call, language, seed) for call in range(math.ceil(wanted / TASKS_PER_CALL))]


def most_calls(wanted: int) -> int:
    """Return the number of calls after which a brainstorm gives up, in case the LLM repeats itself."""
    return 2 + 3 * math.ceil(wanted / TASKS_PER_CALL)


def brainstorm(asking: Asking, wanted: int, language: Language, seed: int) -> Tasks:
    """Ask for tasks, round by round, until there are enough that differ from one another.

    Args:
        asking: Sends the requests.
        wanted: Number of tasks.
        language: Language of the tasks.
        seed: See `brainstorm_prompt`.

    Returns:
        At most `wanted` tasks; fewer if the LLM only repeats itself or if `asking` has stopped.
    """
    tasks, check = Tasks(), TaskCheck(language)
    version, most = brainstorm_version(language), most_calls(wanted)
    while len(tasks.kept) < wanted and tasks.calls < most:
        missing = math.ceil((wanted - len(tasks.kept)) / TASKS_PER_CALL)
        calls = range(tasks.calls, min(most, tasks.calls + missing))
        prompts = [brainstorm_prompt(call, language, seed) for call in calls]
        answers, failed = asking(prompts, version, strings_of(TASKS_KEY), "tasks")
        for prompt in prompts:
            if prompt.key in failed:
                tasks.failed.append({"call": int(prompt.key), "reason": failed[prompt.key]})
            for task in answers.get(prompt.key, ()):
                reason, detail = check(task) if len(tasks.kept) < wanted else ("not-needed", "")
                if reason:
                    row = {"task": task, "reason": reason}
                    tasks.dropped.append({**row, "detail": detail} if detail else row)
                else:
                    tasks.kept.append(task)
        if asking.stopped:
            break
        tasks.calls = calls.stop
    return tasks
