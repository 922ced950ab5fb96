"""Test and training queries of synonym STS: no dictionary entry on both sides, and no near-duplicate query.

Only queries with all their rewrites go to the test: if one whose positive failed were paired with a negative,
the kind of the query would reveal the label.

Entries are not joined by near-duplicates: questions on different subjects can be alike, so all entries would
soon be one group. Instead, entries are divided, and training queries too near the test are left out.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mar_st.text.normalisation import normalise
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.texts.split import near_duplicates
from medteb_mteb.curation.training.leaks import HeldOut

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from medteb_mteb.curation.sts.select import SwappedQuery

__all__ = ["QuerySplit", "split_by_entry"]


@dataclass(frozen=True)
class QuerySplit:
    """Queries of test and training, by id, in the order given.

    Attributes:
        test: Ids of the test.
        train: Ids of training.
        left_out: Reason by id, for queries in neither. For an entry of the test: `incomplete` (a rewrite is
            missing), `leak` (near a query of a known training set). For the others: `near-test` (near a test
            query), `near-other-test` (near a query of another edition's test), `shared-sentence` (one of its
            sentences is also in the test).
        entries: Numbers of entries of the test and of training.
    """

    test: list[str]
    train: list[str]
    left_out: dict[str, str] = field(default_factory=dict)
    entries: tuple[int, int] = (0, 0)


def split_by_entry(
    candidates: Sequence[SwappedQuery],
    sentences: Mapping[str, Sequence[str]],
    *,
    whole: Collection[str],
    test: float,
    threshold: float,
    seed: int,
    training_queries: Sequence[str] = (),
    held_out: HeldOut | None = None,
) -> QuerySplit:
    """Put whole entries on one side, in whichever direction they are used.

    Entries are drawn with a seed and go to the test as long as their queries fit.

    Args:
        candidates: The queries with their entries.
        sentences: All sentences by query id: the query and its rewrites.
        whole: Ids of the queries that may be in the test.
        test: Maximum number of test queries, or their share of those if below 1; as many as there are, or
            more, takes all.
        threshold: See `near_duplicates`.
        seed: Seed of the draw.
        training_queries: Queries that models were trained on, which must not be in the test.
        held_out: Queries of other tests; near-duplicates of them are left out of training.

    Raises:
        BuildError: No entry fits into the test, or the whole test leaks.
    """
    pairs = {one.query.id: one.entry.pair for one in candidates}
    texts = {one.query.id: one.query.full for one in candidates}
    leaks = _leaks([name for name in pairs if name in whole], sentences, training_queries, threshold)
    if whole and len(leaks) == len(whole):
        raise BuildError(
            "The test is empty: all queries that could go to it are near-duplicates of training queries. "
            "Give more queries, or leave that training set out."
        )
    # Leaking queries are left out before the draw, so that the test is as large as possible.
    sizes = Counter(pair for name, pair in pairs.items() if name in whole and name not in leaks)
    entries = _entries(sizes, test, len(whole), seed)
    chosen = [name for name, pair in pairs.items() if pair in entries]
    left_out = dict.fromkeys((name for name in chosen if name not in whole), "incomplete")
    left_out |= {name: leaks[name] for name in chosen if name in leaks}
    kept = [name for name in chosen if name not in left_out]
    others = [name for name, pair in pairs.items() if pair not in entries]
    left_out |= _near(others, kept, texts, sentences, threshold)
    left_out |= _of_tests(others, sentences, held_out or HeldOut())
    train = [name for name in others if name not in left_out]
    counts = tuple(len({pairs[name] for name in side}) for side in (kept, train))
    return QuerySplit(kept, train, left_out, (counts[0], counts[1]))


def _entries(sizes: Counter[tuple[str, str]], test: float, total: int, seed: int) -> set[tuple[str, str]]:
    """Return the entries of the test, given each entry's usable queries, and the total for a share."""
    wanted = round(test * total) if test < 1 else int(test)
    order = sorted(sizes)
    random.Random(f"{seed} entries").shuffle(order)
    chosen: set[tuple[str, str]] = set()
    room = wanted
    for pair in order:
        if sizes[pair] <= room:
            chosen.add(pair)
            room -= sizes[pair]
    if not chosen:
        raise BuildError(
            f"The test is empty: {wanted} of {sizes.total()} queries with all rewrites may go there, and the "
            f"smallest of {len(sizes)} entries has {min(sizes.values(), default=0)}. Raise test, or set "
            "per_entry."
        )
    return chosen


def _leaks(
    test: Sequence[str], sentences: Mapping[str, Sequence[str]], training: Sequence[str], threshold: float
) -> dict[str, str]:
    rows = [(name, sentence) for name in test for sentence in sentences[name]]
    near = near_duplicates([sentence for _, sentence in rows], training, threshold=threshold)
    return {rows[row][0]: "leak" for row, _, _ in near}


def _of_tests(
    train: Sequence[str], sentences: Mapping[str, Sequence[str]], held_out: HeldOut
) -> dict[str, str]:
    rows = [(name, sentence) for name in train for sentence in sentences[name]]
    leaks = held_out.leaks([sentence for _, sentence in rows])
    return {rows[row][0]: "near-other-test" for row in leaks}


def _near(
    train: Sequence[str],
    test: Sequence[str],
    texts: Mapping[str, str],
    sentences: Mapping[str, Sequence[str]],
    threshold: float,
) -> dict[str, str]:
    reasons = {}
    test_sentences = {normalise(sentence) for name in test for sentence in sentences[name]}
    for name in train:
        if any(normalise(sentence) in test_sentences for sentence in sentences[name]):
            reasons[name] = "shared-sentence"
    tests = [sentence for name in test for sentence in sentences[name]]
    pairs = near_duplicates([texts[name] for name in train], tests, threshold=threshold)
    reasons.update({train[row]: "near-test" for row, _, _ in pairs})
    return reasons
