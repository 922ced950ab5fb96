"""Selection of hard negatives: filters in order, each with a count of the candidates it dropped."""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from mar_st.errors import MarError
from mar_st.text.normalisation import normalise

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Collection, Mapping, Sequence

#: Constant of reciprocal rank fusion (Cormack et al. 2009), which orders the candidates of several
#: retrievers.
FUSION_CONSTANT = 60

#: Names under which manifests record rules, where they differ from the names in `Rules`.
RECORDED_NAMES = {"num_negatives": "negatives", "absolute_margin": "margin", "sampling_strategy": "choose"}

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
    "after the window",
    "above max_score",
    "below min_score",
    "within the margin",
    "within the relative margin",
    "near-duplicate",
    "not needed",
)


class MiningError(MarError):
    """Mining with impossible settings; the message says what to change."""


@dataclass(frozen=True)
class Rules:
    """Rules by which a candidate becomes a hard negative, named as in `mine_hard_negatives`.

    Ranks count from 1, over the documents that are neither a known positive of the query nor the query
    itself.

    Attributes:
        num_negatives: Hard negatives per query, besides labelled ones; 0 mines none (for the consistency
            filter).
        top: Candidates per retriever.
        range_min: Number of best-ranked candidates that are skipped. A candidate that any retriever ranks
            among them is dropped because it may answer the query.
        range_max: Last rank that is used; default `top`.
        absolute_margin: A candidate must score at least this much below the query's lowest positive.
        relative_margin: A candidate must score at least this share of the positive's score below it; 0.05 is
            `TopK-PercPos (95 %)` of NV-Retriever (arXiv 2407.15831, section 4).
        max_score: Highest score of a candidate.
        min_score: Lowest score of a candidate.
        near_duplicate: A candidate is dropped if the Jaccard similarity of its character 3-grams with those
            of the query or a known positive reaches this; `None` compares none.
        sampling_strategy: `random` draws among the remaining candidates, `top` takes the best ranked.
        fill: If too few are left, add random documents that no retriever found.
        keep_labelled: Keep labelled negatives, before the mined ones; else they are candidates like others.
        consistent: Keep a positive only if the first retriever ranks it within this rank, and a row only if
            a positive is left (consistency filter; BMRetriever takes 3).
        seed: Seed of all draws; a query's draws depend only on it and on the query's text.
    """

    num_negatives: int = 7
    top: int = 100
    range_min: int = 0
    range_max: int | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    max_score: float | None = None
    min_score: float | None = None
    near_duplicate: float | None = 0.8
    sampling_strategy: Literal["random", "top"] = "random"
    fill: bool = True
    keep_labelled: bool = True
    consistent: int | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        if self.num_negatives < 0 or self.top < 1:
            raise MiningError(
                "num_negatives must be at least 0 and top at least 1; "
                f"got {self.num_negatives} and {self.top}."
            )
        first, last = self.ranks
        if not 1 <= first <= last <= self.top:
            raise MiningError(
                f"Expected 0 <= range_min < range_max <= top; got range_min {self.range_min}, range_max "
                f"{last} and top {self.top}."
            )
        if last - first + 1 < self.num_negatives:
            raise MiningError(
                f"range_min {self.range_min} and range_max {last} leave {last - first + 1} ranks; "
                f"num_negatives is {self.num_negatives}. Lower it, or widen the range."
            )
        self._check_scores()
        if self.consistent is not None and not 1 <= self.consistent <= self.top:
            raise MiningError(f"consistent must be a rank from 1 to top ({self.top}); got {self.consistent}.")
        if not self.num_negatives and self.consistent is None:
            raise MiningError(
                "Nothing to do: num_negatives is 0, and consistent is not set. Give one of them."
            )
        if self.near_duplicate is not None and not 0 < self.near_duplicate <= 1:
            raise MiningError(
                f"near_duplicate must be a similarity above 0 and at most 1; got {self.near_duplicate}."
            )

    def _check_scores(self) -> None:
        for name in ("absolute_margin", "relative_margin", "max_score", "min_score"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise MiningError(f"{name} must be a finite number; got {value}. Leave it out for no limit.")
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise MiningError(
                f"No score is between min_score {self.min_score} and max_score {self.max_score}; "
                "min_score must not be above max_score."
            )

    @property
    def ranks(self) -> tuple[int, int]:
        """Return the first and last rank that is used."""
        return self.range_min + 1, self.range_max or self.top

    @property
    def uses_scores(self) -> bool:
        """Return True if a filter uses scores."""
        return any(
            value is not None
            for value in (self.absolute_margin, self.relative_margin, self.max_score, self.min_score)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the rules under the names that manifests and unfinished runs record."""
        settings = asdict(self)
        for name, recorded in RECORDED_NAMES.items():
            settings[recorded] = settings.pop(name)
        skips = self.range_min or self.range_max is not None
        del settings["range_min"], settings["range_max"]
        return {**settings, "window": list(self.ranks) if skips else None}


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

    @classmethod
    def none(cls) -> Self:
        """Return an empty choice."""
        return cls([])


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
        # A list is as long as the query with the most positives in its block needs: drop ranks beyond `top`.
        ranks = [
            {document: rank for document, rank in question.ranks(ranked).items() if rank <= rules.top}
            for ranked in lists
        ]
        known = {d for ranked in lists for d in ranked if d in question.known or d == question.own}
        candidates = known.union(*ranks)
        dropped["candidates"] += len(candidates)
        limit = self._limit(question, scores)
        selected = []
        for document in sorted(candidates, key=lambda d: (-_fused(d, ranks), d)):
            reason = self._reason(question, document, ranks, scores, limit)
            if reason is None:
                selected.append(document)
            else:
                dropped[reason] += 1
        rng = random.Random(f"{rules.seed}\0{question.text}")
        if len(selected) > rules.num_negatives:
            dropped["not needed"] += len(selected) - rules.num_negatives
            if rules.sampling_strategy == "random":
                places = sorted(rng.sample(range(len(selected)), rules.num_negatives))
                selected = [selected[place] for place in places]
            selected = selected[: rules.num_negatives]
        excluded = candidates | question.labelled
        missing = rules.num_negatives - len(selected) if rules.fill else 0
        return Picked(selected, self._fill(question, excluded, missing, rng))

    def _limit(self, question: MinedQuery, scores: Mapping[int, float]) -> float:
        """Return the score of the lowest positive; a query without one has no margin to keep."""
        rules = self.rules
        if rules.absolute_margin is None and rules.relative_margin is None:
            return float("inf")
        return min((scores[document] for document in question.positives), default=float("inf"))

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
        if rules.keep_labelled and document in question.labelled:
            return "labelled negative"
        places = [by_document[document] for by_document in ranks if document in by_document]
        first, last = rules.ranks
        if min(places) < first:
            return "before the window"
        if min(places) > last:
            return "after the window"
        if rules.uses_scores:
            reason = _by_score(rules, scores[document], lowest)
            if reason is not None:
                return reason
        return "near-duplicate" if self._is_near(question, document) else None

    def _is_near(self, question: MinedQuery, document: int) -> bool:
        threshold = self.rules.near_duplicate
        if threshold is None:
            return False
        own = self._of(document)
        if near(own, grams(question.text), threshold):
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
        suspect: Callable[[int], bool] = lambda document: (  # noqa: E731
            document in excluded
            or document in question.known
            or document == question.own
            or self._is_near(question, document)
        )
        for _ in range(MAX_DRAWS * number):
            if len(chosen) == number:
                break
            document = rng.randrange(len(self.corpus))
            if document not in chosen and not suspect(document):
                chosen[document] = None
        return list(chosen)


def _fused(document: int, ranks: Sequence[Mapping[int, int]]) -> float:
    """Reciprocal rank fusion; with one retriever its own order."""
    return sum(
        1 / (FUSION_CONSTANT + by_document[document]) for by_document in ranks if document in by_document
    )


def _by_score(rules: Rules, score: float, lowest: float) -> str | None:
    if rules.max_score is not None and score > rules.max_score:
        return "above max_score"
    if rules.min_score is not None and score < rules.min_score:
        return "below min_score"
    if rules.absolute_margin is not None and score > lowest - rules.absolute_margin:
        return "within the margin"
    # The absolute value: with a negative score, the bound would be above the lowest positive.
    if rules.relative_margin is not None and score > lowest - rules.relative_margin * abs(lowest):
        return "within the relative margin"
    return None
