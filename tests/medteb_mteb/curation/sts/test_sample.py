"""The draw of one of the three rewrites of a query."""

from __future__ import annotations

from collections import Counter

import pytest

from medteb_mteb.curation.sts.prompt import REWRITE_KINDS
from medteb_mteb.curation.sts.sample import draw, score

IDS = [f"q{number}" for number in range(3000)]


def test_kinds_are_drawn_in_their_shares():
    shares = dict(zip(REWRITE_KINDS, (0.5, 0.3, 0.2), strict=True))
    drawn = Counter(draw(name, tuple(shares.values()), 42) for name in IDS)
    assert {kind: count / len(IDS) for kind, count in drawn.items()} == pytest.approx(shares, abs=0.03)


def test_a_kind_of_probability_zero_is_never_drawn():
    assert {draw(name, (0.5, 0.0, 0.5), 42) for name in IDS} == {"positive", "negative-2"}
    assert {draw(name, (0.0, 0.0, 1.0), 42) for name in IDS} == {"negative-2"}


def test_a_draw_depends_on_the_id_and_the_seed_alone():
    first = {name: draw(name, (1, 1, 1), 42) for name in IDS}
    assert {name: draw(name, (1, 1, 1), 42) for name in reversed(IDS)} == first
    # Weights count by their proportions.
    assert {name: draw(name, (4, 4, 4), 42) for name in IDS} == first
    other = {name: draw(name, (1, 1, 1), 43) for name in IDS}
    assert 0.55 < sum(first[name] != other[name] for name in IDS) / len(IDS) < 0.78


def test_only_the_positive_has_a_label_above_zero():
    assert {kind: score(kind) for kind in REWRITE_KINDS} == {
        "positive": 1.0,
        "negative-1": 0.0,
        "negative-2": 0.0,
    }
