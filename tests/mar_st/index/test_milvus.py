"""A collection of Milvus answers as an index folder does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.index.base import Index
from mar_st.index.build import build_index
from mar_st.index.milvus import _literal
from mar_st.index.searcher import Searcher
from tests.mar_st.index.conftest import clustered, make_library

pytest.importorskip("pymilvus")
pytestmark = pytest.mark.usefixtures("closed_channels")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return make_library(tmp_path_factory.mktemp("small") / "library", range(200))


@pytest.fixture(scope="module")
def both(small, address, tmp_path_factory):
    root, target = tmp_path_factory.mktemp("folder"), address()
    build_index(small.open, root / "folder", corpus=small.corpus, kind="exact", progress=False, bm25=False)
    build_index(small.open, target, corpus=small.corpus, kind="exact", progress=False)
    return Index.open(root / "folder"), Index.open(target)


@pytest.mark.parametrize(
    "where",
    [
        None,
        {"department": ["儿科", "外科"], "year": {"gte": 2005, "lt": 2015}},
        {"score": {"lte": 10.5}},
        {"checked": True, "date": {"gte": "2024-03"}},
        {"department": 'quote " and \\ slash") or (id != "'},
        {"year": 1900},
    ],
)
def test_milvus_answers_as_the_folder_does(small, both, where):
    folder, milvus = both
    expected, scores = folder.search(small.queries, 10, where=where)
    ids, other = milvus.search(small.queries, 10, where=where)
    assert [set(row) for row in ids] == [set(row) for row in expected]
    np.testing.assert_allclose(other, scores, atol=1e-5)


def test_milvus_has_the_interface_of_an_index_folder(small, both):
    folder, milvus = both
    assert (len(milvus), milvus.dim, milvus.similarity, milvus.space) == (200, 32, "cosine", "a" * 64)
    assert milvus.fields == folder.fields
    one, other = (Searcher(index).search(small.queries[:3], 5, where="year>=2010") for index in both)
    assert [[(hit.id, hit.text, hit.metadata) for hit in hits] for hits in one] == [
        [(hit.id, hit.text, hit.metadata) for hit in hits] for hits in other
    ]
    assert milvus.document("d3") == folder.document("d3")
    assert milvus.document("d999") is None
    with pytest.raises(MarError, match="has no BM25"):
        Searcher(milvus).search_vectors(small.queries[:1], ["x"], hybrid=True)


def test_documents_are_added_replaced_and_deleted(tmp_path, address):
    library = make_library(tmp_path / "library", range(60))
    target = address()
    build_index(library.open, target, corpus=library.corpus, kind="hnsw", progress=False)
    milvus = Index.open(target)
    more = make_library(tmp_path / "more", range(60, 65), seed=3)
    milvus.add(more.open, corpus=more.corpus, progress=False)
    newer = make_library(tmp_path / "newer", range(60, 62), seed=4)
    milvus.add(newer.open, corpus=newer.corpus, progress=False)
    assert milvus.search(newer.vectors[:1], 1)[0] == [["d60"]]
    milvus.delete(["d61", "d3"])
    assert len(Index.open(target)) == 63
    foreign = write_vectors(tmp_path / "foreign", ["d3"], clustered(1, 32), space="b" * 64)
    long = [json.dumps({"_id": "long", "text": "x" * 70_000})]
    (tmp_path / "long.jsonl").write_text("\n".join(long))
    vectors = write_vectors(tmp_path / "long", ["long"], clustered(1, 32))
    for call, message in (
        (lambda: milvus.delete(["\udcff"]), "Unicode"),
        (lambda: milvus.add(foreign, corpus=library.corpus), "another model"),
        (lambda: milvus.add(vectors, corpus=tmp_path / "long.jsonl"), "exceeds Milvus' 65535 bytes"),
        (lambda: build_index(library.open, target, progress=False), "already"),
        (lambda: Index.open(f"{target}_none"), "no collection"),
        (lambda: Index.open("milvus:ftp://x"), "not an address|no Milvus Lite"),
    ):
        with pytest.raises(MarError, match=message):
            call()


def test_a_value_cannot_end_its_literal():
    hostile = '" or id != "x" \\" -- {v0}'
    assert json.loads(_literal(hostile)) == hostile
    assert _literal([hostile, "b"]) == f'[{_literal(hostile)}, "b"]'
    assert _literal(1.0) == "1.0"
    assert _literal('a\nb\t"\\') == '"a\\nb\\t\\"\\\\"'
