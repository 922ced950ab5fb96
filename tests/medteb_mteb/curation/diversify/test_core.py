from __future__ import annotations

import json

import faiss
import numpy as np
import pytest
import torch

from medteb_mteb.curation.diversify import Search, SelectionRule, diversify, measure_disagreement, unit
from medteb_mteb.curation.diversify.centres import VECTORS_PER_LIST, sample_rows
from medteb_mteb.curation.diversify.core import make_filter
from medteb_mteb.curation.diversify.journal import DecisionJournal
from medteb_mteb.curation.diversify.vectors import inner_products
from medteb_mteb.curation.files.records import BuildError

TYPES = (torch.bfloat16, torch.float32)


def loop(vectors, threshold, k=5, tolerated=1, seed_size=5000):
    """The definition, word for word: one search of an exact index per vector."""
    vectors = unit(vectors)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors[:seed_size])
    kept = np.ones(len(vectors), dtype=bool)
    for row in range(seed_size, len(vectors)):
        near, numbers = index.search(vectors[row : row + 1], k)
        kept[row] = ((near[0] > np.float32(threshold)) & (numbers[0] >= 0)).sum() <= tolerated
        if kept[row]:
            index.add(vectors[row : row + 1])
    return kept


def clustered(rng, n, dim, families=0.4):
    """Vectors of any length: families around centres, exact duplicates, zeros."""
    centres = rng.standard_normal((max(1, int(families * n)), dim))
    spread = rng.uniform(0.05, 1.0, (n, 1)) * np.linalg.norm(centres[0]) / dim**0.5
    vectors = centres[rng.integers(0, len(centres), n)] + spread * rng.standard_normal((n, dim))
    copies = rng.random(n) < 0.1
    vectors[copies] = vectors[rng.integers(0, n, copies.sum())]
    vectors[rng.random(n) < 0.01] = 0
    return (vectors * rng.uniform(0.1, 10, (n, 1))).astype(np.float32)


@pytest.mark.parametrize("seed", range(40))
def test_the_decisions_are_those_of_the_loop(seed):
    rng = np.random.default_rng(seed)
    n, dim = int(rng.integers(1, 700)), int(rng.integers(2, 90))
    vectors = clustered(rng, n, dim, rng.uniform(0.02, 0.6))
    tolerated = int(rng.integers(0, 4))
    rule = {
        "threshold": float(rng.choice([0.05, 0.4, 0.78, 0.85, 0.97])),
        "k": tolerated + int(rng.integers(1, 5)),
        "tolerated": tolerated,
        "seed_size": int(rng.choice([0, 1, 50, 200, 5000])),
    }
    expected = loop(vectors, **rule)
    for dtype in TYPES:
        block, tile = int(rng.integers(1, 300)), int(rng.integers(1, 300))
        got = diversify(vectors, **rule, search=Search(block=block), tile=tile, dtype=dtype)
        assert np.array_equal(got, expected)


def test_a_realistic_share_is_dropped():
    vectors = clustered(np.random.default_rng(3), 3000, 64, 0.2)
    kept = diversify(vectors, threshold=0.85, seed_size=500)
    assert 0.1 < 1 - kept.mean() < 0.7
    assert np.array_equal(kept, loop(vectors, 0.85, seed_size=500))


def at_threshold(rng, threshold, n, dim):
    """A centre, and vectors whose similarity to it is the threshold but for a few last bits."""
    centre = unit(rng.standard_normal((1, dim)))[0].astype(np.float64)
    away = rng.standard_normal((n, dim))
    away -= (away @ centre)[:, None] * centre
    threshold = threshold + rng.uniform(-2e-7, 2e-7, (n, 1))
    vectors = threshold * centre + (1 - threshold**2) ** 0.5 * unit(away).astype(np.float64)
    return np.concatenate([centre[None], vectors]).astype(np.float32)


@pytest.mark.parametrize("dtype", TYPES)
def test_similarities_at_the_threshold_are_settled_as_by_the_loop(dtype):
    vectors = at_threshold(np.random.default_rng(0), float(np.float32(0.85)), 1500, 96)
    rule = {"threshold": 0.85, "tolerated": 0, "seed_size": 1}
    expected = loop(vectors, **rule)
    assert np.array_equal(diversify(vectors, **rule, dtype=dtype), expected)
    assert 300 < expected[1:].sum() < 1200
    # Not so if one were to trust a matrix product, even in float32.
    rounded = torch.from_numpy(unit(vectors)).to(dtype)
    naive = (rounded[1:] @ rounded[0]).float().numpy() <= np.float32(0.85)
    assert (naive != expected[1:]).any()


