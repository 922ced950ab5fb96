"""Graders decide for each criterion whether an answer meets it: an LLM, an NLI model, or words.

An LLM gets an answer with all its criteria in one prompt and returns a verdict with a quote for each. What
it leaves out is asked for once more, alone; what is then still missing has no verdict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Discriminator, Field, Tag

from mar_st.errors import MarError
from mar_st.options import Settings
from mar_st.text.texts import normalise
from mar_st.text.values import writable
from mar_st.text.words import query_terms
from medteb_mteb.curation.llm.client import object_schema
from medteb_mteb.curation.llm.journal import settings_digest
from medteb_mteb.curation.llm.settings import LLM, ask_llm
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.llm.tolerant import Rejected, objects_in
from medteb_mteb.curation.rubrics.files import language_of
from medteb_mteb.curation.step import Model, Runtime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.llm.generate import Generation

#: Tokens of a verdict with its quote, at most.
VERDICT_TOKENS = 120

_YES = frozenset(("true", "yes", "met", "entailment", "1", "是", "满足", "符合"))
_NO = frozenset(("false", "no", "not met", "neutral", "contradiction", "0", "否", "不满足", "不符合"))
_VERDICT = {"criterion": {"type": "integer"}, "quote": {"type": "string"}, "met": {"type": "boolean"}}
_GRADE = template(
    __file__, "grade", schema=object_schema({"verdicts": {"type": "array", "items": object_schema(_VERDICT)}})
)
#: Version of the prompt of an LLM that grades.
VERSION = _GRADE.version


class Verdict(NamedTuple):
    """A verdict on a criterion.

    Attributes:
        met: True, False, or None if there is no verdict.
        quote: The words of the answer that decide, according to the grader.
    """

    met: bool | None
    quote: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """An answer to be graded.

    Attributes:
        key: Its key, unique among all items.
        question: The question.
        answer: The answer.
        criteria: The criteria.
    """

    key: str
    question: str
    answer: str
    criteria: tuple[str, ...]


@dataclass
class Graded:
    """What a grader has decided.

    Attributes:
        verdicts: Verdicts on the criteria by key of the item.
        details: Counts for the report.
        stopped: Why the grader stopped early.
        provenance: The grader, in the form of `provenance.json`.
    """

    verdicts: dict[str, list[Verdict]]
    details: dict[str, Any] = field(default_factory=dict)
    stopped: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)


class Words(Settings):
    """A grader by shared words, to try things out: a criterion is met if enough of its words are used.

    Attributes:
        name: Name of the grader.
        rule: `words`.
        threshold: Share of the criterion's words that the answer must have.
    """

    name: str = Field(min_length=1, max_length=100)
    rule: Literal["words"]
    threshold: float = Field(0.5, gt=0, le=1)

    def identity(self) -> str:
        """Return a digest of all that the verdicts depend on besides the texts."""
        return settings_digest(self.model_dump(exclude={"name"})).hex()

    def grade(self, items: Sequence[Item], out: Path) -> Graded:
        """Return the verdicts on the criteria of each item."""
        del out
        verdicts = {}
        for item in items:
            said = set(query_terms(item.answer))
            verdicts[item.key] = [
                Verdict(share_of_words(one, said) >= self.threshold) for one in item.criteria
            ]
        return Graded(verdicts)


class Entailment(Settings):
    """A cross-encoder for natural language inference: a criterion is met if the answer entails it.

    Attributes:
        name: Name of the grader.
        cross_encoder: Folder or Hub name; its configuration names a label `entailment`.
        batch_size: Pairs per forward pass.
    """

    name: str = Field(min_length=1, max_length=100)
    cross_encoder: Annotated[str, Model()] = Field(min_length=1)
    batch_size: Annotated[int, Runtime()] = Field(default=32, ge=1)

    def identity(self) -> str:
        """Return a digest of all that the verdicts depend on besides the texts."""
        from mar_st.model.digest import model_digest  # lazy: torch

        return model_digest(self.cross_encoder)

    def grade(self, items: Sequence[Item], out: Path) -> Graded:
        """Return the verdicts on the criteria of each item; an answer beyond the model's length is cut.

        Raises:
            MarError: The model does not exist, or has no label `entailment`.
        """
        from mar_st.model.reranker import load_cross_encoder  # lazy: torch

        del out
        model: Any = load_cross_encoder(self.cross_encoder, what="grader")
        labels = {int(place): str(name).lower() for place, name in model[0].model.config.id2label.items()}
        if "entailment" not in labels.values():
            raise MarError(
                f"Grader {self.name}: expected a model with a label 'entailment' in its configuration; "
                f"{self.cross_encoder} has {', '.join(labels.values())}. Give a model for NLI."
            )
        pairs = [(item.answer, one) for item in items for one in item.criteria]
        found = model.predict(pairs, batch_size=self.batch_size, show_progress_bar=None)
        verdicts = iter([Verdict(labels[int(place)] == "entailment") for place in found.argmax(axis=1)])
        return Graded({item.key: [next(verdicts) for _ in item.criteria] for item in items})


class Prompted(LLM):
    """An LLM that grades."""

    def identity(self) -> str:
        """Return a digest of all that the verdicts depend on besides the texts."""
        return settings_digest(self.settings(VERSION)).hex()

    def grade(self, items: Sequence[Item], out: Path) -> Graded:
        """Return the verdicts on the criteria of each item.

        Args:
            items: The items.
            out: Folder of the step; the journal is beside it.
        """
        found: dict[str, dict[str, Verdict]] = {item.key: {} for item in items}  # by criterion

        def asked(some: list[Item], *, may_fail: bool) -> Generation[Any]:
            read, prompts = partial(_read, {one.key: one.criteria for one in some}), map(grade_prompt, some)
            options: dict[str, Any] = {"name": "grade", "out": out, "may_fail": may_fail}
            generation = ask_llm(self, list(prompts), VERSION, read, **options)
            for key, verdicts in generation.answers.items():
                found[key] |= verdicts
            return generation

        first = asked(list(items), may_fail=len(items) == 1)  # Inspect grades them one by one
        rest = []
        for item in items if not first.stopped else ():
            missing = tuple(one for one in item.criteria if one not in found[item.key])
            if missing and found[item.key]:  # only a model that has answered is asked for the rest
                rest.append(replace(item, criteria=missing))
        again = asked(rest, may_fail=True)
        verdicts, strange = {}, 0
        for item in items:
            verdicts[item.key] = [found[item.key].get(one, Verdict(None)) for one in item.criteria]
            said = normalise(item.answer)
            strange += sum(normalise(one.quote) not in said for one in verdicts[item.key])
        details = {**first.counts(), "asked again": len(rest), "quotes that are not in the answer": strange}
        provenance = {"name": self.name, **self.settings(VERSION), "answered": first.answered}
        return Graded(verdicts, details, first.stopped or again.stopped, provenance)


def _kind(entry: Any) -> str:
    names = entry if isinstance(entry, dict) else type(entry).model_fields
    return next((name for name in ("rule", "cross_encoder") if name in names), "model")


#: A grader, by the fields of its entry in a YAML file.
Grader: TypeAlias = Annotated[
    Annotated[Words, Tag("rule")]
    | Annotated[Entailment, Tag("cross_encoder")]
    | Annotated[Prompted, Tag("model")],
    Discriminator(_kind),
]


def share_of_words(criterion: str, said: set[str]) -> float:
    """Return the share of the words of a criterion that an answer has, 0 to 1.

    Args:
        criterion: The criterion.
        said: Words of the answer, by `query_terms`: pairs of Chinese characters, whole words of others.
    """
    asked = query_terms(criterion)
    return len(said & set(asked)) / len(asked) if asked else 0.0


def as_met(value: Any) -> bool | None:
    """Return whether a label means met (`true`, `1`, `met`, `entailment`, `是`) or not; None if neither."""
    word = str(value).strip().lower().rstrip(".。")
    return True if word in _YES else False if word in _NO else None


def grade_prompt(item: Item) -> Prompt:
    """Return the prompt that asks for the verdicts on an answer, in the language of its question."""
    criteria = "\n".join(f"{n}. {' '.join(text.split())}" for n, text in enumerate(item.criteria, 1))
    texts = {"question": item.question, "answer": item.answer}
    tokens = 20 + VERDICT_TOKENS * len(item.criteria)
    return _GRADE.prompt(item.key, language_of(item.question), texts, tokens, criteria=criteria)


def _read(criteria: Mapping[str, Sequence[str]], prompt: Prompt, content: str) -> dict[str, Verdict]:
    """Return the verdicts of an answer by criterion; a contradictory one is left out.

    Raises:
        Rejected: `no-verdict`: there is none.
    """
    texts = criteria[prompt.key]
    named = {normalise(text): text for text in texts} | {str(n): text for n, text in enumerate(texts, 1)}
    found: dict[str, list[Verdict]] = {}
    for values in objects_in(content):
        for name, verdict in _verdicts_in(values):
            number = re.fullmatch(r"\D{0,12}?(\d{1,3})\D{0,2}", name)
            text = named.get(normalise(name)) or (named.get(number[1]) if number else None)
            if text and verdict.met is not None:
                found.setdefault(text, []).append(verdict)
    verdicts = {text: some[0] for text, some in found.items() if len({one.met for one in some}) == 1}
    if not verdicts:
        raise Rejected("no-verdict")
    return verdicts


def _verdicts_in(values: dict[str, Any]) -> Iterator[tuple[str, Verdict]]:
    """Yield name and verdict of the criterion of an object, or of several ones by number."""
    if "met" not in values:
        yield from ((name, Verdict(as_met(value))) for name, value in values.items())
        return
    named = next((values[name] for name in ("criterion", "number", "id", "question") if name in values), "")
    quote = next((values[name] for name in ("quote", "evidence", "reasoning") if name in values), "")
    text = writable(quote).strip() if isinstance(quote, str) else ""
    yield str(named), Verdict(as_met(values["met"]), text)
