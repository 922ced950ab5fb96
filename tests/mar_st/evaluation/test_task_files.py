"""Files of a task folder: what `medteb run` refuses, `mar ablate` refuses too."""

from __future__ import annotations

import json

import pytest

from mar_st.errors import MarError
from mar_st.evaluation.task_files import read_pairs, read_retrieval


def _write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    _write(tmp_path / "corpus.jsonl", [{"_id": f"d{i}", "title": f"t{i}", "text": f"x{i}"} for i in range(3)])
    _write(tmp_path / "queries.jsonl", [{"_id": f"q{i}", "text": f"y{i}"} for i in range(2)])
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t2\n")
    lists = [{"query-id": f"q{i}", "corpus-ids": ["d0", "d1"]} for i in range(2)]
    _write(tmp_path / "top_ranked.jsonl", lists)
    _write(tmp_path / "test.jsonl", [{"sentence1": "a", "sentence2": "b", "score": i} for i in range(2)])
    return tmp_path


def test_the_tables_of_a_folder_are_read(folder):
    assert read_retrieval(folder, "test", rerank=True) == {
        "queries": {"q0": "y0", "q1": "y1"},
        "corpus": {"d0": "t0\nx0", "d1": "t1\nx1"},
        "qrels": {"q0": {"d0": 1}, "q1": {"d1": 2}},
        "candidates": {"q0": ["d0", "d1"], "q1": ["d0", "d1"]},
    }
    assert set(read_retrieval(folder, "test", rerank=False)["corpus"]) == {"d0", "d1", "d2"}
    assert read_pairs(folder, "test") == {"pairs": [("a", "b")] * 2, "gold": [0.0, 1.0]}


def test_a_document_may_be_a_title_alone_and_numbers_are_ids(folder):
    _write(folder / "corpus.jsonl", [{"_id": i, "title": f"t{i}", "text": ""} for i in range(2)])
    (folder / "qrels" / "test.tsv").write_text("q0\t0\t1\nq1\t1\t1\n")
    assert read_retrieval(folder, "test", rerank=False)["corpus"] == {"0": "t0\n", "1": "t1\n"}


def test_titles_of_queries_are_not_part_of_them(folder):
    _write(folder / "queries.jsonl", [{"_id": f"q{i}", "title": "no", "text": f"y{i}"} for i in range(2)])
    assert read_retrieval(folder, "test", rerank=False)["queries"] == {"q0": "y0", "q1": "y1"}


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        ("corpus.jsonl", {"_id": "d9", "text": ""}, r"corpus\.jsonl:4: the text of 'd9' is empty"),
        ("corpus.jsonl", {"_id": "d9", "text": " ", "title": "t"}, r":4: the text of 'd9' is empty"),
        ("corpus.jsonl", {"_id": True, "text": "x"}, r":4: '_id' is a string that is not empty; got True"),
        ("corpus.jsonl", {"id": None, "text": "x"}, r":4: 'id' is a string that is not empty; got None"),
        ("queries.jsonl", {"_id": 1.5, "text": "x"}, r"queries\.jsonl:3: '_id' is .*; got 1\.5"),
        ("queries.jsonl", {"_id": "q9", "text": "", "title": "t"}, r":3: the text of 'q9' is empty"),
        ("top_ranked.jsonl", {"query-id": "q9", "corpus-ids": ["d0"]}, r":3: there is no query 'q9'"),
        (
            "top_ranked.jsonl",
            {"query-id": "q0", "corpus-ids": ["d0"]},
            r":3: a second list for the query 'q0'",
        ),
    ],
)
def test_an_unusable_row_is_named(folder, file, row, message):
    with (folder / file).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
    with pytest.raises(MarError, match=message):
        read_retrieval(folder, "test", rerank=True)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["d0", "x"], "there is no document 'x'"),
        (["d0", True], "there is no document True"),
        (["d0", "d0"], "the document 'd0' is listed twice"),
        ([], "no candidates"),
    ],
)
def test_an_unusable_list_of_candidates_is_named(folder, ids, message):
    _write(folder / "top_ranked.jsonl", [{"query-id": "q0", "corpus-ids": ids}])
    with pytest.raises(MarError, match=rf"top_ranked\.jsonl:1: {message}"):
        read_retrieval(folder, "test", rerank=True)


def test_a_pair_that_is_judged_twice_is_named(folder):
    twice = r":3: the document 'd0' is judged twice for the query 'q0'"
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t0\nq0\td0\t1\n")
    with pytest.raises(MarError, match=r"test\.tsv" + twice):
        read_retrieval(folder, "test", rerank=False)


@pytest.mark.parametrize(
    "row",
    [
        {"query-id": True, "corpus-id": "d0", "score": 1},
        {"query-id": "q0", "corpus-id": None, "score": 1},
        {"query-id": "q0", "corpus-id": "d0", "score": True},
        {"query-id": "q0", "corpus-id": "d0", "score": "1"},
        {"query-id": "q0", "corpus-id": "d0", "score": 2**31},
    ],
)
def test_an_unusable_judgement_is_named(folder, row):
    (folder / "qrels" / "test.tsv").unlink()
    _write(folder / "qrels" / "test.jsonl", [row])
    with pytest.raises(MarError, match=r"test\.jsonl:1: needs 'query-id', 'corpus-id' and 'score'"):
        read_retrieval(folder, "test", rerank=False)


@pytest.mark.parametrize("pair", [(" ", "b", 1), ("a", 3, 1), ("a", "b", True), ("a", "b", "1")])
def test_an_unusable_pair_is_named(folder, pair):
    _write(folder / "test.jsonl", [dict(zip(("sentence1", "sentence2", "score"), pair, strict=True))])
    with pytest.raises(MarError, match=r"test\.jsonl:1: needs 'sentence1', 'sentence2' and a finite"):
        read_pairs(folder, "test")


def test_pairs_of_pair_classification_are_not_scored_as_sts(folder):
    _write(
        folder / "test.jsonl", [{"sentence1": "a", "sentence2": f"b{n}", "label": n % 2} for n in range(4)]
    )
    with pytest.raises(MarError, match=r"test\.jsonl:1: 'label' is a column of pair classification"):
        read_pairs(folder, "test")
