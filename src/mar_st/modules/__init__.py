"""Building blocks of a MAR folder, each made of sentence-transformers' own modules."""

from __future__ import annotations

from mar_st.modules.truncation import is_truncation, truncation

__all__ = ["is_truncation", "truncation"]
