"""`medteb pool` over runs that exist already: merging, counts, and runs that do not fit."""

from __future__ import annotations

import json

import pytest

ARGS = ("pool", "queries.jsonl", "documents.jsonl", "out", "-q")
BOTH = ("-r", "one.trec", "-r", "two=other.json")


@pytest.fixture
def runs(pooled):
    """Rankings of two systems for the first query; the second lists more documents, and the best one last."""
    first = ["d00", "d01"]
    second = ["d10", "d11", "d20", "d00"]
    rows = [f"q0 Q0 {name} {place} {9 - place} x" for place, name in enumerate(first, 1)]
    (pooled / "one.trec").write_text("\n".join(rows) + "\n")
    (pooled / "other.json").write_text(json.dumps({"q0": {name: 9.0 - i for i, name in enumerate(second)}}))
    return pooled


def pool_of(medteb, runs, rows_of, *more):
    code, out, err = medteb(*ARGS, *BOTH, *more)
    assert (code, err) == (0, "")
    first, *rest = rows_of(runs / "out" / "pools.jsonl")
    assert [row["corpus-ids"] for row in rest] == [[], []]
    return first, out


def test_fusion_prefers_documents_of_both_and_counts_the_others(medteb, runs, rows_of):
    row, out = pool_of(medteb, runs, rows_of)
    assert row["corpus-ids"][0] == "d00"
    assert set(row["corpus-ids"]) == {"d00", "d01", "d10", "d11", "d20"}
    assert list(row["ranks"]) == ["one", "two"]
    ranks = dict(zip(row["corpus-ids"], zip(*row["ranks"].values(), strict=True), strict=True))
    assert (ranks["d00"], ranks["d01"], ranks["d20"]) == ((1, 4), (2, None), (None, 3))
    assert out.splitlines() == [
        "5 pairs of 3 queries in out/pools.jsonl",
        "  one: 1 found by no other retriever",
        "  two: 3 found by no other retriever",
    ]
    code, again, _ = medteb(*ARGS, *BOTH, "--json")
    assert code == 0
    assert json.loads(again) == json.loads((runs / "out" / "manifest.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (("--merge", "union"), ["d00", "d10", "d01", "d11", "d20"]),
        (("--merge", "union", "--size", "2"), ["d00", "d10"]),
        (("--merge", "union", "--depth", "1"), ["d00", "d10"]),
    ],
)
def test_a_union_takes_the_best_ranks_of_each(medteb, runs, rows_of, more, expected):
    assert pool_of(medteb, runs, rows_of, *more)[0]["corpus-ids"] == expected


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "Missing option '-r' / '--retriever'"),
        ((*BOTH, "--merge", "mean"), "merge must be rrf or union; got 'mean'"),
        ((*BOTH, "--size", "0"), "size and depth must be at least 1"),
        (("-r", "a=one.trec", "-r", "a=other.json"), "Two of the retrievers have one name: a, a"),
        (("-r", "foreign.trec"), "foreign.trec:1: there is no document 'd99'"),
        (("-r", "gone.trec"), "gone.trec"),
    ],
)
def test_unusable_settings_are_refused(refused, runs, more, message):
    (runs / "foreign.trec").write_text("q0 Q0 d99 1 0.5 x\n")
    assert message in refused(*ARGS, *more)
    assert not (runs / "out" / "pools.jsonl").exists()


def test_another_run_needs_another_folder(refused, medteb, runs, rows_of):
    pool_of(medteb, runs, rows_of)
    (runs / "one.trec").write_text("q0 Q0 d01 1 0.5 x\n")
    assert "other retrievers" in refused(*ARGS, *BOTH)