@pytest.mark.thorough
def test_a_similarity_equal_to_the_threshold_is_kept():
    vectors = unit(clustered(np.random.default_rng(1), 400, 48))
    index = faiss.IndexFlatIP(48)
    index.add(vectors)
    near, _ = index.search(vectors[-1:], 50)
    similarities = [float(s) for s in near[0] if 0.1 < s < 0.999]
    assert len(similarities) > 10
    for threshold in similarities:
        for value in (threshold, float(np.nextafter(np.float32(threshold), np.float32(0)))):
            rule = {"threshold": value, "seed_size": 30}
            assert np.array_equal(diversify(vectors, **rule), loop(vectors, **rule))
    exactly = SelectionRule(threshold=similarities[0])
    pair = np.float32([[1, 0], [similarities[0], (1 - similarities[0] ** 2) ** 0.5]])
    again = float(inner_products(unit(pair), np.array([0]), unit(pair), np.array([1]))[0])
    assert exactly.limit == np.float32(similarities[0])
    kept = diversify(pair, threshold=again, tolerated=0, seed_size=1)
    assert kept.all()
    below = float(np.nextafter(np.float32(again), np.float32(0)))
    assert diversify(pair, threshold=below, tolerated=0, seed_size=1).tolist() == [True, False]


def test_a_mapped_file_gives_the_same_result_as_an_array(tmp_path):
    vectors = clustered(np.random.default_rng(4), 900, 40)
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    expected = diversify(vectors, threshold=0.78, seed_size=100)
    assert np.array_equal(diversify(mapped, threshold=0.78, seed_size=100), expected)
    half = vectors.astype(np.float16)
    assert np.array_equal(diversify(half, threshold=0.78, seed_size=100), loop(half, 0.78, seed_size=100))


