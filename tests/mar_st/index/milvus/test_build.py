"""Tests of building a collection: settings that reach a recall, stopped builds, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.index import Index, IndexingError, build_index
from mar_st.index.milvus import rows
from tests.mar_st.index.conftest import clustered

pytestmark = pytest.mark.usefixtures("closed_channels")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["hnsw", "int8", "auto"])
def test_searching_is_set_to_reach_the_recall(library, address, kind):
    target = address()
    lines = []
    about = build_index(
        library.open, target, corpus=library.corpus, kind=kind, recall=0.98, progress=False, say=lines.append
    )
    milvus = Index.open(target)
    assert milvus.settings == about["search"]
    assert about["measured"]["reached"]
    assert kind in lines[-1]
    expected, _ = library.best(10)
    ids, _ = milvus.search(library.queries, 10)
    shares = [len({*row} & {*best}) / 10 for row, best in zip(ids, expected, strict=True)]
    assert np.mean(shares) > 0.97
    if "ef" in milvus.settings:
        deep, _ = milvus.search(library.queries[:1], 1100)
        assert len(deep[0]) > 1000


@pytest.mark.thorough
def test_a_stopped_build_is_repeated(library, address, monkeypatch):
    target = address()
    with monkeypatch.context() as patched:
        patched.setattr(rows, "_ROWS_PER_UPSERT", 500)
        make = rows.row_of

        def stop(document, *arguments, **settings):
            return make(document, *arguments, **settings) if document.id != "d900" else 1 / 0

        patched.setattr(rows, "row_of", stop)
        with pytest.raises(ZeroDivisionError):
            build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    with pytest.raises(IndexingError, match="no collection"):
        Index.open(target)
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    assert len(Index.open(target)) == 1200


def test_fields_get_the_type_that_holds_all_their_values(tmp_path, address):
    entries = [
        {"_id": "a", "text": "x", "year": 2020, "score": 1, "code": 7, "checked": True},
        {"_id": "b", "text": "y", "year": 2021, "score": 0.5, "code": "C8"},
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    vectors = write_vectors(tmp_path / "vectors", ["a", "b"], clustered(2, 8))
    target = address()
    about = build_index(vectors, target, corpus=corpus, kind="exact", progress=False)
    types = {"checked": "boolean", "code": "string", "score": "number", "year": "integer"}
    assert (about["fields"], about["count"], about["texts"]) == (types, 2, True)
    index = Index.open(target)
    assert index.fields == types
    assert index.document("a").metadata == {"checked": True, "code": "7", "score": 1.0, "year": 2020}
    assert index.document("b").metadata == {"code": "C8", "score": 0.5, "year": 2021}


def test_a_kind_that_milvus_does_not_have_is_refused(library, tmp_path):
    with pytest.raises(IndexingError, match="in Milvus are auto, exact"):
        build_index(library.open, f"milvus:{tmp_path}/x.db", kind="binary", progress=False)
    assert list(tmp_path.iterdir()) == []
