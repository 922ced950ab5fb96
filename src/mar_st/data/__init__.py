"""Rows of files (`read_rows`), and training data: reading it and converting it to the columns of a dataset.

`read_rows` is the reader of rows of both packages: JSONL, JSON arrays, CSV, TSV, Parquet, saved data sets and
the Hub; UTF-8 and GB18030; errors with `FILE:LINE`.
"""

from __future__ import annotations

from mar_st.data.columns import (
    column_texts,
    dataset_of,
    drawn_rows,
    to_dataset,
    with_negatives,
)
from mar_st.data.rows import HUB, ROW_SUFFIXES, Row, hub_dataset, locate, read_rows, row_files
from mar_st.data.sequences import (
    Texts,
    Triple,
    Triples,
    digests,
    distinct,
    distinct_texts,
    numbered,
)
from mar_st.data.texts import read_texts, texts_by_id
from mar_st.data.training import (
    Source,
    data_digest,
    read_source,
    vocabulary_cut,
)

__all__ = [
    "HUB",
    "ROW_SUFFIXES",
    "Row",
    "Source",
    "Texts",
    "Triple",
    "Triples",
    "column_texts",
    "data_digest",
    "dataset_of",
    "digests",
    "distinct",
    "distinct_texts",
    "drawn_rows",
    "hub_dataset",
    "locate",
    "numbered",
    "read_rows",
    "read_source",
    "read_texts",
    "row_files",
    "texts_by_id",
    "to_dataset",
    "vocabulary_cut",
    "with_negatives",
]
