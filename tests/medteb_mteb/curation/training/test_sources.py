"""Training rows with the columns that are not read, and rows made of them."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mar_st.data import DataError, Triple, read_triples
from medteb_mteb.curation.training.sources import Record, read_records, records_digest


def only(path):
    (record,) = read_records(path)
    return record


def test_columns_that_are_not_read_stay_with_their_row(write, tmp_path):
    rows = [
        {"query": "问一", "positive": "答一", "id": 7, "meta": {"科": ["内"]}},
        {"query": "问二", "positives": ["答二", "答三"], "negatives": ["错"]},
        {"query": "问一", "positive": "答四", "id": None, "source": "s"},
    ]
    records = read_records(write(tmp_path / "t.jsonl", rows))
    assert [record.more for record in records] == [{"id": 7, "meta": {"科": ["内"]}}, {}, {"id": None}]
    assert [record.triple.positives for record in records] == [("答一",), ("答二", "答三"), ("答四",)]
    assert records[2].triple.source == "s"


@pytest.mark.parametrize(
    "columns",
    [
        {"negative": "错"},
        {"neg": ["错"]},
        {"negative_1": "错", "id": 1},
        {"negative_1": "错", "negative_2": "假"},
        {"negative_passages": [{"title": "题", "text": "错"}]},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_a_row_without_its_negatives_has_none_when_it_is_read_again(write, tmp_path, columns):
    record = only(write(tmp_path / "t.jsonl", [{"query": "问", "positive": "答", **columns}]))
    assert record.triple.negatives
    again = read_triples(str(write(tmp_path / "u.jsonl", [record.row(["答"], [])])))[0]
    assert (again.positives, again.negatives) == (("答",), ())
    replaced = read_triples(str(write(tmp_path / "v.jsonl", [record.row(["对"], ["新"])])))[0]
    assert (replaced.positives, replaced.negatives) == (("对",), ("新",))


def test_a_rewritten_row_names_what_the_row_named():
    record = Record(Triple("问", ("甲",), ("乙",), instruction="找答案", source="s"), {"id": 3})
    assert record.row(iter(["甲", "丙"]), iter(["丁"])) == {
        "query": "问", "positives": ["甲", "丙"], "negatives": ["丁"], "instruction": "找答案", "source": "s",
        "id": 3,
    }  # fmt: skip
    assert Record(Triple("问", ("甲",))).row(["甲"], []) == {"query": "问", "positives": ["甲"]}


def test_the_instruction_of_a_row_is_bare(write, tmp_path):
    row = {"query": "问", "positive": "答", "instruction": "给定问题，检索答案", "id": 1}
    record = only(write(tmp_path / "t.jsonl", [row]))
    assert record.row(record.triple.positives, []) == {
        "query": "问", "positives": ["答"], "instruction": "给定问题，检索答案", "id": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "separator"), [("t.csv", ","), ("t.tsv", "\t"), ("t.csv.gz", ","), ("t.tsv.gz", "\t")]
)
def test_tables_are_read_without_their_other_columns(tmp_path, name, separator):
    content = "\n".join(separator.join(row) for row in (("query", "positive", "id"), ("问", "答", "1")))
    raw = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    record = only(tmp_path / name)
    assert (record.triple.query, record.triple.positives, record.more) == ("问", ("答",), {})


def test_a_gzipped_file_keeps_its_columns(tmp_path):
    row = {"query": "问", "positive": "答", "id": 1}
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    assert only(tmp_path / "t.jsonl.gz").more == {"id": 1}


def test_columns_of_a_file_beside_the_shards_are_not_mixed_in(write, tmp_path):
    pq.write_table(pa.table({"query": ["问"], "positive": ["答"]}), tmp_path / "part-0.parquet")
    write(tmp_path / "triples.jsonl", [{"query": "另", "positive": "别", "id": 9}])
    record = only(tmp_path)
    assert (record.triple.query, record.more) == ("问", {})


def test_pairs_of_sentences_and_rows_of_ids_have_no_other_columns(write, tmp_path):
    scored = write(tmp_path / "s.jsonl", [{"sentence1": "甲", "sentence2": "乙", "score": 1, "id": 4}])
    folder = tmp_path / "ids"
    write(folder / "corpus.jsonl", [{"_id": "d", "text": "答"}])
    write(folder / "queries.jsonl", [{"_id": "q", "text": "问"}])
    write(folder / "triples.jsonl", [{"query-id": "q", "positives": ["d"], "more": 1}])
    assert [only(source).more for source in (scored, folder)] == [{}, {}]


def test_the_digest_depends_on_every_column_and_on_the_order(write, tmp_path):
    rows = [{"query": "问", "positive": "答", "id": 1}, {"query": "乙", "positive": "丙", "id": 2}]
    changes = [rows, rows[::-1], rows[:1], [{**rows[0], "id": "1"}, rows[1]], [{**rows[0], "negative": "n"}]]
    digests = {
        records_digest(read_records(write(tmp_path / f"{i}.jsonl", change)))
        for i, change in enumerate(changes)
    }
    assert len(digests) == len(changes)
    written_otherwise = [{"id": 1, "positives": ["答"], "query": "问"}, rows[1]]
    again = records_digest(read_records(write(tmp_path / "same.jsonl", written_otherwise)))
    assert again == records_digest(read_records(tmp_path / "0.jsonl"))


@pytest.mark.parametrize("more", ['"id": "\\ud800"', '"id\\udc00": 1', '"m": {"a": ["\\ud83d"]}'])
def test_half_a_surrogate_pair_in_any_column_is_named_with_its_line(tmp_path, more):
    good = '{"query": "问", "positive": "答", "id": "\\ud83d\\ude00"}\n'
    (tmp_path / "t.jsonl").write_text(
        f'{good}\n{{"query": "a", "positive": "b", {more}}}\n', encoding="utf-8"
    )
    with pytest.raises(DataError, match=r"t\.jsonl:3: a column holds half of a surrogate pair"):
        read_records(tmp_path / "t.jsonl")
