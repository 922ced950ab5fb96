"""Tests of the kind `ivf-pq`: settings that fit the vectors, cells, and training on few vectors."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.index import IndexingError
from mar_st.index.kinds.ivf_pq import TRAINED_PER_CENTROID, IvfPqIndex, subvectors
from mar_st.index.names import TRAINED_INDEX
from mar_st.index.source import RowsSource
from tests.mar_st.index.conftest import clustered

DIM = 16


def built(folder, vectors, like=None, **given):
    folder.mkdir()
    source = RowsSource([(vectors, np.arange(len(vectors)))])
    settings = IvfPqIndex.settings(given, vectors.shape[1], len(vectors))
    IvfPqIndex.construct(folder, source, settings, like=like, progress=False)
    return IvfPqIndex(folder)


@pytest.mark.parametrize("count", [1, 2, 3, 39, 80])
def test_few_vectors_are_indexed(tmp_path, count):
    vectors = clustered(count, DIM)
    scores, rows = built(tmp_path / "index", vectors).search(vectors, count + 1)
    assert (np.sort(rows[:, :count], axis=1) == np.arange(count)).all()
    assert (rows[:, count:] == -1).all()
    np.testing.assert_allclose(scores[:, 0], 1, atol=2e-3)
    assert (rows[:, 0] == np.arange(count)).mean() > 0.9


@pytest.mark.parametrize("count", [1, 38, 39, 100, 5_000, 10**6, 10**9])
@pytest.mark.parametrize("given", [{}, {"nlist": 10**6}, {"bits": 12}, {"m": 2}])
def test_there_are_enough_vectors_to_train_every_centroid(count, given):
    settings = IvfPqIndex.settings(given, DIM, count)
    assert all(type(value) is int and value >= 1 for value in settings.values())
    assert settings["m"] == given.get("m", 4)
    if count >= 2 * TRAINED_PER_CENTROID:
        assert settings["nlist"] * TRAINED_PER_CENTROID <= count
        assert 2 ** settings["bits"] * TRAINED_PER_CENTROID <= count
    if count == 10**9:
        assert given.items() <= settings.items()
        assert settings["bits"] == given.get("bits", 8)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("m", "-4"), ("m", -4), ("m", 2.0), ("m", True), ("nlist", "many"), ("nlist", -3), ("bits", None)],
)
def test_settings_that_are_no_whole_numbers_are_refused(setting, value):
    with pytest.raises(IndexingError, match=f"{setting} of ivf-pq is a whole number, 0 to choose one; got"):
        IvfPqIndex.settings({setting: value}, DIM, 1000)


@pytest.mark.parametrize("m", [5, 32, 10**9])
def test_codes_that_do_not_divide_the_dimensions_are_refused(m):
    with pytest.raises(IndexingError, match=f"m must divide the {DIM} dimensions of ivf-pq; got {m}"):
        IvfPqIndex.settings({"m": m}, DIM, 1000)


@pytest.mark.parametrize(
    ("dim", "width", "size"),
    [(768, 4, 192), (768, 8, 96), (100, 8, 10), (30, 4, 6), (7, 4, 1), (2, 8, 1), (1, 4, 1), (97, 4, 1)],
)
def test_codes_have_the_most_bytes_that_divide_the_dimensions(dim, width, size):
    assert subvectors(dim, width) == size


@pytest.mark.parametrize("dim", [1, 7, 30, 768])
def test_the_candidates_of_auto_fit_any_dimensions(dim):
    for given in IvfPqIndex.candidates(dim):
        settings = IvfPqIndex.settings(given, dim, 1000)
        assert dim % settings["m"] == 0
    assert dim % IvfPqIndex.milvus(dim, 1000).params["m"] == 0


def test_probing_all_cells_and_comparing_again_is_an_exact_search(tmp_path):
    vectors, queries = clustered(800, DIM), clustered(10, DIM, seed=3)
    index = built(tmp_path / "index", vectors, nlist=16)
    best = -np.sort(-(queries @ vectors.T), axis=1)[:, :5]
    scores, _ = index.search(queries, 5, settings={"nprobe": 10**30, "rescore": 160})
    np.testing.assert_allclose(scores, best, atol=2e-3)
    fewer, rows = index.search(queries, 5, settings={"nprobe": 1, "rescore": 160})
    assert (fewer <= scores + 1e-6).all()
    assert fewer.sum() < scores.sum()
    assert (rows >= 0).all()


def test_an_addition_uses_the_cells_and_codes_of_the_first_segment(tmp_path):
    built(tmp_path / "first", clustered(400, DIM))
    added = clustered(3, DIM, seed=8)  # too few to train 10 cells
    index = built(tmp_path / "added", added, like=tmp_path / "first")
    assert (tmp_path / "added" / TRAINED_INDEX).read_bytes() == (
        tmp_path / "first" / TRAINED_INDEX
    ).read_bytes()
    assert index.search(added, 1)[1].tolist() == [[0], [1], [2]]


def test_a_query_takes_longer_by_the_growth_of_the_cells():
    settings, sample = ({"nlist": cells} for cells in (4096, 1024))
    assert IvfPqIndex.growth(settings, sample, 4_000_000, 250_000) == pytest.approx(4)
    assert IvfPqIndex.growth(sample, sample, 250_000, 250_000) == 1
    assert IvfPqIndex.growth(settings, sample, 250_000, 250_000) == 1
