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
    from collections.abc import Mapping, Sequence
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
        found: dict[str, dict[int, Verdict]] = {item.key: {} for item in items}
        first = self._ask(items, found, out)
        rest = [item for item in items if 0 < len(found[item.key]) < len(item.criteria)]
        again = self._ask(rest, found, out) if rest and not first.stopped else None
        verdicts = {
            item.key: [found[item.key].get(place, Verdict(None)) for place in range(len(item.criteria))]
            for item in items
        }
        quotes = {
            key: sum(bool(one.quote) and normalise(one.quote) not in answer for one in verdicts[key])
            for key, answer in ((item.key, normalise(item.answer)) for item in items)
        }
        details = {
            **first.counts(),
            "asked again": len(rest),
            "quotes that are not in the answer": sum(quotes.values()),
        }
        provenance = {"name": self.name, **self.settings(VERSION), "answered": first.answered}
        return Graded(verdicts, details, first.stopped or (again.stopped if again else ""), provenance)

    def _ask(self, items: Sequence[Item], found: dict[str, dict[int, Verdict]], out: Path) -> Generation[Any]:
        """Ask for the verdicts that are not found yet, and add them by place."""
        places = {
            item.key: [place for place in range(len(item.criteria)) if place not in found[item.key]]
            for item in items
        }
        asked = [
            replace(item, criteria=tuple(item.criteria[place] for place in places[item.key]))
            for item in items
        ]
        read = partial(_read, {item.key: item.criteria for item in asked})
        prompts = [grade_prompt(item) for item in asked]
        again = any(found.values())  # only a model that has answered is asked for the rest
        generation = ask_llm(self, prompts, VERSION, read, name="grade", out=out, may_fail=again)
        for key, verdicts in generation.answers.items():
            found[key] |= {places[key][place]: verdict for place, verdict in verdicts.items()}
        return generation


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


def _read(criteria: Mapping[str, Sequence[str]], prompt: Prompt, content: str) -> dict[int, Verdict]:
    """Return the verdicts of an answer by place of the criterion; a contradictory one is left out.

    Raises:
        Rejected: `no-verdict`: there is none.
    """
    texts = criteria[prompt.key]
    by_text = {normalise(text): place for place, text in enumerate(texts)}
    found: dict[int, list[Verdict]] = {}
    for values in objects_in(content):
        for place, verdict in _verdicts_in(values, by_text):
            if 0 <= place < len(texts):
                found.setdefault(place, []).append(verdict)
    verdicts = {place: some[0] for place, some in found.items() if len({one.met for one in some}) == 1}
    if not verdicts:
        raise Rejected("no-verdict")
    return verdicts


def _verdicts_in(values: dict[str, Any], by_text: Mapping[str, int]) -> list[tuple[int, Verdict]]:
    """Return place and verdict of an object: that of one criterion, or of several by number."""
    if "met" not in values:
        pairs = ((_place(name, by_text), as_met(value)) for name, value in values.items())
        return [(place, Verdict(met)) for place, met in pairs if met is not None]
    met = as_met(values["met"])
    named = next((values[name] for name in ("criterion", "number", "id", "question") if name in values), "")
    quote = next((values[name] for name in ("quote", "evidence", "reasoning") if name in values), "")
    text = writable(quote).strip() if isinstance(quote, str) else ""
    return [] if met is None else [(_place(named, by_text), Verdict(met, text))]


def _place(name: Any, by_text: Mapping[str, int]) -> int:
    """Return the place of the criterion that a verdict names by number or text; -1 if it names none."""
    text = str(name)
    known = by_text.get(normalise(text))
    number = re.fullmatch(r"\D{0,12}?(\d{1,3})\D{0,2}", text)
    return known if known is not None else int(number[1]) - 1 if number else -1
