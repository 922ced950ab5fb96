"""Rows of files (`read_rows`), and training data: reading it and converting it to the columns of a dataset.

`read_rows` is the reader of rows of both packages: JSONL, JSON arrays, CSV, TSV, Parquet, saved data sets and
the Hub; UTF-8 and GB18030; errors with `FILE:LINE`.
"""

from __future__ import annotations

from mar_st.data.columns import column_texts, dataset_of, drawn_rows, drawn_share, to_dataset, with_negatives
from mar_st.data.distinct import digests, distinct, distinct_texts, numbered
from mar_st.data.read import read_source, read_triples
from mar_st.data.reading import HUB, ROW_SUFFIXES, Row, hub_dataset, read_rows, row_files
from mar_st.data.records import DataError, Source, Triple
from mar_st.data.rows import locate
from mar_st.data.sequences import Texts, Triples

__all__ = [
    "HUB",
    "ROW_SUFFIXES",
    "DataError",
    "Row",
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
    "hub_dataset",
    "locate",
    "numbered",
    "read_rows",
    "read_source",
    "read_triples",
    "row_files",
    "to_dataset",
    "with_negatives",
]
