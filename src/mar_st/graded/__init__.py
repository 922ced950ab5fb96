"""Cross-encoders that grade pairs: training, and the thresholds between grades, saved with the weights."""

from __future__ import annotations

from mar_st.graded.grader import THRESHOLDS_FILE, Grader
from mar_st.graded.pairs import GradedPair, read_graded
from mar_st.graded.thresholds import Thresholds, fit_thresholds, weighted_kappa
from mar_st.graded.train import GraderReport, GraderSettings, train_grader

__all__ = [
    "THRESHOLDS_FILE",
    "GradedPair",
    "Grader",
    "GraderReport",
    "GraderSettings",
    "Thresholds",
    "fit_thresholds",
    "read_graded",
    "train_grader",
    "weighted_kappa",
]
