"""Tests of the kind `hnsw`: resumed builds, the two storages, and settings that fit."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.index import IndexingError, names
from mar_st.index import construct as constructing
from mar_st.index.kinds import hnsw
from mar_st.index.kinds.hnsw import HnswIndex
from mar_st.index.registry import kind_of
from tests.mar_st.index.conftest import clustered
from tests.mar_st.index.segments import built, rows_of

DIM = 32


@pytest.mark.thorough
@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_a_killed_graph_build_resumes_to_the_same_bytes(tmp_path, monkeypatch, storage):
    few = rows_of(clustered(9000, DIM))
    given = {"storage": storage, "M": 8}
    monkeypatch.setattr(constructing, "VECTORS_PER_READ", 3000)
    monkeypatch.setattr("mar_st.index.source.VECTORS_PER_READ", 3000)
    built(tmp_path / "whole", few, "hnsw", given)

    monkeypatch.setattr(hnsw, "SAVE_EVERY", -1.0)
    saved = []

    def killing(index, path, **options):
        save(index, path, **options)
        if path.name == "index.unfinished":
            saved.append(index.ntotal)
            raise KeyboardInterrupt

    save = hnsw.save
    monkeypatch.setattr(hnsw, "save", killing)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            built(tmp_path / "killed", few, "hnsw", given)
    monkeypatch.setattr(hnsw, "save", save)
    built(tmp_path / "killed", few, "hnsw", given)
    assert saved == [3000, 6000, 9000]
    assert (tmp_path / "killed" / names.INDEX).read_bytes() == (tmp_path / "whole" / names.INDEX).read_bytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"storage": "float16"}, "float32 or int8; got 'float16'"),
        ({"M": "abc"}, "M of hnsw must be a whole number from 2 to 2048; got 'abc'"),
        ({"M": -5}, "M of hnsw .* got -5"),
        ({"M": 10**9}, "M of hnsw .* got 1000000000"),
        ({"efConstruction": "abc"}, "efConstruction of hnsw must be a whole number from 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given, message):
    with pytest.raises(IndexingError, match=message):
        kind_of("hnsw").settings(given, DIM, 1000)


def test_a_graph_of_float32_holds_the_vectors_themselves(tmp_path):
    vectors = clustered(300, DIM)
    index = built(tmp_path / "index", rows_of(vectors), "hnsw", {})
    assert {path.name for path in (tmp_path / "index").iterdir()} == {names.INDEX}
    np.testing.assert_array_equal(index.vectors, vectors)
    assert not index.rescored
    index.check(300, DIM)
    with pytest.raises(IndexingError, match=rf"holds values of shape \(300, {DIM}\); \(301, {DIM}\)"):
        index.check(301, DIM)


def test_a_graph_of_int8_compares_candidates_with_vectors_in_float16(tmp_path):
    vectors, queries = clustered(300, DIM), clustered(6, DIM, seed=5)
    index = built(tmp_path / "index", rows_of(vectors), "hnsw", {"storage": "int8"})
    assert index.rescored
    np.testing.assert_array_equal(index.vectors, vectors.astype(np.float16))
    scores, rows = index.search(queries, 5, settings={"ef": 300, "rescore": 4})
    np.testing.assert_allclose(
        scores, np.take_along_axis(queries @ index.vectors.astype(np.float32).T, rows, 1), atol=1e-6
    )


def test_vectors_that_are_added_use_the_codes_of_the_first_segment(tmp_path):
    built(tmp_path / "first", rows_of(clustered(300, DIM)), "hnsw", {"storage": "int8"})
    shifted = rows_of(clustered(40, DIM, seed=2) + 1)
    built(tmp_path / "added", shifted, "hnsw", {"storage": "int8"}, like=tmp_path / "first")
    built(tmp_path / "alone", shifted, "hnsw", {"storage": "int8"})
    first, added, alone = (
        (tmp_path / name / names.TRAINED_INDEX).read_bytes() for name in ("first", "added", "alone")
    )
    assert added == first != alone


def test_time_grows_with_the_logarithm_of_the_vectors():
    """A graph that takes a hundred times as many vectors does not take a hundred times as long."""
    growth = HnswIndex.growth({}, {}, 100_000_000, 10_000)
    assert growth == pytest.approx(2, rel=0.01)
    assert HnswIndex.growth({}, {}, 10_000, 10_000) == 1
