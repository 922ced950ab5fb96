"""Rows of files, and training data: reading it and converting it to the columns of a dataset."""

from mar_st.data.rows import Row, read_rows
from mar_st.data.training import Source, read_source

__all__ = ["Row", "Source", "read_rows", "read_source"]
