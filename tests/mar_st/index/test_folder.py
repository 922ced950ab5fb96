"""Tests of an index folder of several segments, some documents of which are deleted."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from mar_st.index import Index, IndexingError, add, build_index, delete
from mar_st.index.folder import _MAX_CACHED_FILTERS
from tests.mar_st.index.conftest import make_library
from tests.mar_st.index.parts import part

DELETED = ["d0", "d7", "d119", "d503"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of an index of three segments, its documents and their vectors by id."""
    folder = tmp_path_factory.mktemp("folder")
    first = make_library(folder / "first", count=120)
    build_index(
        first.open, folder / "index", corpus=first.corpus, kind="exact", tokens="char-bigram", progress=False
    )
    parts = [part(folder / "second", range(500, 530)), part(folder / "third", range(900, 904), seed=3)]
    for one in parts:
        add(folder / "index", one.folder, corpus=one.corpus, progress=False)
    delete(folder / "index", DELETED)
    libraries = [first, *parts]
    entries = {entry["_id"]: entry for one in libraries for entry in one.entries}
    vectors = dict(zip(entries, np.concatenate([one.vectors for one in libraries]), strict=True))
    return folder / "index", entries, vectors, first.queries


@pytest.fixture(scope="module")
def index(whole):
    opened = Index.open(whole[0])
    assert len(opened.segments) == 3
    return opened


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole[0], tmp_path / "index")


def live(whole):
    return [name for name in whole[1] if name not in DELETED]


def best(whole, k, passes=lambda one: True):
    _, entries, vectors, queries = whole
    names = [name for name in live(whole) if passes(entries[name])]
    scores = queries @ np.stack([vectors[name] for name in names]).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return [[names[place] for place in row] for row in order], np.take_along_axis(scores, order, 1)


def test_a_search_is_brute_force_over_all_segments(whole, index):
    ids, scores = index.search(whole[3], 200)
    expected, products = best(whole, 200)
    assert [set(row) for row in ids] == [set(live(whole))] * len(ids)
    assert [row[:50] for row in ids] == [row[:50] for row in expected]
    np.testing.assert_allclose(scores[:, : products.shape[1]], products, atol=1e-6)
    rows = index.exact(whole[3], 50)
    assert [[document.id for document in index.documents(row.tolist())] for row in rows] == [
        row[:50] for row in expected
    ]


def test_documents_are_those_of_their_keys_in_any_order(whole, index):
    keys = [key for key, _ in index.sample(10**6)]
    assert [document.id for document in index.documents(keys)] == live(whole)
    mixed = [keys[-1], keys[0], keys[130], keys[0], keys[-2]]
    assert [document.id for document in index.documents(mixed)] == [
        live(whole)[place] for place in (-1, 0, 130, 0, -2)
    ]
    for document in index.documents(mixed):
        assert (document.title, document.text) == (
            whole[1][document.id]["title"],
            whole[1][document.id]["text"],
        )
    assert index.documents([]) == []


def test_documents_of_all_segments_are_found_by_id_and_deleted_ones_are_not(whole, index):
    names = ["d1", "d501", "d902", "d1", "nobody", "", "d0", "d503"]
    assert {name: one.text for name, one in index.find_documents(names).items()} == {
        name: whole[1][name]["text"] for name in ("d1", "d501", "d902")
    }
    assert index.document("d502").id == "d502"
    assert index.document("d0") is None
    assert index.find_documents([]) == {}
    assert [len(rows) for rows in index.locate(names)] == [1, 1, 1]


@pytest.mark.parametrize("count", [0, 1, 2, 10, 149, 150, 10**6])
def test_a_sample_is_spread_over_the_index_without_deleted_documents(whole, index, count):
    sample = index.sample(count)
    names, everything = [document.id for _, document in sample], live(whole)
    assert len(index) == len(everything) == 150
    assert len(set(names)) == min(count, 150)
    assert set(names) <= set(everything)
    places = [everything.index(name) for name in names]
    assert places == sorted(places)
    if count > 1:
        assert (places[0], places[-1]) == (0, 149)
        assert np.ptp(np.diff(places)) <= 1


def test_filters_hold_after_more_of_them_than_are_kept(whole, index):
    years = sorted({entry["year"] for entry in whole[1].values()})
    filters = [{"year": {"gte": low, "lt": high}} for low in years for high in years if low < high]
    filters = filters[: _MAX_CACHED_FILTERS + 6]
    assert len(filters) == _MAX_CACHED_FILTERS + 6
    for where in filters:
        index.search(whole[3][:1], 3, where=where)
    for where in (filters[0], filters[-1], filters[-2], filters[5], filters[0]):
        low, high = where["year"].values()
        expected, scores = best(whole, 3, lambda one: low <= one["year"] < high)  # noqa: B023
        ids, found = index.search(whole[3], 3, where=where)
        assert ids == expected
        np.testing.assert_allclose(found[:, : scores.shape[1]], scores, atol=1e-6)


def test_measurements_are_seen_by_new_readers_only_and_keep_each_other(copied):
    reader = Index.open(copied)
    reader.keep("matches", "a", {"query": None, "threshold": 0.5, "false_reject": 0.05})
    reader.keep("efforts", "a", {"query": None, "search": {"ef": 16}})
    reader.keep("matches", "b", {"query": None, "threshold": 0.25, "false_reject": 0.05})
    reader.keep("matches", "a", {"query": None, "threshold": 0.75, "false_reject": 0.05})
    now = Index.open(copied)
    assert now.matches == {
        "a": {"query": None, "threshold": 0.75, "false_reject": 0.05},
        "b": {"query": None, "threshold": 0.25, "false_reject": 0.05},
    }
    assert now.efforts == {"a": {"query": None, "search": {"ef": 16}}}
    assert (reader.matches, reader.efforts) == ({}, {})
    assert (reader.changed(), now.changed()) == (True, False)
    assert now.generation == reader.generation + 4
    now.verify()


@pytest.mark.parametrize("name", ["vectors.npy", "rows.arrow", "documents.arrow"])
def test_a_missing_file_is_named(copied, name):
    (copied / "segments" / "000002" / name).unlink()
    with pytest.raises(IndexingError, match=rf"lacks .*000002/{name}.*Copy it there"):
        Index.open(copied)


def test_a_file_in_place_of_a_segment_is_one_error(copied):
    shutil.rmtree(copied / "segments" / "000002")
    (copied / "segments" / "000002").write_text("half a copy")
    with pytest.raises(IndexingError, match=r"lacks .*000002/.*Copy it there"):
        Index.open(copied)


def test_search_settings_of_a_damaged_manifest_are_one_error(whole, copied):
    path = copied / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "search": {"rescore": 0}}), encoding="utf-8")
    with pytest.raises(IndexingError, match="search settings are whole numbers from 1"):
        Index.open(copied)
