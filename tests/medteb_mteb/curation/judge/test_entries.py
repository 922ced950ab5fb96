"""Digests and checksums that identify judgements and requests, and places in prompts."""

from __future__ import annotations

import hashlib

import pytest

from medteb_mteb.curation.judge.entries import (
    ECHO,
    GOLD,
    OFF_TOPIC,
    Place,
    Request,
    judgement_key,
    places_of,
    proof,
)

SETTINGS, ONE, TWO = b"s" * 8, b"k" * 16, b"l" * 16


def test_keys_and_checksums_stay_as_written_before():
    """Another value would buy every judgement again."""
    assert judgement_key(SETTINGS, b"q" * 32, b"p" * 32).hex() == "7fc636dbe8675a279f1b87b1e52f3af9"
    assert Request((ONE,), 1, OFF_TOPIC | ECHO).id(SETTINGS).hex() == "b66498290469b908679984e772a760ac"
    assert proof(ONE, SETTINGS, "A").hex() == "deed3d0d"


def test_keys_tell_judgements_apart():
    q, p = hashlib.sha256(b"q").digest(), hashlib.sha256(b"p").digest()
    keys = {judgement_key(SETTINGS, q, p), judgement_key(SETTINGS, p, q), judgement_key(b"x" * 8, q, p)}
    assert len(keys) == 3
    request = Request((ONE, TWO))
    ids = {request.id(SETTINGS), request.id(b"x" * 8), Request((TWO, ONE)).id(SETTINGS)}
    ids |= {Request(request.keys, 1).id(SETTINGS), Request(request.keys, 0, OFF_TOPIC).id(SETTINGS)}
    assert len(ids) == 5


def test_a_checksum_tells_any_change_of_a_row():
    rows = [(ONE, SETTINGS, "A"), (TWO, SETTINGS, "A"), (ONE, b"t" * 8, "A"), (ONE, SETTINGS, "B")]
    assert len({proof(*row) for row in rows}) == 4


@pytest.mark.parametrize(
    ("control", "kinds"),
    [(0, ()), (OFF_TOPIC, (OFF_TOPIC,)), (GOLD | OFF_TOPIC, (OFF_TOPIC, GOLD)), (7, (OFF_TOPIC, ECHO, GOLD))],
)
def test_a_request_names_its_control_passages(control, kinds):
    assert Request((ONE,), 0, control).controls == kinds


def test_places_count_from_one_among_all_passages_that_are_shown():
    request = Request((ONE, TWO), 0, OFF_TOPIC | GOLD)
    assert places_of(request, (0, 3)) == {ONE: Place(1, 4), TWO: Place(4, 4)}
    with pytest.raises(ValueError, match="zip"):
        places_of(request, (0,))
