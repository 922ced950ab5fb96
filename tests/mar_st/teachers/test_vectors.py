"""Tests of vectors in files: rows on request, keys of texts, and files that do not hold vectors."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest

from mar_st.errors import NotFiniteVectorError
from mar_st.teachers.vectors import KeyIndex, Part, StoreError, Vectors, text_keys

MATRIX = np.random.default_rng(0).standard_normal((10, 6)).astype(np.float32)


@pytest.fixture
def part(tmp_path):
    def make(matrix=MATRIX, name="a.npy"):
        np.save(tmp_path / name, matrix)
        return Part.npy(tmp_path / name)

    return make


def _places(*places):
    return np.array(places, dtype=np.int64).reshape(-1, 2)


@pytest.fixture
def several(part):
    """Rows of two files in mixed order, and what they should be."""
    first, second = part(), part(MATRIX[:3] * 2, "b.npy")
    vectors = Vectors([first, second], _places((1, 2), (0, 9), (0, 0), (1, 0), (0, 9)))
    return vectors, np.stack([MATRIX[2] * 2, MATRIX[9], MATRIX[0], MATRIX[0] * 2, MATRIX[9]])


def test_rows_of_several_files_are_one_array(several):
    vectors, expected = several
    assert (vectors.shape, len(vectors)) == ((5, 6), 5)
    np.testing.assert_array_equal(np.asarray(vectors), expected)
    np.testing.assert_array_equal(vectors[1], expected[1])
    for rows in (slice(1, 4), slice(None, None, -2), [4, 0, 0], np.array([3]), np.array([], dtype=int)):
        np.testing.assert_array_equal(vectors[rows], expected[rows])
    np.testing.assert_array_equal(np.concatenate(list(vectors.blocks(2))), expected)
    np.testing.assert_array_equal(vectors.select(np.array([4, 2]))[:], expected[[4, 2]])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(vectors))[:], expected)
    with pytest.raises(IndexError):
        vectors[5]


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8"])
def test_other_types_of_floats_are_read_as_float32(part, dtype):
    vectors = Vectors([part(MATRIX.astype(dtype))], _places((0, 3), (0, 1)))
    assert vectors[:].dtype == np.float32
    np.testing.assert_array_equal(vectors[:], MATRIX.astype(dtype).astype(np.float32)[[3, 1]])


def test_the_first_dimensions_are_kept_and_normalised(several):
    vectors, expected = several
    cut = vectors.cut(3, normalised=True)
    np.testing.assert_allclose(np.linalg.norm(cut[:], axis=1), 1, rtol=1e-6)
    ratios = cut[:] / expected[:, :3]
    np.testing.assert_allclose(ratios, ratios[:, :1].repeat(3, axis=1), rtol=1e-5)
    np.testing.assert_array_equal(vectors.cut(3).select(np.array([1]))[:], expected[1:2, :3])
    assert [vectors.cut(dim).shape for dim in (None, 6, 99)] == [(5, 6)] * 3
    with pytest.raises(StoreError, match="dim is 7, but the vectors have only 6 dimensions"):
        Vectors(vectors.parts, vectors.places, dim=7)


def test_no_files_are_no_vectors_of_the_given_width():
    vectors = Vectors([], _places(), width=4)
    assert (vectors.shape, vectors[:].shape, list(vectors.blocks())) == ((0, 4), (0, 4), [])


@pytest.mark.parametrize(("dtype", "value"), [("f4", np.nan), ("f4", -np.inf), ("f8", 1e300)])
def test_a_vector_that_is_not_finite_is_named_when_it_is_read(part, dtype, value):
    broken = MATRIX.astype(dtype)
    broken[7, 2] = value
    vectors = Vectors([part(), part(broken, "b.npy")], _places((0, 7), (1, 6), (1, 7)))
    assert np.isfinite(vectors[:2]).all()
    with pytest.raises(
        NotFiniteVectorError,
        match=r"Vector 7 of .*b\.npy holds NaN, infinite values or values",
    ):
        vectors[[2, 0]]


@pytest.mark.parametrize("shape", [(0, 6), (3, 0)])
def test_an_empty_array_is_one_of_vectors(part, shape):
    empty = part(np.zeros(shape, np.float32))
    assert (empty.open().shape, empty.width) == (shape, shape[1])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3), dtype=np.int8), r"holds int8 of shape \(2, 3\); vectors are floats"),
        (np.zeros(6, dtype=np.float32), r"of shape \(6,\)"),
        (np.zeros((2, 3, 4), dtype=np.float32), r"of shape \(2, 3, 4\)"),
        (np.asfortranarray(MATRIX), "in C order"),
        (np.array([["a"]]), "holds <U1"),
    ],
)
def test_arrays_of_something_else_are_refused(part, array, message):
    with pytest.raises(StoreError, match=message):
        part(array)


@pytest.mark.parametrize(
    "damage", [lambda content: b"", lambda content: content[:-4], lambda content: content[:40]]
)
def test_a_damaged_file_is_one_error_before_and_after_it_was_listed(tmp_path, part, damage):
    vectors, path = Vectors([part()], _places((0, 9))), tmp_path / "a.npy"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match=r"a\.npy cannot be read as an array of vectors"):
        Part.npy(path)
    with pytest.raises(StoreError, match=r"a\.npy no longer holds vectors of shape \(10, 6\)"):
        vectors[:]


def test_keys_tell_texts_apart_and_do_not_depend_on_the_block(monkeypatch):
    texts = ["", "头疼", "头疼 ", "é", "e\u0301", "\0", "头疼", *(f"文{number}" for number in range(50))]
    keys = text_keys(texts)
    assert len(set(keys.tolist())) == len(set(texts)) == len(texts) - 1
    assert keys[1] == keys[6] == hashlib.sha256("头疼".encode()).digest()[:16]
    monkeypatch.setattr("mar_st.teachers.vectors.BLOCK_KEYS", 7)
    np.testing.assert_array_equal(text_keys(texts), keys)
    assert len(text_keys([])) == 0


def test_keys_are_found_at_their_first_position():
    texts = ["c", "a", "b", "a", "c"]
    index = KeyIndex(text_keys(texts))
    assert index.find(text_keys(["a", "z", "c", "b", ""])).tolist() == [1, -1, 0, 2, -1]
    assert index.find(text_keys([])).tolist() == []
    assert KeyIndex(text_keys([])).find(text_keys(["a"])).tolist() == [-1]


def test_keys_that_end_in_zeros_are_found():
    content = np.array([[1] * 15 + [0], [1] * 14 + [0, 0], [0] * 16, [0] * 15 + [1]], dtype=np.uint8)
    keys = np.frombuffer(content.tobytes(), dtype="S16")
    assert KeyIndex(keys[:3]).find(keys).tolist() == [0, 1, 2, -1]
