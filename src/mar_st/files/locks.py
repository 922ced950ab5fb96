"""Going away: import from mar_st.files."""

from mar_st.files.writing import LOCK, alone, clear, locked

__all__ = ["LOCK", "alone", "clear", "locked"]
