"""Cross-encoders that grade pairs: training, and the thresholds between grades, saved with the weights."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.graded.grader import THRESHOLDS_FILE, Grader, Thresholds, fit_thresholds, weighted_kappa
    from mar_st.graded.train import GradedPair, GraderSettings, read_graded, train_grader

__all__ = [
    "THRESHOLDS_FILE",
    "GradedPair",
    "Grader",
    "GraderSettings",
    "Thresholds",
    "fit_thresholds",
    "read_graded",
    "train_grader",
    "weighted_kappa",
]

_TRAINING = ("GradedPair", "GraderSettings", "read_graded", "train_grader")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mar_st.graded' has no attribute {name!r}")
    return getattr(import_module(f"mar_st.graded.{'train' if name in _TRAINING else 'grader'}"), name)
