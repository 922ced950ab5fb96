"""Tests of what all kinds of index have in common: scores, masks, results, files and settings."""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import pytest

from mar_st.index import IndexingError, names
from mar_st.index import kind as searching
from mar_st.index.kind import read_array, read_index
from mar_st.index.mask import Mask
from mar_st.index.registry import kind_of, registered
from mar_st.index.tune import calibrate, exact_results, recall
from tests.mar_st.index.conftest import clustered
from tests.mar_st.index.segments import COUNT, DIM, built, many, rows_of

CASES = [(kind, {}) for kind in registered()] + [
    ("hnsw", {"storage": "int8", "M": 16}),
    ("ivf-pq", {"nlist": 16, "m": 8}),
]


@pytest.fixture(scope="module")
def source():
    return many()


@pytest.fixture(
    scope="module", params=CASES, ids=lambda case: "-".join(map(str, (case[0], *case[1].values())))
)
def folder(request, source, tmp_path_factory):
    faiss.omp_set_num_threads(1)
    kind, given = request.param
    path = tmp_path_factory.mktemp("kind")
    built(path, source, kind, given)
    return kind, kind_of(kind).settings(given, DIM, COUNT), path


@pytest.fixture
def searchable(folder):
    return kind_of(folder[0])(folder[2])


@pytest.mark.thorough(but=["hnsw", "hnsw-int8-16"])
def test_scores_are_inner_products_by_falling_score(searchable, source):
    queries = clustered(30, DIM, seed=5)
    scores, rows = searchable.search(queries, 10)
    vectors = source.take(np.arange(COUNT))
    exact = np.take_along_axis(queries @ vectors.T, rows, 1)
    tolerance = 1e-6 if searchable.vectors.dtype == np.float32 else 1e-3
    np.testing.assert_allclose(scores, exact, atol=tolerance)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert all(len(set(row)) == 10 for row in rows.tolist())


@pytest.mark.thorough(but=["binary", "exact", "hnsw", "hnsw-int8-16", "int8"])
def test_recall_reaches_its_target(searchable, source):
    expected = exact_results(source, None)
    measured = calibrate(searchable, expected, 0.95, searchable.LADDER)
    assert measured["reached"]
    assert recall(searchable, expected, measured["search"]) == pytest.approx(measured["recall@10"], abs=1e-4)


@pytest.mark.parametrize("share", [0.5, 0.06, 0.001])
def test_a_mask_keeps_the_best_of_those_that_pass(searchable, source, share, monkeypatch):
    monkeypatch.setattr(searching, "BRUTE_ROWS", 100)
    passed = np.random.default_rng(3).random(COUNT) < share
    queries = clustered(20, DIM, seed=6)
    most = {"ef": 256, "rescore": 40, "nprobe": 512}
    scores, rows = searchable.search(
        queries, 10, mask=Mask(passed), settings={key: most[key] for key in searchable.SEARCH}
    )
    assert passed[rows].all()
    allowed = np.flatnonzero(passed)
    exact = queries @ source.take(allowed).T
    best = np.argsort(-exact, axis=1)[:, :10]
    shares = [len(set(row) & set(allowed[top])) / 10 for row, top in zip(rows.tolist(), best, strict=True)]
    brute = searchable.kind == "exact" or share < searching.BRUTE_SHARE
    assert np.mean(shares) >= (0.99 if brute else 0.93)
    if searchable.kind == "exact":
        np.testing.assert_allclose(scores, np.take_along_axis(exact, best, 1), atol=1e-6)
    assert (searchable.search(queries, 10, mask=Mask(np.zeros(COUNT, bool)))[1] == -1).all()


def test_missing_results_are_filled_with_minus_one(source, tmp_path):
    few = rows_of(source.take(np.arange(200)))
    for kind, given in CASES:
        folder = tmp_path / f"{kind}{len(given)}"
        scores, rows = built(folder, few, kind, given).search(clustered(3, DIM), 250)
        assert (np.sort(rows[:, :200], axis=1) == np.arange(200)).all()
        assert (rows[:, 200:] == -1).all()
        assert np.isneginf(scores[:, 200:]).all()


def test_queries_whose_candidates_run_out_are_searched_exactly(source, tmp_path, monkeypatch):
    """A graph may end before there are enough, above all with a mask."""
    index = built(tmp_path / "index", rows_of(source.take(np.arange(300))), "int8", {})
    queries, nearest = clustered(6, DIM, seed=5), index.nearest
    scores, rows = index.search(queries, 10, settings={"rescore": 30})

    def few(*arguments):
        found, places = nearest(*arguments)
        found[::2, 7:], places[::2, 7:] = -np.inf, -1
        return found, places

    monkeypatch.setattr(index, "nearest", few)
    again, same = index.search(queries, 10, settings={"rescore": 30})
    np.testing.assert_array_equal(same, rows)
    np.testing.assert_allclose(again, scores, atol=1e-6)


def test_opening_maps_files_without_reading_them(searchable):
    """Opening must cost no memory of the size of the index."""
    lines = Path("/proc/self/smaps").read_text().split("\n")
    mapped = {line.split()[-1].rpartition("/")[2] for line in lines if " r--" in line or " rw-" in line}
    wanted = (
        {names.VECTORS} if searchable.vectors.dtype == np.float16 or searchable.kind == "exact" else set()
    )
    wanted |= {names.INDEX} if searchable.kind != "exact" else set()
    assert wanted <= mapped


def test_the_memory_estimate_is_near_the_size_of_the_files(folder):
    kind, params, path = folder
    file = path / (names.VECTORS if kind == "exact" else names.INDEX)
    assert kind_of(kind).memory(params, DIM, COUNT) == pytest.approx(file.stat().st_size, rel=0.06)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("flat", {}, "exact, int8, binary, hnsw, ivf-pq"),
        ("exact", {"M": 3}, "no setting 'M'; it has none"),
        ("hnsw", {"m": 3}, "it has M, efConstruction, storage"),
        ("ivf-pq", {"m": 5}, "must divide the 32 dimensions"),
    ],
)
def test_settings_that_do_not_fit_are_refused(kind, given, message):
    with pytest.raises(IndexingError, match=message):
        kind_of(kind).settings(given, DIM, COUNT)


@pytest.mark.parametrize("read", [read_index, read_array])
def test_a_file_that_cannot_be_read_is_one_error(tmp_path, read):
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError, match="file"):
        read(path)
    path.write_bytes(b"neither an array\nnor an index")
    with pytest.raises(IndexingError, match=r"file (cannot be read|is not a readable array).*again") as error:
        read(path)
    assert "\n" not in str(error.value)
