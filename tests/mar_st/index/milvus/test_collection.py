"""Tests of a collection of Milvus as an index: it answers as an index folder does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mar_st.commands.index import index_update
from mar_st.encode import VectorFolder, write_vectors
from mar_st.index import Index, IndexingError, Searcher, build_index
from mar_st.index.milvus import rows
from tests.mar_st.index.conftest import clustered, make_library

pytestmark = pytest.mark.usefixtures("closed_channels")


@pytest.fixture(scope="module")
def both(library, address, tmp_path_factory):
    root = tmp_path_factory.mktemp("folder")
    target = address()
    build_index(
        library.open, root / "folder", corpus=library.corpus, kind="exact", progress=False, bm25=False
    )
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    return Index.open(root / "folder"), Index.open(target)


@pytest.mark.thorough
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
    ids, other = milvus.search(library.queries, 10, where=where)
    assert [set(row) for row in ids] == [set(row) for row in expected]
    np.testing.assert_allclose(other, scores, atol=1e-5)


def test_milvus_has_the_interface_of_an_index_folder(library, both):
    folder, milvus = both
    assert (len(milvus), milvus.dim, milvus.similarity, milvus.space) == (1200, 32, "cosine", "a" * 64)
    assert milvus.fields == folder.fields
    one, other = (Searcher(index).search(library.queries[:3], 5, where="year>=2010") for index in both)
    assert [[(hit.id, hit.text, hit.metadata) for hit in hits] for hits in one] == [
        [(hit.id, hit.text, hit.metadata) for hit in hits] for hits in other
    ]
    with pytest.raises(IndexingError, match="has no BM25"):
        Searcher(milvus).search_vectors(library.queries[:1], ["x"], hybrid=True)


def test_documents_are_added_replaced_and_deleted(tmp_path, address):
    library = make_library(tmp_path / "library", count=60)
    target = address()
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
        (lambda: Index.open(f"{target}_none"), "no collection .*_none"),
    ):
        with pytest.raises(IndexingError, match=message):
            call()
    milvus.client.drop_collection(milvus.collection)
    with pytest.raises(IndexingError, match=r"Milvus \(.*\) answered: .+"):
        milvus.search(newer.vectors[:1], 1)


def test_an_update_is_reported_as_json(tmp_path, address, capsys):
    library = make_library(tmp_path / "library", count=20)
    target = address()
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    index_update(target, delete=["d3"], as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["count"], shown["dim"], shown["kind"]) == (19, 32, "exact")
    with pytest.raises(IndexingError, match="An id is not valid Unicode"):
        index_update(target, delete=["\udcff"])


def test_vectors_of_another_model_are_refused(tmp_path, address):
    library = make_library(tmp_path / "library", count=20)
    target = address()
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    milvus = Index.open(target)
    foreign = write_vectors(tmp_path / "foreign", ["d3"], clustered(1, 32), space="b" * 64)
    for replace in (False, True):
        with pytest.raises(IndexingError, match="another model"):
            milvus.add(foreign, corpus=library.corpus, replace=replace, progress=False)


def test_an_addition_with_a_document_that_does_not_fit_changes_nothing(tmp_path, address, monkeypatch):
    monkeypatch.setattr(rows, "_ROWS_PER_UPSERT", 2)
    library = make_library(tmp_path / "library", count=20)
    target = address()
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    milvus = Index.open(target)
    long = [json.dumps({"_id": f"n{row}", "text": "x" * (70_000 if row == 4 else 1)}) for row in range(5)]
    (tmp_path / "long.jsonl").write_text("\n".join(long))
    vectors = write_vectors(tmp_path / "long", [f"n{row}" for row in range(5)], clustered(5, 32))
    with pytest.raises(IndexingError, match="text of document 'n4' has 70000 bytes"):
        milvus.add(vectors, corpus=tmp_path / "long.jsonl", progress=False)
    assert len(milvus) == 20


def test_an_interrupted_addition_is_repeated(tmp_path, address):
    library = make_library(tmp_path / "library", count=20)
    target = address()
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    milvus = Index.open(target)
    part = make_library(tmp_path / "part", count=1, start=20, seed=3)
    more = make_library(tmp_path / "more", count=3, start=20, seed=3)
    write_vectors(tmp_path / "one", ["d20"], more.vectors[:1])
    milvus.add(VectorFolder.open(tmp_path / "one"), corpus=part.corpus, progress=False)
    milvus.add(more.open, corpus=more.corpus, progress=False)
    assert len(milvus) == 23
    other = make_library(tmp_path / "other", count=3, start=20, seed=4)
    with pytest.raises(IndexingError, match=r"'d20' is in .* already"):
        milvus.add(other.open, corpus=other.corpus, progress=False)


def test_another_client_sees_changes_at_once(tmp_path, address):
    library = make_library(tmp_path / "library", count=20)
    target = address()
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    milvus, other = Index.open(target), Index.open(target)
    milvus.delete(["d5"])
    with pytest.raises(IndexingError, match=r"\['d5'\] are not in"):
        other.delete(["d5"])
    assert len(other) == 19


@pytest.mark.thorough
def test_a_deleted_document_has_no_text(tmp_path, address):
    library = make_library(tmp_path / "library", count=20)
    target = address()
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    milvus = Index.open(target)
    scored = milvus.find(library.vectors[3:4], 2, None)
    assert milvus.document("d3") == milvus.documents(["d3"])[0]
    milvus.delete(["d3"])
    assert len(milvus) == 19  # and so a server has deleted it
    assert [(document.id, bool(document.text)) for document in milvus.documents(scored.keys[0])] == [
        ("d3", False),
        (scored.keys[0][1], True),
    ]
    assert milvus.document("d3") is None
