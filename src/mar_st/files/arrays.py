"""Going away: import from mar_st.files."""

from mar_st.files.reading import load_array

__all__ = ["load_array"]
