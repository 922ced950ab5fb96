"""The index of grades finds every key's places, among any others, before and after they are merged."""

from __future__ import annotations

import random

import pytest

from medteb_mteb.curation.judge.index import GradeIndex


@pytest.fixture(params=[1, 7, 10_000])
def merged_at(request, monkeypatch):
    """How many grades are collected before they are merged."""
    monkeypatch.setattr("medteb_mteb.curation.judge.index.MAX_RECENT", request.param)


def filled(count, head=lambda draw: draw.randbytes(8)):
    """An index of entries of up to nine keys, and the place of each key."""
    draw, index, places, number = random.Random(1), GradeIndex(), {}, 0
    while len(places) < count:
        number += draw.randrange(1, 1 << 40)
        keys = {head(draw) + draw.randbytes(8): position for position in range(draw.randrange(1, 10))}
        index.add(number, keys.items())
        places |= {key: (number, position) for key, position in keys.items()}
    return index, places


def test_every_key_is_found_at_its_place_and_no_other_is(merged_at):
    index, places = filled(300)
    assert len(index) == len(places)
    assert index.find(list(places)) == {key: [place] for key, place in places.items()}
    draw = random.Random(2)
    unknown = [draw.randbytes(16) for _ in range(300)]
    known = list(places)[::7]
    assert index.find([*unknown, *known]) == {key: [places[key]] for key in known}
    assert index.find([]) == {}


@pytest.mark.parametrize("heads", [1, 3])
def test_keys_that_begin_alike_are_among_what_is_found(merged_at, heads):
    index, places = filled(60, lambda draw: bytes([draw.randrange(heads)]) * 8)
    found = index.find(list(places))
    assert all(places[key] in found[key] for key in places)
    assert all(len(found[key]) == len(set(found[key])) for key in places)


def test_the_first_and_the_last_position_of_an_entry_are_found(merged_at):
    index = GradeIndex()
    index.add(5, [(b"\0" * 16, 0), (b"\xff" * 16, 65_535)])
    assert index.find([b"\xff" * 16, b"\0" * 16]) == {b"\0" * 16: [(5, 0)], b"\xff" * 16: [(5, 65_535)]}


def test_an_empty_index_finds_nothing():
    index = GradeIndex()
    index.add(1, [])
    assert len(index) == 0
    assert index.find([b"k" * 16]) == {}
