"""Rows of cases, rubrics and answers, in our form and in the published ones.

HealthBench: `prompt_id`, `prompt` (chat messages), `rubrics` (`criterion`, `points`, `tags`). LiveMedBench:
`case_id`, `post_time`, `narrative`, `core_request`, `doctor_advice`, `rubric_items` (`criterion`, `points`).
We write HealthBench's form, with `_id` and `date`.

Sources: HealthBench (arXiv 2505.08775) and its code in openai/simple-evals; LiveMedBench.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError, model_validator

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.options import invalid
from mar_st.text.values import as_date, as_id, as_number, as_text, writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from mar_st.data.rows import Row
    from medteb_mteb.curation.synthetic.forms import Language

M = TypeVar("M", bound=BaseModel)
R = TypeVar("R", bound="_Row")

#: Names of an id, ours first.
IDS = ("_id", "prompt_id", "case_id", "id")
#: Prefix of the tag that names a criterion's axis.
AXIS = "axis:"
_CHINESE = re.compile("[\u3400-\u9fff]")


def _joined(value: Any) -> str:
    """Return a text, or the texts of a list on a line each."""
    parts = value if isinstance(value, list) else [value] if value else []
    if not all(as_text(part) for part in parts):
        raise ValueError("expected a text, or a list of texts")
    return "\n".join(part.strip() for part in parts)


def _day(value: Any) -> str:
    day = as_date(str(value)[:10].replace("/", "-")) if value else ""  # a time may follow
    if day is None:
        raise ValueError("expected a date like 2026-01-31 or 2026-01")
    return day


def _stripped(value: Any) -> str:
    if as_text(value) is None:
        raise ValueError("expected a text that is not empty")
    return str(value).strip()


def _number(value: Any) -> int | float:
    number = as_number(value)
    if not number:
        raise ValueError("expected a number that is not 0")
    return int(number) if number == int(number) else number


#: A text that is not empty, and texts that may be missing.
Text = Annotated[str, BeforeValidator(_stripped)]
Texts = Annotated[str, BeforeValidator(_joined)]


class _Row(BaseModel):
    """Fields of all rows. The date is a day or a month, empty if unknown."""

    id: Annotated[str, BeforeValidator(as_id)] = Field(validation_alias=AliasChoices(*IDS))
    date: Annotated[str, BeforeValidator(_day)] = Field(
        "", validation_alias=AliasChoices("date", "post_time")
    )
    narrative: Texts = ""
    request: Texts = Field("", validation_alias=AliasChoices("question", "core_request"))

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Leave out empty fields: a table has all columns in all rows, also those of another form."""
        return {name: value for name, value in values.items() if value not in (None, "", [])}

    @property
    def question(self) -> str:
        """Return the question with what the patient tells before it."""
        return "\n".join(filter(None, (self.narrative, self.request)))


class Case(_Row):
    """A question and what a physician answered, empty if unknown."""

    advice: Texts = Field("", validation_alias=AliasChoices("advice", "doctor_advice", "answer"))

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if not self.request:
            raise ValueError("expected question (or core_request), a text")
        return self


class Criterion(BaseModel):
    """A statement about an answer that is met or not; the points of a mistake are negative."""

    criterion: Text
    points: Annotated[int | float, BeforeValidator(_number)]
    tags: list[str] | None = None

    @property
    def axis(self) -> str:
        """Return what it is about, such as `completeness`; empty if unknown."""
        return next((tag.removeprefix(AXIS) for tag in self.tags or () if tag.startswith(AXIS)), "")


class Message(BaseModel):
    """A message of a conversation."""

    role: str
    content: Texts


class Rubric(_Row):
    """The criteria for answers to a question, or to the last message of a conversation."""

    prompt: tuple[Message, ...] = ()
    criteria: tuple[Criterion, ...] = Field(validation_alias=AliasChoices("rubrics", "rubric_items"))

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        if not any(one.content for one in self.messages):
            raise ValueError("expected prompt, a list of messages with role and content (or core_request)")
        if all(one.points < 0 for one in self.criteria):
            raise ValueError("no criterion has positive points, so there is nothing to reach")
        return self

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return the conversation."""
        return self.prompt or (Message(role="user", content=super().question),)

    @property
    def question(self) -> str:
        """Return the conversation as one text; a single message as it is."""
        if len(self.messages) == 1:
            return self.messages[0].content
        return "\n\n".join(f"{one.role}: {one.content}" for one in self.messages)

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the texts of the criteria."""
        return tuple(one.criterion for one in self.criteria)


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
    return _read(source, Case, "cases")


def read_rubrics(source: Path) -> list[Rubric]:
    """Return the rubrics of a source, in our form, HealthBench's, or LiveMedBench's.

    Raises:
        MarError: Rows are unusable, or there are none.
    """
    return _read(source, Rubric, "rubrics")


def made_of(model: type[M]) -> Callable[[Row], M]:
    """Return a function that makes a model of a row, for `read_rows`."""

    def make(row: Row) -> M:
        try:
            return model.model_validate(row.values)
        except ValidationError as error:
            raise MarError(invalid(error)) from error

    return make


def _read(source: Path, model: type[R], table: str) -> list[R]:
    found = list(read_rows(source, made_of(model), table=table))
    if not found:
        raise MarError(f"{source} holds no rows.")
    name, number = Counter(one.id for one in found).most_common(1)[0]
    if number > 1:
        raise MarError(f"{source} has {number} rows with the id {name!r}; it must be unique.")
    return found


def read_answers(sources: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Return the answers of each system by the id of their question; empty answers are left out.

    A row has `_id`, `answer` and, optionally, `system`; default: the name of the file.

    Raises:
        MarError: Rows are unusable, a system has two answers to a question, or there are no answers.
    """
    answers: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def answer(row: Row) -> None:
        identity = next((as_id(row.values[name]) for name in IDS if name in row.values), None)
        text = row.values.get("answer") or ""
        if identity is None or not isinstance(text, str):
            raise MarError(f"expected an id ({', '.join(IDS)}) and answer, a text.")
        of_system = answers[str(row.values.get("system") or source.stem)]
        if identity in of_system:
            raise MarError(f"the system has two answers to {identity!r}.")
        of_system[identity] = writable(text).strip()

    for source in sources:
        deque(read_rows(source, answer, table="answers"), maxlen=0)
    if not answers:
        raise MarError("There are no answers. Give JSONL with _id and answer.")
    return {system: {name: text for name, text in rows.items() if text} for system, rows in answers.items()}
