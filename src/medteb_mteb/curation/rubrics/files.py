"""Rows of cases, rubrics and answers, in our form and in the published ones.

HealthBench: `prompt_id`, `prompt` (chat messages), `rubrics` (`criterion`, `points`, `tags`). LiveMedBench:
`case_id`, `post_time`, `narrative`, `core_request`, `doctor_advice`, `rubric_items` (`criterion`, `points`).
We write HealthBench's form, with `_id` and `date`.

Sources: HealthBench (arXiv 2505.08775) and its code in openai/simple-evals; LiveMedBench.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.text.values import as_date, as_id, as_number, as_text, writable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from mar_st.data.rows import Row
    from medteb_mteb.curation.synthetic.forms import Language

#: Names of an id, ours first.
IDS = ("_id", "prompt_id", "case_id", "id")
DATES = ("date", "post_time")
#: Prefix of the tag that names a criterion's axis.
AXIS = "axis:"
_CHINESE = re.compile("[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Case:
    """A question and what a physician answered.

    Attributes:
        id: Its id.
        question: The question with what the patient tells before it.
        advice: The physician's answer; empty if unknown.
        date: Day or month when it was asked; empty if unknown.
    """

    id: str
    question: str
    advice: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A statement about an answer that is met or not.

    Attributes:
        text: The statement.
        points: Points of an answer that meets it; negative if it describes a mistake.
        axis: What it is about, such as `completeness`; empty if unknown.
    """

    text: str
    points: float
    axis: str = ""


@dataclass(frozen=True, slots=True)
class Rubric:
    """The criteria for answers to a question.

    Attributes:
        id: Id of the question.
        prompt: The conversation: role and content of each message.
        criteria: The criteria; at least one has positive points.
        date: Day or month when it was asked; empty if unknown.
    """

    id: str
    prompt: tuple[tuple[str, str], ...]
    criteria: tuple[Criterion, ...]
    date: str = ""

    @property
    def question(self) -> str:
        """Return the conversation as one text; a single message as it is."""
        if len(self.prompt) == 1:
            return self.prompt[0][1]
        return "\n\n".join(f"{role}: {content}" for role, content in self.prompt)

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the texts of the criteria."""
        return tuple(one.text for one in self.criteria)

    @property
    def month(self) -> str:
        """Return the month of the date, `YYYY-MM`; empty without one."""
        return self.date[:7]

    def to_json(self) -> dict[str, Any]:
        """Return a row of `rubrics.jsonl`."""
        criteria = [
            {"criterion": one.text, "points": one.points, "tags": [f"{AXIS}{one.axis}"] if one.axis else []}
            for one in self.criteria
        ]
        prompt = [{"role": role, "content": content} for role, content in self.prompt]
        dated = {"date": self.date} if self.date else {}
        return {"_id": self.id, **dated, "prompt": prompt, "rubrics": criteria}


def language_of(text: str) -> Language:
    """Return the language of a prompt about a text: Chinese if it has a Chinese character, else English."""
    return "zh" if _CHINESE.search(text) else "en"


def read_cases(source: Path) -> list[Case]:
    """Return the cases of a source.

    A row has `_id`, `question`, and the physician's `answer`, or a list of `advice`; optionally `narrative`,
    a text or a list, and `date`.

    Raises:
        MarError: Rows are unusable, or there are none.
    """
    seen: set[str] = set()

    def case(row: Row) -> Case:
        values = row.values
        question = _joined(values, "narrative"), _joined(values, "question", "core_request")
        if not question[1]:
            raise MarError("expected question (or core_request), a text.")
        advice = _joined(values, "advice", "doctor_advice", "answer")
        return Case(_new_id(values, seen), "\n".join(filter(None, question)), advice, _date(values))

    return _some(source, read_rows(source, case, table="cases"))


def read_rubrics(source: Path) -> list[Rubric]:
    """Return the rubrics of a source, in our form, HealthBench's, or LiveMedBench's.

    Raises:
        MarError: Rows are unusable, or there are none.
    """
    seen: set[str] = set()

    def rubric(row: Row) -> Rubric:
        values = row.values
        criteria = values.get("rubrics", values.get("rubric_items"))
        if not isinstance(criteria, list):
            raise MarError(
                "expected rubrics (or rubric_items), a list of criterion, points and, optionally, tags."
            )
        read = tuple(map(_criterion, criteria))
        if not any(one.points > 0 for one in read):
            raise MarError("no criterion has positive points, so there is nothing to reach.")
        return Rubric(_new_id(values, seen), _prompt(values), read, _date(values))

    return _some(source, read_rows(source, rubric, table="rubrics"))


def read_answers(sources: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Return the answers of each system by the id of their question; empty answers are left out.

    A row has `_id`, `answer` and, optionally, `system`; default: the name of the file.

    Raises:
        MarError: Rows are unusable, a system has two answers to a question, or there are no answers.
    """
    answers: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def answer(row: Row) -> None:
        identity, text = _id(row.values), row.values.get("answer")
        if text is not None and not isinstance(text, str):
            raise MarError(f"answer must be a text; got {type(text).__name__}.")
        of_system = answers[str(row.values.get("system") or source.stem)]
        if identity in of_system:
            raise MarError(f"the system has two answers to {identity!r}.")
        of_system[identity] = writable(text or "").strip()

    for source in sources:
        for _ in read_rows(source, answer, table="answers"):
            pass
    if not answers:
        raise MarError("There are no answers. Give JSONL with _id and answer.")
    return {system: {name: text for name, text in rows.items() if text} for system, rows in answers.items()}


