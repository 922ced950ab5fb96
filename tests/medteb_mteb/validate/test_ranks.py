"""Ranks of retrievers, read from pools."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.folders import FolderError
from medteb_mteb.validate.ranks import read_ranks

QUERIES, DOCUMENTS = {"q1", "q2", "7"}, {"a", "b", "c", "9"}


@pytest.fixture
def read(tmp_path):
    """Reads rows, or lines as they are, as the pools of a folder."""

    def call(*rows, queries=QUERIES, documents=DOCUMENTS):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / "pools.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return read_ranks(tmp_path, queries, documents)

    return call


def row(query, documents, **ranks):
    return {"query-id": query, "corpus-ids": list(documents), "ranks": ranks}


def test_a_rank_belongs_to_its_document_and_retriever(read):
    ranks = read(row("q1", "ab", bm25=[1, None], dense=[2, 1]), row("q2", "c", bm25=[1], dense=[None]))
    assert ranks.by_query == {
        "q1": {"a": {"bm25": 1, "dense": 2}, "b": {"dense": 1}},
        "q2": {"c": {"bm25": 1}},
    }


def test_a_run_ranks_what_its_retriever_found_best_first(read):
    run = read(row("q1", "abc", bm25=[3, 1, 2], dense=[1, None, None]), row("q2", "c", bm25=[1])).run("bm25")
    assert sorted(run["q1"], key=run["q1"].get, reverse=True) == ["b", "c", "a"]
    assert set(run["q2"]) == {"c"}
    dense = read(row("q1", "abc", bm25=[3, 1, 2], dense=[1, None, None]), row("q2", "c", bm25=[1])).run(
        "dense"
    )
    assert {query: set(found) for query, found in dense.items()} == {"q1": {"a"}, "q2": set()}


def test_documents_that_one_retriever_alone_found_are_told_apart(read):
    ranks = read(row("q1", "abc", bm25=[1, 2, None], dense=[1, None, None], sparse=[None, None, 1]))
    assert ranks.alone("bm25") == {"q1": {"b"}}
    assert ranks.alone("dense") == {"q1": set()}
    assert ranks.alone("sparse") == {"q1": {"c"}}


def test_retrievers_are_in_the_order_of_the_pools(read):
    """Whichever found the first document; one that found nothing is left out."""
    first = row("q1", "ab", bm25=[None, 1], none=[None, None], dense=[1, 2])
    assert read(first, row("q2", "c", dense=[1], late=[1])).retrievers == ("bm25", "dense", "late")


def test_other_queries_and_documents_are_ignored(read):
    ranks = read(row("q9", "a", other=[1]), row("q1", "az", bm25=[2, 1]), row(7, [9], bm25=[1]))
    assert ranks.by_query == {"q1": {"a": {"bm25": 2}}, "7": {"9": {"bm25": 1}}}
    assert ranks.retrievers == ("bm25",)


def test_parquet_pools_are_read(read, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [row("q1", "ab", bm25=[1, None], dense=[2, 1]), row("q2", "c", bm25=[1], dense=[None])]
    expected = read(*rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "pools.parquet")
    assert read_ranks(tmp_path / "pools.parquet", QUERIES, DOCUMENTS) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"query-id": "q1", "corpus-ids": ["a"]}, "expected 'corpus-ids' and 'ranks'"),
        (row("q1", "a", bm25=[1, 2]), "a list of the same length"),
        (row("q1", "a", bm25=None), "a list of the same length"),
        (row("q1", "a", bm25=["1"]), "ranks are whole numbers from 1"),
        (row("q1", "a", bm25=[True]), "ranks are whole numbers from 1"),
        (row("q1", "a", bm25=[1.0]), "ranks are whole numbers from 1"),
        (row("q1", "a", bm25=[0]), "ranks are whole numbers from 1"),
        (row("q1", "a", bm25=[float("nan")]), "ranks are whole numbers from 1"),
        (row("q1", [[]], bm25=[1]), "documents have ids"),
        (row("q1", "aba", bm25=[1, 2, 3]), "document 'a' is listed twice"),
        (row(None, "a", bm25=[1]), "expected 'query-id', the id of a query"),
        (row("q2", "b", bm25=[1]), "query 'q2' has an earlier row"),
        ('{"query-id": "q1", "corpus-ids": ["a"], "ra', "malformed JSON"),
    ],
)
def test_unusable_pools_are_named_with_file_and_line(read, line, message):
    with pytest.raises(FolderError) as caught:
        read(row("q2", "a", bm25=[1]), line)
    (problem,) = caught.value.problems
    assert problem.startswith("pools.jsonl:2: ")
    assert message in problem


def test_pools_of_other_queries_are_refused(read):
    with pytest.raises(BuildError, match="holds no pools of the queries of this edition"):
        read(row("z", "a", bm25=[1]), row("y", "", bm25=[]))
