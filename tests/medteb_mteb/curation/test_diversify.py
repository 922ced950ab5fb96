"""The dynamic index filter, compared with the loop that defines it, and its step."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.errors import MarError
from medteb_mteb.curation import diversify as module
from medteb_mteb.curation.diversify import DIVERSIFY, DynamicIndexFilter


def drawn(n=3000, dim=32, groups=80, seed=0):
    """Vectors in groups, closer or wider, so that many are just above or below a threshold."""
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((groups, dim))[draw.integers(0, groups, n)]
    return (centres + draw.standard_normal((n, dim)) * draw.uniform(0.1, 1.2, (n, 1))).astype(np.float32)


def diversify(vectors, threshold, **options):
    return DynamicIndexFilter(threshold, **options).feed(vectors).kept


def one_by_one(vectors, threshold, tolerated, seed_size):
    vectors = vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    kept = []
    for row, vector in enumerate(vectors):
        near = (vectors[kept] @ vector > threshold).sum() if kept else 0
        if row < seed_size or near <= tolerated:
            kept.append(row)
    mask = np.zeros(len(vectors), dtype=bool)
    mask[kept] = True
    return mask


@pytest.mark.parametrize(
    ("threshold", "tolerated", "seed_size"), [(0.78, 1, 200), (0.85, 0, 0), (0.6, 3, 2500)]
)
def test_decisions_are_those_of_one_text_after_the_other(monkeypatch, threshold, tolerated, seed_size):
    monkeypatch.setattr(module, "BLOCK", 300)
    monkeypatch.setattr(module, "TILE", 256)
    vectors = drawn()
    expected = one_by_one(vectors, threshold, tolerated, seed_size)
    assert 0.05 < expected.mean() < 0.999
    np.testing.assert_array_equal(
        diversify(vectors, threshold, tolerated=tolerated, seed_size=seed_size), expected
    )


def test_products_in_bfloat16_change_no_decision(monkeypatch):
    class Modern:
        flags = frozenset({"avx512_bf16"})

    vectors = drawn(seed=3)
    expected = diversify(vectors, 0.8, seed_size=100)
    monkeypatch.setattr(module, "processor", Modern)
    np.testing.assert_array_equal(diversify(vectors, 0.8, seed_size=100), expected)


def test_a_dropped_vector_has_a_neighbour_above_the_threshold():
    vectors = drawn()
    decisions = DynamicIndexFilter(0.8, seed_size=100).feed(vectors)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    kept = unit[decisions.kept]
    for row in np.flatnonzero(~decisions.kept)[:50]:
        assert decisions.similarity[row] == pytest.approx(
            kept[decisions.neighbour[row]] @ unit[row], abs=1e-5
        )
        assert decisions.similarity[row] > 0.8
    assert (decisions.neighbour[decisions.kept] == -1).all()


def test_zeros_are_kept_and_nan_is_refused():
    assert diversify(np.zeros((20, 4), dtype=np.float32), 0.5, seed_size=0).all()
    with pytest.raises(MarError, match="NaN"):
        diversify(np.full((2, 4), np.nan), 0.5)


def test_the_step_drops_what_says_the_same_and_names_the_neighbour(tmp_path, run_step, write, rows_of):
    texts = ["感冒怎么办", "高血压吃什么", "感冒怎么办", "感冒怎么办", "胃炎能喝酒吗"]
    source = write(tmp_path / "texts.jsonl", [{"_id": f"t{i}", "text": text} for i, text in enumerate(texts)])
    options = {"in": source, "kind": "queries", "model": "mar-mini"}
    counts = run_step(DIVERSIFY, **options, seed_size=0, threshold=0.99)
    assert counts["rows"] == 4
    [dropped] = (tmp_path / "out").glob("dropped-*.jsonl")
    assert [(row["_id"], row["detail"].split()[0]) for row in rows_of(dropped)] == [("t3", "t0")]
