"""F1 of pairs at a threshold that other pairs chose."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from medteb_mteb.abstasks.pairs import f1_by_train_threshold

NAMES = ("cosine_scores", "dot_scores", "manhattan_distances", "euclidean_distances")


def only(name, values):
    """Similarities of which one alone tells pairs apart."""
    return {other: [1.0] * len(values) for other in NAMES} | {name: values}


@pytest.mark.parametrize("seed", range(5))
def test_no_threshold_is_better_on_the_train_pairs(seed):
    rng = np.random.default_rng(seed)
    labels, cosine = rng.integers(0, 2, 60), rng.random(60).round(1)  # rounded: equal scores occur
    train, test = list(range(40)), list(range(40, 60))
    by_threshold = {t: f1_score(labels[train], cosine[train] >= t) for t in sorted(set(cosine[train]))}
    best = max(by_threshold.values())
    allowed = {
        round(f1_score(labels[test], cosine[test] >= t), 9)
        for t, f1 in by_threshold.items()
        if f1 > best - 1e-9
    }
    found = f1_by_train_threshold(only("cosine_scores", cosine), labels, train, test)
    assert round(found, 9) in allowed


@pytest.mark.parametrize("name", NAMES)
def test_near_means_small_for_distances_and_large_for_similarities(name):
    near = np.array([0.9, 0.8, 0.2, 0.1, 0.85, 0.15])
    values = -near if "distances" in name else near
    labels, train, test = [1, 1, 0, 0, 1, 0], [0, 1, 2, 3], [4, 5]
    assert f1_by_train_threshold(only(name, values), labels, train, test) == 1.0
    assert f1_by_train_threshold(only(name, -values), labels, train, test) < 1.0


def test_the_similarity_is_chosen_on_the_train_pairs_too():
    labels, train, test = [1, 1, 0, 0, 1, 0], [0, 1, 2, 3], [4, 5]
    scores = only("cosine_scores", [0.9, 0.8, 0.2, 0.1, 0.1, 0.9])  # right on the train pairs alone
    scores["dot_scores"] = [0.9, 0.1, 0.8, 0.2, 0.9, 0.1]  # right on the test pairs alone
    assert f1_by_train_threshold(scores, labels, train, test) == 0.0


def test_the_order_of_the_pairs_does_not_count():
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 2, 50)
    scores = {name: rng.random(50) for name in NAMES}
    train, test = list(range(35)), list(range(35, 50))
    found = f1_by_train_threshold(scores, labels, train, test)
    assert 0 < found < 1
    assert f1_by_train_threshold(scores, labels, train[::-1], test[::-1]) == found
