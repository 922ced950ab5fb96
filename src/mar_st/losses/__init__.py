"""Training losses that sentence-transformers does not have."""

from __future__ import annotations

from mar_st.losses.alignment import AlignmentLoss
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.losses.retromae import RetroMAELoss
from mar_st.losses.score_distill import ScoreDistillLoss

__all__ = ["AlignmentLoss", "AsymInfoNCELoss", "RetroMAELoss", "ScoreDistillLoss"]
