"""Entries of the log: what is written can be read, and nothing else is taken for an entry."""

from __future__ import annotations

import random

import pytest

from medteb_mteb.curation.judge.entries import ECHO, OFF_TOPIC, Place, Request
from medteb_mteb.curation.judge.log import LogEntry, entry_size, read_entry

SETTINGS = b"s" * 8


def entry(count, **fields):
    draw = random.Random(count)
    request = Request(tuple(draw.randbytes(16) for _ in range(count)), 3, OFF_TOPIC | ECHO)
    grades = bytes(draw.choices(b"SABCD-", k=count))
    places = tuple(draw.randrange(count + 3) for _ in range(count))
    usual = {"number": 7, "answered": True, "places": places, "shown": count + 2, "origin": 9}
    return LogEntry(settings=SETTINGS, request=request, grades=grades, **(usual | fields))


def test_the_bytes_of_an_entry_stay_as_written_before():
    """Other bytes would make every journal unreadable."""
    request = Request((b"k" * 16, b"l" * 16), 1, OFF_TOPIC | ECHO)
    packed = LogEntry(7, SETTINGS, request, True, b"A-", (2, 4), 5, 9).packed()
    assert packed.hex() == (
        "a74d544a000000000000000773737373737373730001030100000009000500026b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c412d000200046179772c"
    )


@pytest.mark.parametrize("count", [0, 1, 10, 512])
@pytest.mark.parametrize("fields", [{}, {"answered": False, "number": 2**64 - 1, "origin": 2**32 - 1}])
def test_an_entry_is_read_as_it_was_written(count, fields):
    written = entry(count, **fields)
    packed = written.packed()
    assert read_entry(packed) == written
    assert entry_size(packed[:64]) == len(packed)


def test_no_changed_bit_and_no_other_length_is_read():
    packed = entry(3).packed()
    for place in range(len(packed)):
        for bit in range(8):
            changed = bytearray(packed)
            changed[place] ^= 1 << bit
            assert read_entry(bytes(changed)) is None
    for other in (packed[:-1], packed[1:], packed + b"\0", packed + packed):
        assert read_entry(other) is None


@pytest.mark.parametrize("content", [b"", b"\xa7MTJ", b"\xa7MTJ" * 10, b"\0" * 100, None, "text", 5, 0.5])
def test_other_values_of_a_row_are_no_entry(content):
    assert read_entry(content) is None


@pytest.mark.parametrize("content", [b"", b"\xa7MTJ" + b"\xff" * 27, b"\0" + b"\xff" * 100])
def test_no_entry_begins_where_the_mark_or_the_head_is_missing(content):
    assert entry_size(content) == 0


def test_a_passage_has_a_place_if_it_was_stored():
    written = entry(3, places=(2, 0, 5), shown=5)
    assert [written.place(position) for position in range(3)] == [Place(2, 5), None, Place(5, 5)]
    assert entry(3, places=(2, 0, 5), shown=0).place(0) is None
