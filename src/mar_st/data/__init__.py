"""Training data: reading it and converting it to the columns of a dataset."""

from __future__ import annotations

from mar_st.data.columns import column_texts, dataset_of, drawn_rows, drawn_share, to_dataset, with_negatives
from mar_st.data.distinct import digests, distinct, distinct_texts, numbered
from mar_st.data.read import read_source, read_triples
from mar_st.data.records import DataError, Source, Triple
from mar_st.data.rows import locate
from mar_st.data.sequences import Texts, Triples

__all__ = [
    "DataError",
    "Source",
    "Texts",
    "Triple",
    "Triples",
    "column_texts",
    "dataset_of",
    "digests",
    "distinct",
    "distinct_texts",
    "drawn_rows",
    "drawn_share",
    "locate",
    "numbered",
    "read_source",
    "read_triples",
    "to_dataset",
    "with_negatives",
]
