"""Milvus Lite: the same answers as an index folder."""

from __future__ import annotations

import numpy as np
import pytest
from milvus_lite.server_manager import server_manager_instance

from mar_st.encode import write_vectors
from mar_st.index import Index, IndexingError, Searcher, build_index, parse_filter
from mar_st.index import milvus as module
from mar_st.index.milvus import expression
from tests.mar_st.index.conftest import clustered, make_library


@pytest.fixture(scope="module")
def both(library, tmp_path_factory):
    root = tmp_path_factory.mktemp("milvus")
    target = f"milvus:{root}/index.db"
    build_index(
        library.open, root / "folder", corpus=library.corpus, kind="exact", progress=False, bm25=False
    )
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    yield Index.open(root / "folder"), Index.open(target)
    server_manager_instance.release_server(f"{root}/index.db")


@pytest.mark.parametrize(
    "where",
    [
        None,
        {"department": "儿科"},
        {"department": ["儿科", "外科"], "year": {"gte": 2005, "lt": 2015}},
        {"score": {"lte": 10.5}},
        {"checked": True, "date": {"gte": "2024-03"}},
        {"department": 'quote " and \\ slash'},
        {"year": 1900},
    ],
)
def test_milvus_answers_as_the_folder_does(library, both, where):
    folder, milvus = both
    expected, scores = folder.search(library.queries, 10, where=where)
    found, other = milvus.search(library.queries, 10, where=where)
    assert [set(row) for row in found] == [set(row) for row in expected]
    np.testing.assert_allclose(other, scores, atol=1e-5)


def test_it_is_an_index_like_any_other(library, both):
    folder, milvus = both
    assert (len(milvus), milvus.dim, milvus.similarity, milvus.space) == (1200, 32, "cosine", "a" * 64)
    assert milvus.fields == folder.fields
    one, other = (Searcher(index).search(library.queries[:3], 5, where="year>=2010") for index in both)
    assert [[(hit.id, hit.text, hit.metadata) for hit in hits] for hits in one] == [
        [(hit.id, hit.text, hit.metadata) for hit in hits] for hits in other
    ]
    with pytest.raises(IndexingError, match="has no BM25"):
        Searcher(milvus).search_vectors(library.queries[:1], ["x"], hybrid=True)


def test_documents_come_and_go(tmp_path):
    library = make_library(tmp_path / "library", count=60)
    target = f"milvus:{tmp_path}/index.db/other"
    build_index(library.open, target, corpus=library.corpus, kind="hnsw", progress=False)
    milvus = Index.open(target)
    more = make_library(tmp_path / "more", count=5, start=60, seed=3)
    milvus.add(more.open, corpus=more.corpus, progress=False)
    assert milvus.search(more.vectors[:1], 1)[0] == [["d60"]]
    newer = make_library(tmp_path / "newer", count=2, start=60, seed=4)
    milvus.add(newer.open, corpus=newer.corpus, replace=True, progress=False)
    assert milvus.search(newer.vectors[:1], 1)[0] == [["d60"]]
    milvus.delete(["d61", "d3"])
    assert len(Index.open(target)) == 63
    assert milvus.search(newer.vectors[1:2], 1)[0] != [["d61"]]
    for call, message in (
        (lambda: milvus.delete(["d1", "d3"]), "nothing was deleted"),
        (lambda: milvus.add(more.open, corpus=more.corpus), "is in .* already"),
        (lambda: milvus.add(newer.open, corpus=newer.corpus, replace=True), "'d61' is not in"),
        (lambda: milvus.add(write_vectors(tmp_path / "n", ["n"], clustered(1, 8))), "8 dimensions"),
        (lambda: build_index(library.open, target, progress=False), "already"),
        (lambda: Index.open(f"milvus:{tmp_path}/index.db/none"), "no collection none"),
    ):
        with pytest.raises(IndexingError, match=message):
            call()
    server_manager_instance.release_server(f"{tmp_path}/index.db")


def test_a_build_that_stopped_is_done_anew(library, tmp_path, monkeypatch):
    target = f"milvus:{tmp_path}/index.db"
    with monkeypatch.context() as patched:
        patched.setattr(module, "_SENT", 500)
        send = module._row
        patched.setattr(
            module, "_row", lambda document, *rest: send(document, *rest) if document.id != "d900" else 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    with pytest.raises(IndexingError, match="no collection"):
        Index.open(target)
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    assert len(Index.open(target)) == 1200
    server_manager_instance.release_server(f"{tmp_path}/index.db")


def test_bad_addresses_are_refused(library, tmp_path):
    for target, message in (
        ("milvus:somewhere", "no address"),
        (f"milvus:{tmp_path}/none.db", "There is no Milvus Lite index"),
    ):
        with pytest.raises(IndexingError, match=message):
            Index.open(target)
    with pytest.raises(IndexingError, match="in Milvus are auto, exact"):
        build_index(library.open, f"milvus:{tmp_path}/x.db", kind="binary", progress=False)


def test_filters_are_translated():
    where = parse_filter({"a": ['x"y', "z"], "b": {"gte": 1, "lt": 2.5}, "c": True})
    typed = where.typed({"a": "string", "b": "number", "c": "boolean"})
    assert expression(typed, ["c", "a", "b"]) == (
        '(metadata_1 in ["x\\"y", "z"]) and (metadata_2 >= 1 and metadata_2 < 2.5) and (metadata_0 in [true])'
    )
