"""Tests of the kind `exact`: the vectors themselves, and files that hold others."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.index import IndexingError
from mar_st.index.kinds.exact import ExactIndex
from mar_st.index.mask import Mask
from mar_st.index.names import VECTORS
from tests.mar_st.index.conftest import clustered
from tests.mar_st.index.segments import built, rows_of

COUNT, DIM = 200, 16


def test_the_vectors_are_the_only_file_and_unchanged(tmp_path):
    vectors = clustered(COUNT, DIM)
    index = built(tmp_path / "index", rows_of(vectors), "exact", {})
    assert [path.name for path in (tmp_path / "index").iterdir()] == [VECTORS]
    np.testing.assert_array_equal(index.vectors, vectors)
    assert (len(index), index.vectors.dtype) == (COUNT, np.float32)


def test_a_search_compares_every_vector_that_passes(tmp_path):
    vectors, queries = clustered(COUNT, DIM), clustered(7, DIM, seed=3)
    index = built(tmp_path / "index", rows_of(vectors), "exact", {})
    products = queries @ vectors.T
    passed = np.arange(COUNT) % 3 == 0
    for mask, allowed in ((None, products), (Mask(passed), np.where(passed, products, -np.inf))):
        scores, rows = index.search(queries, 9, mask=mask)
        np.testing.assert_array_equal(rows, np.argsort(-allowed, axis=1)[:, :9])
        np.testing.assert_allclose(scores, -np.sort(-allowed, axis=1)[:, :9], atol=1e-6)


def test_equal_scores_are_ordered_by_row(tmp_path):
    vectors = np.repeat(clustered(4, DIM), 5, axis=0)
    index = built(tmp_path / "index", rows_of(vectors), "exact", {})
    _, rows = index.search(clustered(4, DIM), 5)
    np.testing.assert_array_equal(rows, np.arange(20).reshape(4, 5))


@pytest.mark.parametrize(
    "change",
    [
        lambda vectors: vectors.astype(np.float16),
        lambda vectors: vectors.astype(np.float64),
        np.asfortranarray,
    ],
    ids=["float16", "float64", "columns"],
)
def test_another_type_or_order_is_refused(tmp_path, change):
    index = built(tmp_path / "index", rows_of(clustered(COUNT, DIM)), "exact", {})
    index.check(COUNT, DIM)
    np.save(tmp_path / "index" / VECTORS, change(clustered(COUNT, DIM)))
    with pytest.raises(IndexingError, match=rf"{VECTORS} holds float.*; float32 is expected, in row-major"):
        ExactIndex(tmp_path / "index").check(COUNT, DIM)


def test_other_numbers_of_vectors_or_dimensions_are_refused(tmp_path):
    index = built(tmp_path / "index", rows_of(clustered(COUNT, DIM)), "exact", {})
    for count, dim in ((COUNT - 1, DIM), (COUNT, DIM + 1)):
        with pytest.raises(IndexingError, match=rf"shape \({COUNT}, {DIM}\); \({count}, {dim}\) is expected"):
            index.check(count, dim)
