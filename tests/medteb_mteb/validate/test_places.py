"""Places of passages in their prompts, from the file beside some judgements."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.validate.places import read_places

KEY = {"judge": "j", "query-id": "q1", "corpus-id": "d1"}


@pytest.fixture
def write(tmp_path):
    """Writes `places.jsonl` with these rows, or these bytes."""

    def call(*rows):
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        (tmp_path / "places.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        return tmp_path

    return call


def test_places_run_from_the_first_passage_to_the_last(write):
    rows = [{**KEY, "corpus-id": f"d{place}", "place": place, "of": 5} for place in range(1, 6)]
    places = read_places(write(*rows), {"q1"})
    assert places == {("j", "q1", f"d{place}"): (place - 1) / 4 for place in range(1, 6)}


def test_prompts_of_one_passage_and_other_queries_have_no_places(write):
    rows = [{**KEY, "place": 1, "of": 1}, {**KEY, "query-id": "q2", "place": 2, "of": 2}]
    assert read_places(write(*rows), {"q1"}) == {}


def test_places_belong_to_the_judgements_beside_them(write, tmp_path):
    folder = write({**KEY, "place": 2, "of": 2})
    assert read_places(folder / "judgements.jsonl", {"q1"}) == read_places(folder, {"q1"})
    assert read_places(folder / "mine.jsonl", {"q1"}) is None
    (tmp_path / "places.jsonl").unlink()
    assert read_places(folder, {"q1"}) is None


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"\xff",
        b"[]",
        b'"judge"',
        b"[" * 100_000,
        {**KEY, "place": 1},
        {**KEY, "place": 0, "of": 2},
        {**KEY, "place": 3, "of": 2},
        {**KEY, "place": "1", "of": 2},
        {**KEY, "place": True, "of": 2},
        {**KEY, "place": 1.5, "of": 2},
        {**KEY, "place": float("inf"), "of": float("inf")},
        {**KEY, "place": 1, "of": float("nan")},
        {**KEY, "judge": None, "place": 1, "of": 2},
    ],
)
def test_a_row_that_is_no_place_is_named_by_its_line(write, row):
    folder = write({**KEY, "place": 1, "of": 2}, row)
    with pytest.raises(BuildError, match=r"places\.jsonl:2: expected .* Run medteb judge again"):
        read_places(folder, {"q1"})
