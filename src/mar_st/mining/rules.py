"""Rules by which documents become hard negatives of a query."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from mar_st.options import Argument, Settings, Switch
from mar_st.text.texts import normalise

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Mapping, Sequence

#: Constant of reciprocal rank fusion (Cormack et al. 2009), which orders the candidates of several
#: retrievers.
FUSION_CONSTANT = 60

#: Characters per gram of the near-duplicate test.
GRAM_SIZE = 3

#: Maximum draws per random document that fills up the negatives of a query.
MAX_DRAWS = 50

#: Reasons for which a candidate is not a hard negative, in the order of the checks.
REASONS = (
    "known positive",
    "the query itself",
    "labelled negative",
    "before the window",
    "within the margin",
    "near-duplicate",
    "not needed",
)


class Filters(Settings):
    """Filters of candidates, named as in `mine_hard_negatives` of sentence-transformers.

    Ranks count from 1, over the documents that are neither a known positive of the query nor the query
    itself. A candidate that any retriever ranks among the first `range_min` is dropped because it may answer
    the query. A `relative_margin` of 0.05 is `TopK-PercPos (95 %)` of NV-Retriever (arXiv 2407.15831, section
    4). The consistency filter of BMRetriever takes 3.
    """

    num_negatives: int = Field(
        7, ge=0, description="Number of negatives per query, besides labelled ones; 0 only filters the pairs."
    )
    range_min: int = Field(0, ge=0, description="Number of best-ranked candidates to skip.")
    range_max: int = Field(100, ge=1, description="Last rank to sample from, for each --model.")
    relative_margin: float | None = Field(
        None,
        allow_inf_nan=False,
        description="Minimum distance of a negative's score below the lowest positive's, as a share of that "
        "(NV-Retriever: 0.05); default: none.",
    )
    consistent: int | None = Field(
        None,
        ge=1,
        description="Keep only pairs whose positive is in the top K of the first --model; default: all.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        ranks = self.range_max - self.range_min
        if ranks < max(self.num_negatives, 1):
            raise ValueError(
                f"range_min {self.range_min} and range_max {self.range_max} leave {max(ranks, 0)} ranks; "
                f"num_negatives is {self.num_negatives}. Lower it, or widen the range"
            )
        if (self.consistent or 0) > self.range_max:
            raise ValueError(f"consistent must be a rank from 1 to range_max ({self.range_max})")
        if not self.num_negatives and self.consistent is None:
            raise ValueError("nothing to do: num_negatives is 0, and consistent is not set. Give one of them")
        return self


class Rules(Filters):
    """Rules by which a candidate becomes a hard negative; a query's draws depend only on seed and text.

    Attributes:
        near_duplicate: Drop candidates with at least this 3-gram similarity (Jaccard) to the query or a
            positive; `None`: keep them.
        fill: Fill up with random documents if too few candidates remain.
        seed: Random seed.
    """

    near_duplicate: float | None = Field(0.8, gt=0, le=1)
    fill: bool = True
    seed: int = 42


class MineSettings(Filters):
    """Settings of `mar mine`: the filters, the data, and the models that search them."""

    data: Annotated[str, Argument()] = Field(
        description="Training data: file, folder, or package: or hub: name, as 'path' in a recipe."
    )
    out: Annotated[Path, Argument()] = Field(
        description="Folder to write triples.jsonl and manifest.json to."
    )
    models: Annotated[list[str], Switch("--model")] = Field(
        min_length=1,
        description="Retriever: bm25, bm25:jieba, a model folder or a Hub name; may be repeated.",
    )
    teacher: str | None = Field(
        None,
        description="Model whose scores the margin applies to, or cross:NAME (a cross-encoder); default: the "
        "first --model.",
    )
    corpus: Path | None = Field(None, description="Corpus to search; default: the documents of the data.")
    columns: Annotated[dict[str, str], Switch("--column")] = Field(
        {}, description="Rename a column, as OURS=THEIRS, e.g. query=title; may be repeated."
    )
    where: dict[str, str] = Field(
        {}, description="Use only rows with COLUMN=VALUE; may be repeated for other columns."
    )
    limit: int | None = Field(
        None, ge=1, description="Maximum number of triples, sampled at random; default: all."
    )
    symmetric: bool = Field(
        False, description="Treat the pairs as paraphrases: search among the queries too."
    )
    prompt: str | None = Field(
        None, description="Prompt that dense models put before queries; default: their own."
    )


def grams(text: str) -> frozenset[str]:
    """Return the character 3-grams of the normalised text; a shorter text is its only gram."""
    plain = normalise(text)
    return frozenset(plain[i : i + GRAM_SIZE] for i in range(len(plain) - GRAM_SIZE + 1)) or frozenset(
        {plain}
    )


def near(one: Collection[str], other: Collection[str], threshold: float) -> bool:
    """Return True if the Jaccard similarity of two sets reaches a threshold above 0."""
    small, large = sorted((len(one), len(other)))
    if small < threshold * large:  # too small even if it is a subset
        return False
    common = len(set(one) & set(other))
    return common >= threshold * (small + large - common)


@dataclass(frozen=True)
class MinedQuery:
    """One distinct query, as documents are numbered in the corpus.

    Attributes:
        text: The query.
        positives: Its positives that passed the consistency filter.
        known: All documents known to answer it.
        own: Number of the query itself in the corpus, or -1.
        labelled: Its labelled negatives.
    """

    text: str
    positives: tuple[int, ...]
    known: frozenset[int]
    own: int = -1
    labelled: frozenset[int] = frozenset()

    @cached_property
    def grams(self) -> frozenset[str]:
        """Return the grams of the query, which every candidate is compared with."""
        return grams(self.text)

    def ranks(self, ranked: Sequence[int]) -> dict[int, int]:
        """Return the ranks of the documents that a retriever found, best first, in the sense of `Rules`."""
        others = (document for document in ranked if document not in self.known and document != self.own)
        return {document: rank for rank, document in enumerate(others, 1)}

    def rank_of(self, positive: int, ranked: Sequence[int]) -> int | None:
        """Return the rank of a positive among the documents that are not known to be relevant."""
        rank = 1
        for document in ranked:
            if document == positive:
                return rank
            rank += document not in self.known and document != self.own
        return None


@dataclass
class Picked:
    """Negatives chosen for one query: mined documents, best ranked first, and random ones that fill up."""

    mined: list[int]
    filled: list[int] = field(default_factory=list)


class Picker:
    """Applies the rules to the candidates of one query after another.

    Args:
        rules: The rules.
        corpus: Texts of the documents.
    """

    def __init__(self, rules: Rules, corpus: Sequence[str]) -> None:
        self.rules, self.corpus = rules, corpus
        self._grams: dict[int, frozenset[str]] = {}

    def pick(
        self,
        question: MinedQuery,
        lists: Sequence[Sequence[int]],
        scores: Mapping[int, float],
        dropped: Counter[str],
    ) -> Picked:
        """Return the hard negatives of a query.

        Args:
            question: The query.
            lists: Documents that each retriever found, best first, known positives included.
            scores: Scores of the candidates and of the positives, if a rule needs them.
            dropped: Receives the candidates and the reasons, see `REASONS`.
        """
        rules = self.rules
        # A list is as long as the query with the most positives in its block needs: drop ranks beyond.
        ranks = [
            {document: rank for document, rank in question.ranks(ranked).items() if rank <= rules.range_max}
            for ranked in lists
        ]
        known = {d for ranked in lists for d in ranked if d in question.known or d == question.own}
        candidates = known.union(*ranks)
        dropped["candidates"] += len(candidates)
        # A query without a positive has no margin to keep.
        positives = question.positives if rules.relative_margin is not None else ()
        lowest = min((scores[document] for document in positives), default=float("inf"))
        selected = []
        for document in sorted(candidates, key=lambda d: (-_fused(d, ranks), d)):
            reason = self._reason(question, document, ranks, scores, lowest)
            if reason is None:
                selected.append(document)
            else:
                dropped[reason] += 1
        rng = random.Random(f"{rules.seed}\0{question.text}")
        if len(selected) > rules.num_negatives:
            dropped["not needed"] += len(selected) - rules.num_negatives
            places = sorted(rng.sample(range(len(selected)), rules.num_negatives))
            selected = [selected[place] for place in places]
        excluded = candidates | question.labelled
        missing = rules.num_negatives - len(selected) if rules.fill else 0
        return Picked(selected, self._fill(question, excluded, missing, rng))

    def _reason(
        self,
        question: MinedQuery,
        document: int,
        ranks: Sequence[Mapping[int, int]],
        scores: Mapping[int, float],
        lowest: float,
    ) -> str | None:
        """Return the reason why a document is not a hard negative of a query, or nothing."""
        rules = self.rules
        if document in question.known:
            return "known positive"
        if document == question.own:
            return "the query itself"
        if document in question.labelled:
            return "labelled negative"
        if min(of_list[document] for of_list in ranks if document in of_list) <= rules.range_min:
            return "before the window"
        # The absolute value: with a negative score, the bound would be above the lowest positive.
        margin = rules.relative_margin
        if margin is not None and scores[document] > lowest - margin * abs(lowest):
            return "within the margin"
        return "near-duplicate" if self._is_near(question, document) else None

    def _is_near(self, question: MinedQuery, document: int) -> bool:
        threshold = self.rules.near_duplicate
        if not threshold:
            return False
        own = self._of(document)
        if near(own, question.grams, threshold):
            return True
        return any(near(own, self._of(positive), threshold) for positive in question.known)

    def _of(self, document: int) -> frozenset[str]:
        if document not in self._grams:
            self._grams[document] = grams(self.corpus[document])
        return self._grams[document]

    def _fill(
        self, question: MinedQuery, excluded: Collection[int], number: int, rng: random.Random
    ) -> list[int]:
        """Return random documents that no retriever found."""
        chosen: dict[int, None] = {}
        taken = {*excluded, *question.known, question.own}
        for _ in range(MAX_DRAWS * number):
            if len(chosen) == number:
                break
            document = rng.randrange(len(self.corpus))
            if document not in chosen and document not in taken and not self._is_near(question, document):
                chosen[document] = None
        return list(chosen)


def _fused(document: int, ranks: Sequence[Mapping[int, int]]) -> float:
    """Reciprocal rank fusion; with one retriever its own order."""
    return sum(
        1 / (FUSION_CONSTANT + by_document[document]) for by_document in ranks if document in by_document
    )