def test_the_neighbour_of_a_dropped_vector_is_the_nearest_kept_one():
    vectors = clustered(np.random.default_rng(6), 1200, 32)
    rule = SelectionRule(0.8, seed_size=100)
    filtered = make_filter(rule, Search(block=97), 32, lambda: vectors, tile=61, neighbours=True)
    parts = [filtered.feed(vectors[start : start + 250]) for start in range(0, 1200, 250)]
    kept, neighbour, similarity = (np.concatenate(column) for column in zip(*parts, strict=True))
    assert np.array_equal(kept, loop(vectors, 0.8, seed_size=100))
    index, numbers = faiss.IndexFlatIP(32), unit(vectors)
    for row in range(1200):
        if kept[row]:
            index.add(numbers[row : row + 1])
            assert (neighbour[row], np.isnan(similarity[row])) == (-1, True)
            continue
        near, ids = index.search(numbers[row : row + 1], index.ntotal)
        best = ids[0][near[0] == near[0][0]].min()
        assert (neighbour[row], similarity[row]) == (best, near[0][0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Search("hnsw"), "choose from exact and ivf"),
        (lambda: Search("ivf", probes=0), "at least 1"),
        (lambda: diversify(np.eye(3), threshold=0.8, k=1), "Make k larger"),
        (lambda: diversify(np.eye(3), threshold=0.8, tolerated=5), "Of k = 5 neighbours"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(BuildError, match=message):
        make()


def by_function(vectors, **rule):
    return diversify(vectors, threshold=0.85, **rule)


def by_filter(vectors, **rule):
    width = vectors.shape[1]
    return make_filter(SelectionRule(0.85, **rule), Search(), width, lambda: vectors).feed(vectors).kept


@pytest.mark.parametrize("decide", [by_function, by_filter])
@pytest.mark.parametrize(
    ("rule", "kept"), [({}, 5000), ({"seed_size": 0}, 2), ({"seed_size": 0, "tolerated": 4}, 5)]
)
def test_copies_of_a_text_are_kept_as_far_as_the_published_rule_allows(decide, rule, kept):
    """MAR, Table 10: 5000 texts unseen, then those with at most 1 near neighbour among 5."""
    copies = np.ones((kept + 3, 2), dtype=np.float32)
    assert decide(copies, **rule).tolist() == [True] * kept + [False] * 3


def test_unusable_vectors_are_named():
    vectors = clustered(np.random.default_rng(0), 60, 8)
    vectors[41, 3] = np.nan
    with pytest.raises(BuildError, match="Vector 41 has NaN"):
        diversify(vectors, threshold=0.8, seed_size=10, search=Search(block=7))
    with pytest.raises(BuildError, match="int64 of shape"):
        diversify(np.arange(4), threshold=0.8)
    assert diversify(np.empty((0, 4), dtype=np.float32), threshold=0.8).shape == (0,)


@pytest.mark.parametrize("index", ["exact", "ivf"])
def test_an_unusable_vector_is_named_by_its_row_also_if_it_is_in_the_sample_for_centres(index):
    vectors = clustered(np.random.default_rng(0), 400, 8)
    search = Search(index, lists=2)
    vectors[sample_rows(400, VECTORS_PER_LIST * 2)[30]] = np.inf
    with pytest.raises(BuildError, match=r"Vector 254 has NaN or infinite"):
        diversify(vectors, threshold=0.8, seed_size=10, search=search)


@pytest.mark.thorough
@pytest.mark.parametrize("index", ["exact", "ivf"])
def test_resumed_equals_uninterrupted_after_any_kill(tmp_path, index):
    vectors = clustered(np.random.default_rng(8), 600, 24)
    search = Search(index, lists=20, probes=2, block=64)
    options = {"threshold": 0.8, "seed_size": 90, "search": search}
    whole = tmp_path / "whole"
    expected = diversify(vectors, **options, journal=whole)
    content = whole.read_bytes()
    assert np.array_equal(expected, diversify(vectors, **options))
    rng = np.random.default_rng(0)
    header = content.index(b"\n") + 1
    for size in [
        0,
        5,
        header,
        header + 3,
        len(content) - 1,
        len(content),
        *rng.integers(0, len(content), 12),
    ]:
        killed = tmp_path / "killed"
        tail = bytes(int(rng.integers(0, 70))) if size > header else b""  # zeros, after a loss of power
        killed.write_bytes(content[:size] + tail)
        assert np.array_equal(diversify(vectors, **options, journal=killed), expected)
        assert killed.read_bytes() == content


def test_a_resumed_run_decides_only_remaining_vectors(tmp_path, monkeypatch):
    vectors = clustered(np.random.default_rng(9), 500, 16)
    vectors[-3:] = vectors[0]  # an earlier run kept the first one
    written, real = [], DecisionJournal.write

    def stop_at_third(self, kept):
        written.append(len(kept))
        if len(written) == 3:
            raise KeyboardInterrupt
        real(self, kept)

    monkeypatch.setattr(DecisionJournal, "write", stop_at_third)
    options = {"threshold": 0.8, "seed_size": 100, "search": Search(block=100), "journal": tmp_path / "j"}
    with pytest.raises(KeyboardInterrupt):
        diversify(vectors, **options)
    resumed = diversify(vectors, **options)
    assert written == [100, 100, 100, 100, 100, 100]  # the third once more
    assert np.array_equal(resumed, loop(vectors, 0.8, seed_size=100))


def test_an_approximate_search_of_an_easy_set_is_exact():
    rng = np.random.default_rng(0)
    vectors = np.repeat(np.eye(50, 64), 20, axis=0)[rng.permutation(1000)].astype(np.float32)
    rule = SelectionRule(0.85, seed_size=60)
    kept = diversify(vectors, threshold=0.85, seed_size=60, search=Search("ivf", lists=50, probes=2))
    assert np.array_equal(kept, loop(vectors, 0.85, seed_size=60))
    measured = measure_disagreement(vectors, kept, rule)
    assert (measured.sampled, measured.share, measured.interval[0]) == (940, 0, 0)
    assert 0 < measured.interval[1] < 0.01


def test_searching_all_lists_is_exact_and_too_few_are_noticed():
    vectors = clustered(np.random.default_rng(1), 3000, 24, 0.2)
    rule = SelectionRule(0.7, seed_size=100)
    options = {"threshold": 0.7, "seed_size": 100}
    exact = loop(vectors, **options)
    everywhere = diversify(vectors, **options, search=Search("ivf", lists=30, probes=30))
    assert np.array_equal(everywhere, exact)
    assert measure_disagreement(vectors, exact, rule).share == 0
    hasty = diversify(vectors, **options, search=Search("ivf", lists=500, probes=1))
    measured = measure_disagreement(vectors, hasty, rule, sample=10_000)
    assert measured.sampled == 2900
    assert measured.kept > 20
    assert measured.dropped == 0  # it can only overlook
    sampled = [measure_disagreement(vectors, hasty, rule, sample=400, seed=seed) for seed in range(30)]
    assert np.mean([estimate.share for estimate in sampled]) == pytest.approx(measured.share, rel=0.15)
    inside = sum(low <= measured.share <= high for low, high in (estimate.interval for estimate in sampled))
    assert inside >= 26


def test_each_wrong_decision_is_counted():
    vectors = clustered(np.random.default_rng(2), 800, 24, 0.2)
    kept = loop(vectors, 0.8, seed_size=100)
    rule = SelectionRule(0.8, seed_size=100)
    last_kept, last_dropped = np.flatnonzero(kept)[-1], np.flatnonzero(~kept)[-1]
    for row, field in ((last_kept, "dropped"), (last_dropped, "kept")):
        # Cut off after the reversed decision, so that it cannot affect others.
        decisions, part = kept[: row + 1].copy(), vectors[: row + 1]
        decisions[row] = ~decisions[row]
        measured = json.loads(json.dumps(measure_disagreement(part, decisions, rule).to_json()))
        assert {"kept": measured["kept"], "dropped": measured["dropped"]} == {
            "kept": 0,
            "dropped": 0,
            field: 1,
        }
