"""Tests of tables made of rows, in memory and in the cache."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import pytest

from mar_st.data.convert import converted
from mar_st.data.records import Triple
from mar_st.data.rows import Position
from mar_st.data.sequences import TEXTS_SCHEMA, TRIPLES_SCHEMA, Triples


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    monkeypatch.setenv("MAR_DATA_CACHE", str(tmp_path / "cache"))
    for name in ("arrow", "sequences"):
        monkeypatch.setattr(f"mar_st.data.{name}.ROWS_PER_READ", 8)


@pytest.fixture
def convert(tmp_path):
    """Converts the lines of a file to a table of texts; empty lines are left out."""
    calls = []

    def call(lines, *, mapped=True, name="rows.txt", limit=None, seed=1, settings=None, triples=False):
        file = tmp_path / name
        file.write_text("\n".join(lines), encoding="utf-8")
        rows = SimpleNamespace(
            name=name, path=file, files=[file], hub=None, size=file.stat().st_size,
            left_out=Counter(), ignored={}, position=Position(),
        )  # fmt: skip

        def read():
            calls.append(name)
            for line in lines:
                if not line:
                    rows.left_out["empty"] += 1
                else:
                    yield Triple(line, (line + "答",)) if triples else line

        return converted(
            rows,
            read,
            TRIPLES_SCHEMA if triples else TEXTS_SCHEMA,
            settings=settings or {},
            limit=limit,
            draw=lambda number, kept: sorted(random.Random(seed).sample(range(number), kept)),
            seed=seed,
            large=0 if mapped else 10**9,
        )

    call.calls = calls
    return call


LINES = [f"文{number}" * (number % 4) for number in range(60)]
TEXTS = [line for line in LINES if line]


def test_a_table_in_the_cache_is_read_once_and_keeps_its_counts(convert):
    for _ in range(2):
        table, about, key = convert(LINES)
        assert table.column("text").to_pylist() == TEXTS
        assert about["left_out"] == {"empty": 15}
        assert key is not None
    assert len(convert.calls) == 1


def test_a_small_table_is_made_in_memory_without_a_cache(convert, tmp_path):
    table, about, key = convert(LINES, mapped=False)
    assert table.column("text").to_pylist() == TEXTS
    assert (about["left_out"], about["digest"], key) == ({"empty": 15}, None, None)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("triples", [False, True])
@pytest.mark.parametrize("limit", [1, 17, 44])
def test_the_drawn_rows_are_the_same_in_memory_and_in_the_cache(convert, limit, triples):
    tables = []
    for mapped in (False, True, True):
        table, about, _ = convert(LINES, mapped=mapped, limit=limit, triples=triples)
        assert about["left_out"] == {"empty": 15, "beyond the limit": 45 - limit}
        tables.append(list(Triples(table)) if triples else table.column("text").to_pylist())
    assert tables[0] == tables[1] == tables[2]
    assert len(tables[0]) == limit


def test_a_limit_that_is_not_reached_changes_nothing(convert):
    assert convert(LINES, limit=45)[1:] == convert(LINES)[1:]


def test_every_difference_of_the_rows_gives_another_key(convert):
    keys = [
        convert(LINES)[2],
        convert(LINES[:-1])[2],
        convert(LINES, name="other.txt")[2],
        convert(LINES, settings={"where": {"a": ["b"]}})[2],
        convert(LINES, limit=9)[2],
        convert(LINES, limit=10)[2],
        convert(LINES, limit=9, seed=2)[2],
    ]
    assert len(set(keys)) == len(keys)
    assert convert(LINES)[2] == keys[0]


def test_digests_are_of_the_rows_that_are_kept(convert):
    digests = [convert(LINES)[1]["digest"], convert(LINES, limit=9)[1]["digest"]]
    drawn = convert(LINES, limit=9)[0].column("text").to_pylist()
    assert convert(drawn, name="drawn.txt")[1]["digest"] == digests[1] != digests[0]
