"""Overlapping spans of identifiers, resolved without leaving any of them uncovered."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS, Span, disjoint

KINDS = list(IDENTIFIER_KINDS)


@pytest.fixture
def drawn():
    """Draws spans of a text of 60 characters."""
    source = random.Random(0)

    def draw():
        spans = []
        for _ in range(source.randint(1, 12)):
            start = source.randrange(58)
            end = min(60, start + source.randint(1, 20))
            spans.append(Span(start, end, source.choice(KINDS)))
        return spans

    return draw


def test_each_character_belongs_to_the_longest_span_over_it(drawn):
    for spans in (drawn() for _ in range(100)):
        alone = disjoint(spans, "字" * 60)
        assert all(one.end <= other.start for one, other in pairwise(alone))
        for place in range(60):
            over = [span for span in spans if span.start <= place < span.end]
            kinds = {span.kind for span in alone if span.start <= place < span.end}
            longest = max((span.end - span.start for span in over), default=0)
            among = [KINDS.index(span.kind) for span in over if span.end - span.start == longest]
            assert kinds == ({KINDS[min(among)]} if over else set())


def test_the_order_and_repetitions_of_spans_do_not_matter(drawn):
    for spans in (drawn() for _ in range(50)):
        again = sorted(spans * 2, key=lambda span: (span.kind, -span.end))
        assert disjoint(again, "字" * 60) == disjoint(spans, "字" * 60)


def test_a_rest_of_punctuation_alone_is_no_span():
    text = "张三，（a@b.cn）"
    assert disjoint([Span(0, 2, "NAME"), Span(4, 10, "EMAIL"), Span(3, 11, "ACCOUNT")], text) == [
        Span(0, 2, "NAME"),
        Span(3, 11, "ACCOUNT"),
    ]
    assert disjoint([Span(3, 10, "EMAIL"), Span(2, 11, "NAME")], "12，（a@b.cn）")[0].kind == "NAME"
    assert disjoint([Span(0, 4, "PHONE"), Span(2, 8, "EMAIL")], "12，（a@b.cn") == [
        Span(0, 2, "PHONE"),
        Span(2, 8, "EMAIL"),
    ]
    assert disjoint([Span(2, 4, "NAME")], "12，（a@b.cn") == []
