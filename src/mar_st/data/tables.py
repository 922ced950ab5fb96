"""Arrow tables as data sets of `datasets`, in memory or in its cache."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mar_st.data.sequences import Texts
from mar_st.errors import MarError
from mar_st.files import read_record, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from datasets import Dataset

__all__ = ["column_texts", "dataset_of", "table_of"]


def table_of(
    generate: Callable[[], Iterable[pa.RecordBatch]],
    schema: pa.Schema,
    key: str | None,
    counts: Counter[str] | None = None,
) -> pa.Table:
    """Return a table in memory, or with a key as a file in the cache of `datasets`, mapped by all processes.

    Args:
        generate: Returns the record batches; called by the first process that needs the file.
        schema: Columns of the table.
        key: Digest of everything that the rows depend on.
        counts: Counts that `generate` makes; they are kept beside the file.
    """
    if key is None:
        return pa.Table.from_batches(generate(), schema)
    from datasets import Dataset, Features, config  # lazy: datasets
    from datasets.exceptions import DatasetGenerationError  # lazy: datasets

    record = config.HF_DATASETS_CACHE / "mar" / f"{key}.json"
    made: Counter[str] = Counter() if counts is None else counts

    def rows() -> Iterator[dict[str, Any]]:
        for batch in generate():
            yield from batch.to_pylist()
        write_json(record, made)

    try:
        data = Dataset.from_generator(rows, Features.from_arrow_schema(schema), fingerprint=key)
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, MarError):
            raise error.__cause__ from None
        raise
    made.update({} if made else read_record(record) or {})
    return data.data.table.cast(schema)


def dataset_of(table: pa.Table, rows: np.ndarray | None = None) -> Dataset:
    """Return a dataset over an Arrow table, which is not copied.

    Args:
        table: The table, in memory or mapped.
        rows: Indices of the rows to include, in order; `None`: all.
    """
    from datasets import Dataset  # lazy: datasets
    from datasets.fingerprint import generate_random_fingerprint  # lazy: datasets
    from datasets.table import InMemoryTable  # lazy: datasets

    indices = None
    if rows is not None:
        indices = InMemoryTable(pa.table({"indices": pa.array(rows, pa.uint64())}))
    # The fingerprint that `datasets` makes by itself reads the whole table.
    return Dataset(InMemoryTable(table), indices_table=indices, fingerprint=generate_random_fingerprint())


def column_texts(dataset: Dataset, column: str) -> Texts:
    """Return the texts of a column of a dataset, which are not copied."""
    chunks = [chunk.cast(pa.string()) for chunk in dataset.data.column(column).chunks]
    indices = dataset._indices
    return Texts(chunks, None if indices is None else indices.column(0).to_numpy().astype(np.int64))
