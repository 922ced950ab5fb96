"""F1 of pairs at a threshold that was chosen on other pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import f1_score, precision_recall_curve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["f1_by_train_threshold"]

#: Scores of a pair, and their sign: 1 if larger means more similar, else -1.
_SIDES = {"cosine_scores": 1, "dot_scores": 1, "manhattan_distances": -1, "euclidean_distances": -1}


def f1_by_train_threshold(
    similarities: Mapping[str, Any], labels: Sequence[int], train: Sequence[int], test: Sequence[int]
) -> float:
    """Return F1 on the test pairs, with the similarity and threshold that are best on the train pairs.

    Args:
        similarities: mteb's scores of all pairs: cosine, dot product, Manhattan, Euclidean.
        labels: Label of each pair, 0 or 1.
        train: Indices of the train pairs.
        test: Indices of the test pairs.

    Returns:
        F1 between 0 and 1; 0 if no test pair is predicted correctly.
    """
    truth = np.asarray(labels)
    best, test_f1 = -1.0, 0.0
    for name, sign in _SIDES.items():
        scores = sign * np.asarray(similarities[name], dtype=np.float64)
        precision, recall, thresholds = precision_recall_curve(truth[train], scores[train])
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        place = int(np.argmax(f1[:-1]))
        if f1[place] > best:
            best = float(f1[place])
            test_f1 = float(f1_score(truth[test], scores[test] >= thresholds[place], zero_division=0))
    return test_f1
