from __future__ import annotations

import csv
import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.sampling import allocate, draw, plan_sheet
from medteb_mteb.curation.labels.sheet import guarded, key_of, read_sheet
from medteb_mteb.folders.retrieval import RetrievalData
from medteb_mteb.measures.judged import Judged

SIZES = {"positive": 400, "negative": 90_000, "disputed": 12}


def test_every_stratum_has_its_minimum_and_the_budget_is_spent():
    allocated = allocate(SIZES, 500, 30)
    assert sum(allocated.values()) == 500
    assert allocated["disputed"] == 12  # all of them
    assert allocated["negative"] > allocated["positive"] >= 30
    # By the square roots of the sizes, 20 and 300, of what the third stratum leaves.
    assert abs(allocated["negative"] - 488 * 300 / 320) <= 0.5
    wide = allocate({"positive": 400, "negative": 10_000}, 240, 5)
    assert wide == {"positive": 40, "negative": 200}


def test_a_budget_above_the_total_takes_all_and_too_small_a_one_is_refused():
    assert allocate({"a": 5, "b": 7}, 100, 30) == {"a": 5, "b": 7}
    with pytest.raises(BuildError, match=r"3 strata .* take 72 pairs, and the budget is 60"):
        allocate(SIZES, 60, 30)
    assert allocate(SIZES, 72, 30) == {"positive": 30, "negative": 30, "disputed": 12}


def test_a_larger_sample_includes_the_smaller_one_of_each_stratum():
    pairs = {name: [(f"q{i}", f"d{i}", 1) for i in range(50)] for name in ("a", "b")}
    few = draw({"a": pairs["a"]}, {"a": 5}, 7)
    many = draw(pairs, {"a": 20, "b": 10}, 7)
    of_a = {one.pair for one in many if one.stratum == "a"}
    assert {one.pair for one in few} < of_a
    assert len(of_a) == 20
    assert [one.row for one in many] == list(range(1, 31))
    assert draw(pairs, {"a": 20, "b": 10}, 7) == many != draw(pairs, {"a": 20, "b": 10}, 8)


@pytest.fixture
def edition():
    """Ten queries: 2 positives, 6 negatives and 1 disputed document each."""
    queries = [{"id": f"q{i}", "text": f"=1+{i}"} for i in range(10)]
    corpus = [{"id": f"d{j}", "title": "", "text": f"第{j}条。"} for j in range(9)]
    qrels = {f"q{i}": {"d0": 1, "d1": 2, "d2": 0} for i in range(10)}
    judged = Judged(
        {f"q{i}": frozenset(f"d{j}" for j in range(2, 8)) for i in range(10)},
        {f"q{i}": frozenset({"d8"}) for i in range(10)},
    )
    return RetrievalData(corpus, queries, qrels, None, judged)


def test_probabilities_are_stored_and_types_divide_the_strata(edition, tmp_path):
    types = {f"q{i}": "drug" if i < 4 else "diet" for i in range(9)}
    strata = plan_sheet(edition, tmp_path / "sheet.csv", 45, minimum=2, types=types, seed=1)
    by_name = {one.name: one for one in strata}
    assert list(by_name) == sorted(by_name)
    assert by_name["negative, drug"].pairs == 24
    assert by_name["disputed, not stated"].pairs == by_name["disputed, not stated"].drawn == 1
    assert sum(one.drawn for one in strata) == 45
    content = json.loads(key_of(tmp_path / "sheet.csv").read_text())
    for row in content["rows"]:
        one = by_name[row["stratum"]]
        assert row["probability"] == one.drawn / one.pairs
        assert row["label"] == {"p": 1, "n": 0, "d": None}[row["stratum"][0]]
    read = read_sheet(tmp_path / "sheet.csv")
    assert read.pairs == {name: one.pairs for name, one in by_name.items()}
    # Another run with the same seed writes the same sheet.
    plan_sheet(edition, tmp_path / "again.csv", 45, minimum=2, types=types, seed=1)
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "sheet.csv").read_bytes()


def test_sheets_for_people_and_for_tools_hold_the_same_pairs(edition, tmp_path):
    plan_sheet(edition, tmp_path / "a.csv", 20, minimum=2)
    plan_sheet(edition, tmp_path / "b.jsonl", 20, minimum=2)
    with (tmp_path / "a.csv").open(encoding="utf-8-sig", newline="") as stream:
        people = list(csv.DictReader(stream))
    tools = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text("utf-8").splitlines()]
    assert [row["query"] for row in people] == [f"'{row['query']}" for row in tools]
    assert [row["document"] for row in people] == [row["document"] for row in tools]
    assert all(row["query"].startswith("=") and row["answer"] == "" for row in tools)
    assert "q1" not in (tmp_path / "a.csv").read_text("utf-8")
    with pytest.raises(BuildError, match="already exists"):
        plan_sheet(edition, tmp_path / "a.csv", 20, minimum=2)


@pytest.mark.parametrize("cell", ["=1", "+1", "-1", "@SUM", "\t=1", "\r1", "\n1", "  =1", "＝1", "－2"])
def test_no_cell_is_a_formula(cell):
    assert guarded(cell) == f"'{cell}"
    assert guarded(guarded(cell)) == f"'{cell}"
    assert guarded(f"x{cell}") == f"x{cell}"


def test_invalid_keys_are_refused(tmp_path):
    with pytest.raises(BuildError, match=r"There is no .*sheet\.key\.json"):
        read_sheet(tmp_path / "sheet.csv")
    for content in ("{", "{}", '{"strata": {}, "rows": [{"row": 1}]}', '{"strata": [], "rows": []}'):
        key_of(tmp_path / "sheet.csv").write_text(content)
        with pytest.raises(BuildError, match="not the key of a sheet"):
            read_sheet(tmp_path / "sheet.csv")
