"""Pools read from files."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.pools import pool_files, read_pools
from medteb_mteb.folders import FolderError

QUERIES, DOCUMENTS = {"q1", "q2", "7"}, {"a", "b", "c", "9"}


@pytest.fixture
def write(tmp_path):
    """Writes rows, or lines as they are, and returns the file."""

    def call(*rows, name="pools.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return call


def row(query, *documents, **more):
    return {"query-id": query, "corpus-ids": list(documents), **more}


def problems(path):
    with pytest.raises(FolderError) as caught:
        read_pools(path, QUERIES, DOCUMENTS)
    return caught.value.problems


def test_pools_keep_the_order_of_the_file_and_name_a_document_once(write):
    path = write(row("q2", "b", "a", "b", score=1), row("q1", "c"))
    pools = read_pools(path, QUERIES, DOCUMENTS)
    assert list(pools.items()) == [("q2", ("b", "a")), ("q1", ("c",))]


def test_whole_numbers_are_ids_as_text(write):
    assert read_pools(write(row(7, 9, "a", "9")), QUERIES, DOCUMENTS) == {"7": ("9", "a")}


def test_parquet_and_jsonl_give_the_same_pools(write, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [row("q1", "a", "c"), row("q2", "b")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "pools.parquet")
    expected = read_pools(write(*rows), QUERIES, DOCUMENTS)
    assert read_pools(tmp_path / "pools.parquet", QUERIES, DOCUMENTS) == expected


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["b.jsonl", "a.jsonl", "notes.txt"], ["a.jsonl", "b.jsonl"]),
        (["queries.jsonl", "top_ranked-1.jsonl", "top_ranked-0.jsonl"],
         ["top_ranked-0.jsonl", "top_ranked-1.jsonl"]),
        (["corpus.jsonl", "top_ranked/test.jsonl"], ["top_ranked/test.jsonl"]),
    ],
)  # fmt: skip
def test_a_folder_gives_its_pools(write, tmp_path, present, expected):
    for name in present:
        write(row("q1", "a"), name=f"in/{name}")
    assert pool_files(tmp_path / "in") == [tmp_path / "in" / name for name in expected]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (row("q9", "a"), "there is no query 'q9'"),
        (row("q1", "a", "z"), "there is no document 'z'"),
        (row("q1", "a", None), "there is no document None"),
        (row("q1", "a", 1.0), "there is no document 1.0"),
        ({"query-id": "q1", "corpus-ids": "a"}, "expected 'query-id' and a list 'corpus-ids'"),
        ({"query-id": "q1", "corpus-id": "a"}, "the columns are query-id, corpus-id"),
        ({"query-id": True, "corpus-ids": ["a"]}, "expected 'query-id'"),
        ('{"query-id": "q1", "corpus-', "malformed JSON"),
        ("[]", "expected a JSON object, got list"),
    ],
)
def test_unusable_rows_are_named_with_file_and_line(write, line, problem):
    (message,) = problems(write(row("q2", "b"), line))
    assert message.startswith("pools.jsonl:2: ")
    assert problem in message


def test_a_query_has_one_row_in_all_files(write, tmp_path):
    write(row("q1", "a"), name="in/1.jsonl")
    write(row("q2", "b"), row("q1", "c"), name="in/2.jsonl")
    assert problems(tmp_path / "in") == ["2.jsonl:2: query 'q1' has an earlier row"]


def test_the_message_about_a_huge_entry_is_short(write):
    (message,) = problems(write(row("q1", "a", ["文" * 100_000])))
    assert len(message) < 150


def test_what_holds_no_pools_is_refused_with_what_to_give(write, tmp_path):
    (tmp_path / "empty").mkdir()
    for place, message in (
        (tmp_path / "none.jsonl", "There are no pools at .* Give a JSONL file, or a folder"),
        (write(name="pools.tsv"), "There are no pools at .* Give a JSONL file, or a folder"),
        (tmp_path / "empty", r"holds no .*\.jsonl or \.parquet files with pools"),
        (write(row("q1"), row("q2")), "holds no pairs to judge"),
    ):
        with pytest.raises(BuildError, match=message):
            read_pools(place, QUERIES, DOCUMENTS)
    assert problems(write()) == ["pools.jsonl: the file holds no rows"]
