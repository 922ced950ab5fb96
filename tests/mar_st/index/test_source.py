"""Tests of the vectors that an index is built from: normalised, joined, and read in blocks."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.index import IndexingError, source
from mar_st.index.source import FolderSource, JoinedSource, RowsSource, unit

VECTORS = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)


def _lengths(vectors):
    return np.linalg.norm(vectors.astype(np.float64), axis=1)


@pytest.mark.parametrize(
    ("dtype", "scales"),
    [
        (np.float16, (1e-5, 1e-2, 1, 1e4)),
        (np.float32, (1e-40, 1e-25, 1e-13, 1e-5, 1, 1e25, 1e37)),
        (np.float64, (1e-40, 1, 1e25)),
        (np.int64, (100,)),
    ],
)
def test_finite_vectors_of_any_length_become_unit_vectors(dtype, scales):
    for scale in scales:
        given = (VECTORS.astype(np.float64) * scale).astype(dtype)
        normalised = unit(given)
        assert normalised.dtype == np.float32
        expected = given.astype(np.float64) / np.linalg.norm(given.astype(np.float64), axis=1, keepdims=True)
        np.testing.assert_allclose(normalised, expected, atol=1e-6)


def test_a_vector_of_zeros_stays_and_others_have_the_same_bits_beside_it():
    odd = np.array([np.zeros(8), np.full(8, 1e-30), np.full(8, 3e38)], dtype=np.float32)
    mixed = unit(np.concatenate([VECTORS, odd]))
    np.testing.assert_array_equal(mixed[:40], unit(VECTORS))
    assert not mixed[40].any()
    np.testing.assert_allclose(_lengths(mixed[41:]), 1, atol=1e-6)


@pytest.fixture
def folder(tmp_path):
    def make(vectors=VECTORS, **options):
        return write_vectors(tmp_path / "v", [str(n) for n in range(len(vectors))], vectors, **options)

    return make


@pytest.mark.parametrize("dtype", ["float32", "int8", "binary"])
def test_vectors_compared_by_cosine_have_length_one_and_others_keep_theirs(folder, tmp_path, dtype):
    cosine = FolderSource(folder(dtype=dtype, similarity="cosine", shard=40))
    np.testing.assert_allclose(_lengths(cosine.take(np.arange(40))), 1, atol=1e-6)
    shutil.rmtree(tmp_path / "v")
    dot = FolderSource(folder(dtype=dtype, similarity="dot", shard=40))
    np.testing.assert_array_equal(dot.take(np.array([39, 0, 7])), dot.folder[[39, 0, 7]])


class Given:
    """Stands for a folder whose vectors are these, whatever a folder may be written with."""

    path, dim, dtype, normalised = "given", 8, "float32", False

    def __init__(self, vectors, similarity="cosine"):
        self.vectors, self.similarity = vectors, similarity

    def __len__(self):
        return len(self.vectors)

    def __getitem__(self, rows):
        return self.vectors[rows]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_values_that_are_not_finite_are_refused(value, similarity):
    broken = VECTORS.copy()
    broken[3, 2] = value
    opened = FolderSource(Given(broken, similarity))
    assert opened.take(np.array([4, 2])).shape == (2, 8)
    for read in (lambda: opened.take(np.array([4, 3])), lambda: list(opened.blocks())):
        with pytest.raises(
            IndexingError, match=r"given holds NaN or infinite values\. Encode the corpus again"
        ):
            read()


def test_a_folder_without_vectors_is_refused():
    with pytest.raises(IndexingError, match="given holds no vectors"):
        FolderSource(Given(VECTORS[:0]))


def _sources():
    """The same forty vectors, from one array, from several, and from several sources."""
    half = VECTORS.astype(np.float16)
    shuffled = np.random.default_rng(1).permutation(40)
    back = np.argsort(shuffled)
    whole = RowsSource([(half, np.arange(40))])
    parts = RowsSource([
        (half, np.arange(0)), (half, np.arange(15)), (half[shuffled], back[15:16]), (half, np.arange(16, 40)),
    ])  # fmt: skip
    joined = JoinedSource([
        RowsSource([(half, np.arange(11))]), RowsSource([(half, np.arange(0))]),
        JoinedSource([RowsSource([(half[shuffled], back[11:])])]),
    ])  # fmt: skip
    return {"whole": whole, "parts": parts, "joined": joined}


@pytest.mark.parametrize("name", ["whole", "parts", "joined"])
def test_rows_of_several_arrays_are_one_sequence(monkeypatch, name):
    monkeypatch.setattr(source, "VECTORS_PER_READ", 9)
    vectors, expected = _sources()[name], VECTORS.astype(np.float16).astype(np.float32)
    assert (len(vectors), vectors.dim) == (40, 8)
    rows = np.array([39, 0, 15, 15, 11, 10, 16])
    np.testing.assert_array_equal(vectors.take(rows), expected[rows])
    assert vectors.take(np.array([], dtype=int)).shape == (0, 8)
    for start in (0, 9, 30, 39):
        blocks = list(vectors.blocks(start))
        assert all(len(block) == 9 for block in blocks[:-1])
        np.testing.assert_array_equal(np.concatenate(blocks), expected[start:])
    assert list(vectors.blocks(40)) == []