def _some(source: Path, rows: Iterable[Any]) -> list[Any]:
    found = list(rows)
    if not found:
        raise MarError(f"{source} holds no rows.")
    return found


def _id(values: dict[str, Any]) -> str:
    identity = next((as_id(values[name]) for name in IDS if name in values), None)
    if identity is None:
        raise MarError(f"expected an id: {', '.join(IDS[:-1])} or {IDS[-1]}.")
    return identity


def _new_id(values: dict[str, Any], seen: set[str]) -> str:
    identity = _id(values)
    if identity in seen:
        raise MarError(f"the id {identity!r} is taken by an earlier row.")
    seen.add(identity)
    return identity


def _date(values: dict[str, Any]) -> str:
    date = next((values[name] for name in DATES if values.get(name)), "")
    day = as_date(str(date)[:10].replace("/", "-")) if date else ""  # a time may follow
    if day is None:
        raise MarError(f"expected a date like 2026-01-31 or 2026-01; got {date!r}.")
    return day


def _joined(values: dict[str, Any], *names: str) -> str:
    """Return a text, or the texts of a list on a line each, of the first field that is there."""
    value = next((values[name] for name in names if values.get(name)), "")
    parts: Sequence[Any] = value if isinstance(value, list) else [value] if value else []
    if not all(as_text(part) for part in parts):
        raise MarError(f"{' or '.join(names)} must be a text, or a list of texts.")
    return "\n".join(part.strip() for part in parts)


def _prompt(values: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    messages = values.get("prompt")
    if messages is None:
        text = "\n".join(filter(None, (_joined(values, "narrative"), _joined(values, "core_request"))))
        messages = [{"role": "user", "content": text}]
    try:
        prompt = tuple((str(one["role"]), writable(one["content"]).strip()) for one in messages)
    except (TypeError, KeyError, AttributeError):
        prompt = ()
    if not any(content for _, content in prompt):
        raise MarError("expected prompt, a list of messages with role and content (or core_request).")
    return prompt


def _criterion(value: Any) -> Criterion:
    text = as_text(value.get("criterion")) if isinstance(value, dict) else None
    points = as_number(value.get("points")) if isinstance(value, dict) else None
    if text is None or not points:
        raise MarError("a criterion is a text with points that are not 0; got " + str(value)[:100])
    tags = value.get("tags")
    names = [str(tag) for tag in tags] if isinstance(tags, list) else []
    axis = next((tag.removeprefix(AXIS) for tag in names if tag.startswith(AXIS)), "")
    return Criterion(text.strip(), int(points) if points == int(points) else points, axis)
