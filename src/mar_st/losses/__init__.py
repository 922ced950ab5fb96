"""Training losses that sentence-transformers does not have."""

from mar_st.losses.alignment import AlignmentLoss
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.losses.corpus import CorpusLoss
from mar_st.losses.retromae import RetroMAELoss
from mar_st.losses.score_distill import ScoreDistillLoss

__all__ = ["AlignmentLoss", "AsymInfoNCELoss", "CorpusLoss", "RetroMAELoss", "ScoreDistillLoss"]
