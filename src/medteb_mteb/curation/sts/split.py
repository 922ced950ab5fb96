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

from mar_st.errors import MarError
from mar_st.text.texts import normalise
from medteb_mteb.curation.step import SEED
from medteb_mteb.curation.texts.near_duplicates import near_duplicates

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from medteb_mteb.curation.training.rows import HeldOut


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
    """

    test: list[str]
    train: list[str]
    left_out: dict[str, str] = field(default_factory=dict)


def split_by_entry(
    entries: Mapping[str, tuple[str, str]],
    sentences: Mapping[str, Sequence[str]],
    *,
    whole: Collection[str],
    test: float,
    training_queries: Sequence[str],
    held_out: HeldOut,
) -> QuerySplit:
    """Put whole entries on one side, in whichever direction they are used.

    Entries are drawn and go to the test as long as their queries fit.

    Args:
        entries: Dictionary entry by query id.
        sentences: All sentences by query id: the query, then its rewrites.
        whole: Ids of the queries that may be in the test.
        test: Maximum number of test queries, or their share of those if below 1; as many as there are, or
            more, takes all.
        training_queries: Queries that models were trained on, which must not be in the test.
        held_out: Queries of other tests; near-duplicates of them are left out of training.

    Raises:
        MarError: No entry fits into the test, or the whole test leaks.
    """
    of_test = [(name, text) for name in entries if name in whole for text in sentences[name]]
    near = near_duplicates([text for _, text in of_test], training_queries)
    leaks = {of_test[row][0] for row, _, _ in near}
    # Leaking queries are left out before the draw, so that the test is as large as possible.
    sizes = Counter(pair for name, pair in entries.items() if name in whole and name not in leaks)
    chosen = _drawn(sizes, round(test * len(whole)) if test < 1 else int(test))
    tested = [name for name, pair in entries.items() if pair in chosen]
    others = [name for name, pair in entries.items() if pair not in chosen]
    left_out = {name: "incomplete" for name in tested if name not in whole}
    left_out |= {name: "leak" for name in tested if name in leaks}
    kept = [name for name in tested if name not in left_out]
    # Training queries that are near the test.
    texts = [text for name in kept for text in sentences[name]]
    exact = {normalise(text) for text in texts}
    shared = (name for name in others if any(normalise(text) in exact for text in sentences[name]))
    left_out |= dict.fromkeys(shared, "shared-sentence")
    pairs = near_duplicates([sentences[name][0] for name in others], texts)
    left_out |= {others[row]: "near-test" for row, _, _ in pairs}
    rows = [(name, text) for name in others for text in sentences[name]]
    left_out |= {rows[row][0]: "near-other-test" for row in held_out.leaks([text for _, text in rows])}
    return QuerySplit(kept, [name for name in others if name not in left_out], left_out)


def _drawn(sizes: Counter[tuple[str, str]], wanted: int) -> set[tuple[str, str]]:
    """Return the entries of the test, given the number of usable queries of each."""
    order = sorted(sizes)
    random.Random(f"{SEED} entries").shuffle(order)
    chosen: set[tuple[str, str]] = set()
    room = wanted
    for pair in order:
        if sizes[pair] <= room:
            chosen.add(pair)
            room -= sizes[pair]
    if not sizes:
        raise MarError(
            "The test is empty: every query is near one of a training set, or lacks a valid rewrite. Give "
            "queries that no training set has, or another LLM."
        )
    if not chosen:
        raise MarError(
            f"The test is empty: {wanted} of {sizes.total()} queries may go there, and the smallest of "
            f"{len(sizes)} entries has {min(sizes.values())}. Give more queries, raise 'test', or set "
            "'per_entry'."
        )
    return chosen
