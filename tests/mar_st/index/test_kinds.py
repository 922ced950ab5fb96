from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import pytest

from mar_st.index import IndexingError, names
from mar_st.index import construct as constructing
from mar_st.index import kind as searching
from mar_st.index.kinds import hnsw
from mar_st.index.mask import Mask
from mar_st.index.registry import kind_of, registered
from mar_st.index.source import RowsSource
from mar_st.index.tune import MAX_RECALL_QUERIES, calibrate, exact_results, made_queries, recall
from tests.mar_st.index.conftest import clustered

COUNT, DIM = 11_000, 32
CASES = [(kind, {}) for kind in registered()] + [
    ("hnsw", {"storage": "int8", "M": 16}),
    ("ivf-pq", {"nlist": 16, "m": 8}),
]


@pytest.fixture(scope="module")
def source():
    return RowsSource([(clustered(COUNT, DIM), np.arange(COUNT))])


def built(folder, source, kind, given):
    given = {"efConstruction": 40, **given} if kind == "hnsw" else given
    folder.mkdir(exist_ok=True)
    cls = kind_of(kind)
    cls.construct(folder, source, cls.settings(given, DIM, len(source)), progress=False)
    return cls(folder)


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


def test_recall_is_that_of_brute_force(source, tmp_path):
    exact = built(tmp_path / "exact", source, "exact", {})
    expected = exact_results(source, None)
    vectors = source.take(np.arange(COUNT))
    scores = expected.queries @ vectors.T
    assert (np.argsort(-scores, axis=1)[:, :10] == expected.rows).all()
    assert recall(exact, expected, {}) == 1
    rough = built(tmp_path / "rough", source, "binary", {})
    assert 0.05 < recall(rough, expected, {"rescore": 1}) < 0.9


def test_made_queries_are_near_documents_but_equal_to_none(source):
    made, vectors = made_queries(source), source.take(np.arange(COUNT))
    assert made.shape == (MAX_RECALL_QUERIES, DIM)
    assert made.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)  # as long as those they come from
    best = np.sort(made @ vectors.T, axis=1)[:, ::-1]
    of_documents = np.sort(vectors[:MAX_RECALL_QUERIES] @ vectors.T, axis=1)[:, ::-1]
    assert best[:, 0].max() < 0.99 < of_documents[:, 0].min()  # of a document itself
    assert best[:, 1].mean() < of_documents[:, 1].mean()
    assert best[:, 9].mean() > best.mean() + 0.3  # but beside documents
    assert (made_queries(source) == made).all()
    one = RowsSource([(vectors[:1], np.arange(1))])
    np.testing.assert_allclose(made_queries(one), vectors[:1], atol=1e-6)


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
    few = RowsSource([(source.take(np.arange(200)), np.arange(200))])
    for kind, given in CASES:
        folder = tmp_path / f"{kind}{len(given)}"
        scores, rows = built(folder, few, kind, given).search(clustered(3, DIM), 250)
        assert (np.sort(rows[:, :200], axis=1) == np.arange(200)).all()
        assert (rows[:, 200:] == -1).all()
        assert np.isneginf(scores[:, 200:]).all()


def test_opening_maps_files_without_reading_them(searchable):
    """Opening must cost no memory of the size of the index."""
    lines = Path("/proc/self/smaps").read_text().split("\n")
    mapped = {line.split()[-1].rpartition("/")[2] for line in lines if " r--" in line or " rw-" in line}
    wanted = (
        {names.VECTORS} if searchable.vectors.dtype == np.float16 or searchable.kind == "exact" else set()
    )
    wanted |= {names.INDEX} if searchable.kind != "exact" else set()
    assert wanted <= mapped


@pytest.mark.thorough
@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_a_killed_graph_build_resumes_to_the_same_bytes(source, tmp_path, monkeypatch, storage):
    few = RowsSource([(source.take(np.arange(9000)), np.arange(9000))])
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
        ("hnsw", {"storage": "float16"}, "float32 or int8; got 'float16'"),
        ("hnsw", {"M": "abc"}, "M of hnsw is a whole number from 2 to 2048; got 'abc'"),
        ("hnsw", {"M": -5}, "M of hnsw .* got -5"),
        ("hnsw", {"M": 10**9}, "M of hnsw .* got 1000000000"),
        ("hnsw", {"efConstruction": "abc"}, "efConstruction of hnsw is a whole number from 1"),
        ("ivf-pq", {"m": 5}, "must divide the 32 dimensions"),
    ],
)
def test_settings_that_do_not_fit_are_refused(kind, given, message):
    with pytest.raises(IndexingError, match=message):
        kind_of(kind).settings(given, DIM, COUNT)
