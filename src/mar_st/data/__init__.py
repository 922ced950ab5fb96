"""Training data: reading it, and making the columns of a dataset of it."""

from __future__ import annotations

from mar_st.data.columns import distinct_texts, drawn_share, to_dataset
from mar_st.data.read import read_source, read_triples
from mar_st.data.records import DataError, Source, Triple
from mar_st.data.rows import locate

__all__ = [
    "DataError",
    "Source",
    "Triple",
    "distinct_texts",
    "drawn_share",
    "locate",
    "read_source",
    "read_triples",
    "to_dataset",
]
