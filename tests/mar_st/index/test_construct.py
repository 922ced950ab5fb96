"""Tests of the steps of a build: vectors on disk, samples to train on, and files that are written or kept."""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import pytest

from mar_st.index import IndexingError
from mar_st.index import construct as constructing
from mar_st.index import source as sources
from mar_st.index.construct import blocks, cells, sampled, save, trained, write_vectors
from mar_st.index.names import TRAINED_INDEX
from tests.mar_st.index.conftest import clustered
from tests.mar_st.index.segments import rows_of

COUNT, DIM = 300, 8


@pytest.fixture
def source():
    return rows_of(clustered(COUNT, DIM))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(sources, "VECTORS_PER_READ", 64)
    monkeypatch.setattr(constructing, "VECTORS_PER_READ", 64)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.usefixtures("small_blocks")
def test_all_vectors_are_written_in_their_order(tmp_path, source, dtype):
    write_vectors(tmp_path / "v.npy", source, dtype, progress=False)
    written = np.load(tmp_path / "v.npy")
    assert (written.dtype, written.flags.c_contiguous) == (dtype, True)
    np.testing.assert_array_equal(written, clustered(COUNT, DIM).astype(dtype))
    assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]


@pytest.mark.filterwarnings("error")
def test_values_beyond_float16_stay_the_largest(tmp_path):
    vectors = np.array([[1e5, -1e9, 65_504.0, 2.0]], dtype=np.float32)
    write_vectors(tmp_path / "half.npy", rows_of(vectors), "float16", progress=False)
    np.testing.assert_array_equal(np.load(tmp_path / "half.npy"), [[65_504.0, -65_504.0, 65_504.0, 2.0]])
    write_vectors(tmp_path / "full.npy", rows_of(vectors), "float32", progress=False)
    np.testing.assert_array_equal(np.load(tmp_path / "full.npy"), vectors)


@pytest.mark.usefixtures("small_blocks")
def test_a_build_continues_at_the_row_where_it_stopped(source):
    rest = np.concatenate(list(blocks(source, "graph", progress=False, start=128)))
    np.testing.assert_array_equal(rest, clustered(COUNT, DIM)[128:])


def test_a_sample_is_the_same_each_time_and_holds_no_vector_twice(source, monkeypatch):
    np.testing.assert_array_equal(sampled(source), clustered(COUNT, DIM))
    monkeypatch.setattr(constructing, "MAX_TRAINING_VECTORS", 100)
    drawn = sampled(source)
    np.testing.assert_array_equal(sampled(source), drawn)
    places = [int(np.flatnonzero((clustered(COUNT, DIM) == row).all(axis=1))[0]) for row in drawn]
    assert len(places) == 100
    assert places == sorted(set(places))
    assert places[-1] > 200  # not the first ones


def test_a_trained_index_is_kept_and_not_trained_again(tmp_path, source):
    calls = []

    def untrained():
        calls.append(1)
        return faiss.IndexScalarQuantizer(DIM, faiss.ScalarQuantizer.QT_8bit)

    assert trained(tmp_path, source, untrained, None).is_trained
    content = (tmp_path / TRAINED_INDEX).read_bytes()
    (tmp_path / "added").mkdir()
    for folder, like in ((tmp_path, None), (tmp_path / "added", tmp_path)):
        assert trained(folder, source, untrained, like).ntotal == 0
        assert (folder / TRAINED_INDEX).read_bytes() == content
    assert calls == [1]


def test_an_index_that_cannot_be_written_is_one_error_and_leaves_no_file(tmp_path, monkeypatch):
    def full(index, path):
        Path(path).write_bytes(b"half")
        raise RuntimeError("Error in fwrite:\n  No space left on device")

    monkeypatch.setattr(faiss, "write_index", full)
    with pytest.raises(
        IndexingError, match=r"x.faiss cannot be written \(.*No space left.*Free disk space"
    ) as error:
        save(faiss.IndexFlatIP(DIM), tmp_path / "x.faiss")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_cells_grow_with_the_square_root_of_the_vectors():
    counts = [0, 1, 100, 10_000, 1_000_000, 10**9]
    made = [cells(count) for count in counts]
    assert made == sorted(made)
    assert all(number & (number - 1) == 0 for number in made)
    assert cells(4 * 10**6) == 2 * cells(10**6)
