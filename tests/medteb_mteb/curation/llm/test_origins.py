"""Origins of answers: what is kept of a server's words, and the numbers under which they are stored."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from medteb_mteb.curation.llm.origins import (
    ORIGINS_TABLES,
    Origin,
    answered,
    origin_number,
    origin_today,
    write_origin,
)

OLD, NEW = Origin("old", "fp", "2026-01-01"), Origin("new", "", "2026-05-05")


@pytest.fixture
def db():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        opened.executescript(ORIGINS_TABLES)
        yield opened


def stored(db):
    joined = "SELECT key, model, fingerprint, date FROM dated JOIN origins ON number = origin"
    return {key: Origin(*origin) for key, *origin in db.execute(joined)}


def test_strings_from_a_server_are_cut_to_one_short_line():
    origin = origin_today("a\nb\x00" + "c" * 300, "\ud800")
    assert origin.model.startswith("a b")
    assert len(origin.model) == 200
    assert origin.fingerprint == "?"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\x0b", "\x1c", "\x85", "\u2028", " \t "])
def test_no_end_of_line_of_any_kind_is_kept(end):
    origin = origin_today(f"{end}qwen{end}3{end}", end)
    assert (origin.model, origin.fingerprint) == ("qwen 3", "")


def test_origins_are_listed_by_day_without_what_is_unknown():
    unknown = Origin("", "", "2026-03-03")
    assert answered({NEW: 1, unknown: 2, OLD: 3}, "pairs") == [
        {"date": "2026-01-01", "model": "old", "system_fingerprint": "fp", "pairs": 3},
        {"date": "2026-03-03", "pairs": 2},
        {"date": "2026-05-05", "model": "new", "pairs": 1},
    ]
    assert answered({}, "pairs") == []


def test_an_origin_has_one_number_and_every_other_another(db):
    others = [
        OLD,
        NEW,
        Origin("old", "", "2026-01-01"),
        Origin("old", "fp", "2026-01-02"),
        Origin("", "", ""),
    ]
    numbers = [origin_number(db, one) for one in others]
    assert len(set(numbers)) == len(others)
    assert [origin_number(db, one) for one in others] == numbers


def test_the_first_origin_of_a_key_stays(db):
    write_origin(db, [b"1", b"2"], OLD)
    write_origin(db, [b"2", b"3"], NEW)
    assert stored(db) == {b"1": OLD, b"2": OLD, b"3": NEW}


@pytest.mark.parametrize("damage", [None, -3, 1 << 62, "text", b"bytes"])
def test_answers_whose_origin_was_lost_do_not_get_that_of_a_later_one(db, damage):
    write_origin(db, [b"1"], OLD)
    if damage is not None:
        db.execute("INSERT INTO dated VALUES (?, ?)", (b"damaged", damage))
    db.execute("DELETE FROM origins")
    write_origin(db, [b"2"], NEW)
    assert stored(db) == {b"2": NEW}
    assert origin_number(db, NEW) < 1 << 32  # as the log of judgements stores it
