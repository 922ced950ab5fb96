"""Training losses that sentence-transformers does not have."""

from __future__ import annotations

from mar_st.losses.alignment import AlignmentLoss
from mar_st.losses.asym_infonce import AsymInfoNCELoss

__all__ = ["AlignmentLoss", "AsymInfoNCELoss"]
