"""Building blocks of a MAR folder, each made of sentence-transformers' own modules."""

from __future__ import annotations

from mar_st.modules.arrangement import arrange, route_chain
from mar_st.modules.truncation import INERT, is_truncation, restore, truncation

__all__ = ["INERT", "arrange", "is_truncation", "restore", "route_chain", "truncation"]
