"""Selection of the documents per prompt: the best of a query's pool, in random order, split into prompts."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.controls import CONTROLS
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.llm.budget import tokens_of
from medteb_mteb.curation.training.prompt import DOCUMENT_TEMPLATE, SYSTEM, TEMPLATE, document_ids, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medteb_mteb.curation.llm import Prompt

__all__ = ["Batch", "QueryCandidates", "TwoLists", "batches"]

_PROMPT_TOKENS = tokens_of(SYSTEM) + tokens_of(TEMPLATE)
#: Tokens of the delimiters and the id of a document.
_TOKENS_AROUND_DOCUMENT = tokens_of(DOCUMENT_TEMPLATE) + 10


@dataclass(frozen=True)
class TwoLists:
    """Settings of judging pools with two lists, and of the triples made from them.

    Attributes:
        depth: Number of top documents of a pool to judge. MAR used 50.
        documents: Maximum number of documents of a prompt.
        prompt_tokens: Maximum number of estimated tokens of a prompt, unless a single document has more.
        control_rate: Share of the prompts with several documents with a control document, which answers
            nothing. Prompts with a suspicious document always do.
        controls: Control documents.
        negatives: Maximum number of negatives of a triple. MAR's records have 15.
        choose: Which negatives to keep if there are more: the best ranked of the pool (`top`), or a random
            sample (`random`).
        seed: Seed of all random choices.
    """

    depth: int = 50
    documents: int = 10
    prompt_tokens: int = 16_000
    control_rate: float = 1.0
    controls: tuple[str, ...] = CONTROLS
    negatives: int = 15
    choose: Literal["top", "random"] = "top"
    seed: int = 42

    def __post_init__(self) -> None:
        if min(self.depth, self.documents) < 1 or self.negatives < 0:
            raise BuildError(
                "depth and documents are at least 1 and negatives at least 0; got "
                f"{self.depth}, {self.documents} and {self.negatives}."
            )
        if self.prompt_tokens < 2 * _PROMPT_TOKENS:
            raise BuildError(
                f"A prompt has about {_PROMPT_TOKENS} tokens without any text; prompt_tokens is at least "
                f"{2 * _PROMPT_TOKENS}, got {self.prompt_tokens}."
            )
        if not 0 <= self.control_rate <= 1 or not self.controls:
            raise BuildError(f"control_rate must be between 0 and 1; got {self.control_rate}.")
        if self.choose not in ("top", "random"):
            raise BuildError(f"choose must be top or random; got {self.choose!r}.")

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        digest = hashlib.sha256("\0".join(self.controls).encode()).hexdigest()[:16]
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**values, "controls": digest}


@dataclass(frozen=True, slots=True)
class QueryCandidates:
    """A query with the documents that are judged for it.

    Attributes:
        query: Id of the query.
        text: Text of the query.
        documents: Ids of the documents, best ranked first; one of equal texts.
    """

    query: str
    text: str
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """The documents of a prompt.

    Attributes:
        key: Key of the prompt.
        query: Id of the query.
        documents: Ids of the documents in the order of the prompt; `None` is the control document.
        prompt: The prompt to send.
    """

    key: str
    query: str
    documents: tuple[str | None, ...]
    prompt: Prompt

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the documents in the prompt."""
        return document_ids(len(self.documents))

    @property
    def control(self) -> int | None:
        """Return the number of the control document."""
        return self.documents.index(None) if None in self.documents else None


def batches(candidates: QueryCandidates, texts: Mapping[str, str], how: TwoLists) -> Iterator[Batch]:
    """Yield the prompts for a query: suspicious documents alone, the others together.

    The documents of a prompt and their order depend only on the texts and the seed.

    Args:
        candidates: The query and its documents.
        texts: Text of each document.
        how: Settings.
    """
    draw = random.Random(f"{how.seed}\0{candidates.text}")
    # By text, so that other ids or another order of the pool do not make other prompts.
    order = sorted(candidates.documents, key=lambda name: hashlib.sha256(texts[name].encode()).digest())
    draw.shuffle(order)
    suspects = [name for name in order if suspicious(texts[name])]
    others = [name for name in order if name not in set(suspects)]
    parts = [([name], True) for name in suspects]
    parts += [
        # A document alone cannot affect the labels of others.
        (part, len(part) > 1 and draw.random() < how.control_rate)
        for part in _cut(candidates.text, others, texts, how)
    ]
    for number, (part, controlled) in enumerate(parts):
        shown: list[str | None] = list(part)
        words = [texts[name] for name in part]
        if controlled:
            place, control = draw.randrange(len(part) + 1), draw.choice(how.controls)
            shown.insert(place, None)
            words.insert(place, control)
        key = f"{candidates.query} {number}"
        yield Batch(key, candidates.query, tuple(shown), render(key, candidates.text, words))


def _cut(query: str, order: Sequence[str], texts: Mapping[str, str], how: TwoLists) -> Iterator[list[str]]:
    fixed = _PROMPT_TOKENS + tokens_of(query) + _TOKENS_AROUND_DOCUMENT
    part: list[str] = []
    size = fixed
    for name in order:
        tokens = tokens_of(texts[name]) + _TOKENS_AROUND_DOCUMENT
        if part and (len(part) == how.documents or size + tokens > how.prompt_tokens):
            yield part
            part, size = [], fixed
        part.append(name)
        size += tokens
    if part:
        yield part
