from __future__ import annotations

import json
import re

import pytest

from mar_st.data import DataError, Triple, locate, read_triples, to_dataset


def _write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    _write(
        tmp_path / "corpus.jsonl", [{"_id": f"d{i}", "title": f"题{i}", "text": f"文{i}"} for i in range(4)]
    )
    _write(tmp_path / "queries.jsonl", [{"_id": "q0", "text": "问零"}, {"_id": "q1", "text": "问一"}])
    _write(
        tmp_path / "triples.jsonl",
        [
            {"query-id": "q0", "positives": ["d0", "d1"], "negatives": ["d2", "d3"]},
            {"query-id": "q1", "positives": ["d3"], "negatives": ["d0"]},
        ],
    )
    return tmp_path


def test_folder_and_file_give_the_same_triples(folder, tmp_path):
    triples = read_triples(str(folder))
    assert triples[0] == Triple("问零", ("题0\n文0", "题1\n文1"), ("题2\n文2", "题3\n文3"))
    rows = [{"query": t.query, "positives": t.positives, "negatives": t.negatives} for t in triples]
    assert read_triples(str(_write(tmp_path / "flat.jsonl", rows))) == triples


def test_single_strings_are_accepted(tmp_path):
    path = _write(tmp_path / "one.jsonl", [{"query": "问", "positive": "答", "negative": "错"}])
    assert read_triples(str(path)) == [Triple("问", ("答",), ("错",))]


def test_columns_hold_the_texts_of_the_triples(folder):
    data = to_dataset(read_triples(str(folder)), negatives=1, seed=0)
    assert data.column_names == ["query", "positive", "negative_1"]
    assert data["positive"] == ["题0\n文0", "题1\n文1", "题3\n文3"]
    assert set(data["negative_1"][:2]) <= {"题2\n文2", "题3\n文3"}
    assert data["negative_1"][2] == "题0\n文0"
    again = to_dataset(read_triples(str(folder)), negatives=1, seed=0)
    assert again.to_dict() == data.to_dict()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"bad\.jsonl:2: not a JSON object"),
        ("[" * 100_000, r"bad\.jsonl:2: not a JSON object"),
        ("[1]", r"bad\.jsonl:2: expected a JSON object, got list"),
        ('{"query": "问"}', r"bad\.jsonl:2: needs 'query' and 'positive'"),
        ('{"query": "", "positive": "答"}', r"bad\.jsonl:2: 'query' should be a text"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"query": "问", "positive": "答"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_triples(str(path))


def test_unknown_ids_and_missing_files_are_named(folder):
    _write(folder / "triples.jsonl", [{"query-id": "q9", "positives": ["d0"]}])
    with pytest.raises(DataError, match=r"triples\.jsonl:1: 'q9'"):
        read_triples(str(folder))
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(DataError, match=r"corpus\.jsonl is missing"):
        read_triples(str(folder))


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        ("triples", {"positives": ["d0"]}, "triples.jsonl:1: needs 'query-id'"),
        (
            "triples",
            {"query-id": "q0", "positives": None},
            "triples.jsonl:1: 'positives' should list at least",
        ),
        ("triples", {"query-id": "q0", "positives": []}, "triples.jsonl:1: 'positives' should list at least"),
        ("triples", {"query-id": "q0", "positives": "d0"}, "'positives' should be a list of ids; it is 'd0'"),
        (
            "triples",
            {"query-id": "q0", "positives": ["d0"], "negatives": "d1"},
            "'negatives' should be a list",
        ),
        ("triples", {"query-id": "q0", "positives": ["d9"]}, "triples.jsonl:1: 'd9' is not an _id in corpus"),
        ("corpus", {"text": "x"}, "corpus.jsonl:1: needs an '_id' and a 'text'"),
        ("corpus", {"_id": "d0"}, "corpus.jsonl:1: needs an '_id' and a 'text'"),
        ("corpus", {"_id": "d0", "text": None}, "corpus.jsonl:1: needs an '_id' and a 'text'"),
        (
            "queries",
            {"_id": "q0", "text": " "},
            "triples.jsonl:1: the text of 'q0' in queries.jsonl is empty",
        ),
    ],
)
def test_broken_rows_of_a_folder_are_named(folder, file, row, message):
    _write(folder / f"{file}.jsonl", [row])
    with pytest.raises(DataError, match=re.escape(message)):
        read_triples(str(folder))


def test_an_id_that_occurs_twice_is_refused(folder):
    _write(folder / "queries.jsonl", [{"_id": "q0", "text": "一"}, {"_id": "q0", "text": "二"}])
    with pytest.raises(DataError, match=r"queries\.jsonl:2: the _id 'q0' occurs twice"):
        read_triples(str(folder))


@pytest.mark.parametrize("negatives", [{}, {"negatives": None}, {"negatives": []}])
def test_rows_of_a_folder_may_have_no_negatives(folder, negatives):
    _write(folder / "triples.jsonl", [{"query-id": "q0", "positives": ["d0"], **negatives}])
    assert read_triples(str(folder)) == [Triple("问零", ("题0\n文0",))]


def test_missing_and_empty_sources_are_refused(tmp_path):
    with pytest.raises(DataError, match="No training data at"):
        read_triples(str(tmp_path / "nothing"))
    with pytest.raises(DataError, match="not installed"):
        locate("package:no_such_package/train")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="holds no triples"):
        read_triples(str(tmp_path / "empty.jsonl"))


def test_packaged_data_are_found():
    assert (locate("package:medteb_mteb/MedTEBRetrieval/train") / "triples.jsonl").is_file()


def test_scored_pairs_become_triples(tmp_path):
    rows = [
        {"sentence1": "问", "sentence2": "同", "score": 1.0},
        {"sentence1": "问", "sentence2": "异", "score": 0.0},
        {"sentence1": "无", "sentence2": "异", "score": 0},
    ]
    assert read_triples(str(_write(tmp_path / "sts.jsonl", rows))) == [Triple("问", ("同",), ("异",))]
    _write(tmp_path / "sts.jsonl", [*rows, {"sentence1": "问", "sentence2": "同"}])
    with pytest.raises(DataError, match=r"sts\.jsonl:4: needs 'sentence1'"):
        read_triples(str(tmp_path / "sts.jsonl"))
    (tmp_path / "sts.jsonl").write_text(
        '{"sentence1": "问", "sentence2": NaN, "label": 1}\n', encoding="utf-8"
    )
    with pytest.raises(DataError, match=r"sts\.jsonl:1: needs 'sentence1'"):
        read_triples(str(tmp_path / "sts.jsonl"))


def test_a_column_with_a_huge_number_is_not_a_negative(tmp_path):
    row = {"anchor": "a", "positive": "b", "negative_1": "c", f"negative_{'1' * 5000}": "d"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    assert [triple.negatives for triple in read_triples(str(tmp_path / "a.jsonl"))] == [("c",)]
