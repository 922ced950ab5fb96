"""Tests of the kind `int8`: rounded scores, exact comparisons of candidates, and shared codes."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.index.names import INDEX, TRAINED_INDEX, VECTORS
from tests.mar_st.index.conftest import clustered
from tests.mar_st.index.segments import built, rows_of

COUNT, DIM = 400, 16


@pytest.fixture
def vectors():
    return clustered(COUNT, DIM)


def test_scores_of_candidates_differ_by_the_rounding_alone(tmp_path, vectors):
    queries = clustered(5, DIM, seed=3)
    index = built(tmp_path / "index", rows_of(vectors), "int8", {})
    scores, rows = index.nearest(queries, COUNT, None, {"rescore": 1})
    step = (vectors.max(axis=0) - vectors.min(axis=0)) / 255
    error = np.abs(scores - np.take_along_axis(queries @ vectors.T, rows, 1))
    assert 0 < error.max() <= (np.abs(queries) @ step).max()
    assert (np.sort(rows, axis=1) == np.arange(COUNT)).all()


def test_candidates_are_compared_again_with_the_stored_vectors(tmp_path, vectors):
    queries = clustered(5, DIM, seed=3)
    index = built(tmp_path / "index", rows_of(vectors), "int8", {})
    scores, rows = index.search(queries, 6, settings={"rescore": COUNT})
    products = queries @ vectors.astype(np.float16).astype(np.float32).T
    np.testing.assert_array_equal(rows, np.argsort(-products, axis=1)[:, :6])
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :6], atol=1e-6)


def test_an_index_takes_one_byte_per_dimension(tmp_path, vectors):
    index = built(tmp_path / "index", rows_of(vectors), "int8", {})
    size = (tmp_path / "index" / INDEX).stat().st_size - (tmp_path / "index" / TRAINED_INDEX).stat().st_size
    assert index.memory({}, DIM, COUNT) == size == vectors.size


def test_vectors_that_are_added_use_the_codes_of_the_first_segment(tmp_path, vectors):
    """Ranges of other vectors would give codes that cannot be compared."""
    built(tmp_path / "first", rows_of(vectors), "int8", {})
    built(tmp_path / "added", rows_of(vectors[:30] / 4), "int8", {}, like=tmp_path / "first")
    built(tmp_path / "alone", rows_of(vectors[:30] / 4), "int8", {})
    first, added, alone = (
        (tmp_path / name / TRAINED_INDEX).read_bytes() for name in ("first", "added", "alone")
    )
    assert added == first != alone


@pytest.mark.parametrize("lost", [[INDEX], [INDEX, TRAINED_INDEX], [VECTORS, INDEX]], ids="-".join)
def test_a_build_that_stopped_ends_with_the_same_bytes(tmp_path, vectors, lost):
    folder = tmp_path / "index"
    built(folder, rows_of(vectors), "int8", {})
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in lost:
        (folder / name).unlink()
    built(folder, rows_of(vectors), "int8", {})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
