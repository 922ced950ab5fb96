"""Documents as rows of a collection."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from mar_st.index.corpus import documents_of
from mar_st.index.documents import type_of
from mar_st.index.errors import IndexingError
from mar_st.index.source import FolderSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy as np

    from mar_st.encode import VectorFolder
    from mar_st.index.documents import Stored
    from mar_st.index.filters import FieldType

#: Property that describes a collection.
PROPERTY = "mar_index"

#: Maximum bytes of an id, and of any other text, in a collection (Milvus' own limits).
MAX_ID_BYTES, MAX_TEXT_BYTES = 512, 65_535

#: Rows that are sent at once.
_ROWS_PER_UPSERT = 512


def schema_of(client: Any, types: Any, dim: int, fields: Mapping[str, FieldType], *, nulls: bool) -> Any:
    """Return the schema of a collection.

    Args:
        client: A `pymilvus.MilvusClient`.
        types: `pymilvus.DataType`.
        dim: Dimensions of the vectors.
        fields: Metadata fields.
        nulls: Whether fields may be without a value. Otherwise metadata are dynamic fields, which accept any
            value.
    """
    schema = client.create_schema(auto_id=False, enable_dynamic_field=not nulls)
    schema.add_field("id", types.VARCHAR, is_primary=True, max_length=MAX_ID_BYTES)
    schema.add_field("vector", types.FLOAT_VECTOR, dim=dim)
    schema.add_field("title", types.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("text", types.VARCHAR, max_length=MAX_TEXT_BYTES)
    if nulls:
        names = {"string": "VARCHAR", "integer": "INT64", "number": "DOUBLE", "boolean": "BOOL"}
        for place, kind in enumerate(fields.values()):
            options = {"max_length": MAX_TEXT_BYTES} if kind == "string" else {}
            schema.add_field(f"metadata_{place}", getattr(types, names[kind]), nullable=True, **options)
    return schema


def send(
    client: Any,
    collection: str,
    folder: VectorFolder,
    corpus: str | Path | None,
    *,
    fields: Mapping[str, FieldType],
    progress: bool,
) -> None:
    """Send all documents; one whose id exists is replaced.

    Raises:
        IndexingError: A document is too long, or has metadata that the collection has no field for.
    """
    nulls = takes_nulls(client, collection)
    with tqdm(total=len(folder), desc="milvus", unit="documents", disable=not progress) as bar:
        for rows in rows_of(folder, corpus, fields, nulls=nulls):
            client.upsert(collection, rows)
            bar.update(len(rows))


def takes_nulls(client: Any, collection: str) -> bool:
    """Return True if the metadata fields of a collection may be without a value (see `schema_of`)."""
    return not client.describe_collection(collection).get("enable_dynamic_field")


def rows_of(
    folder: VectorFolder, corpus: str | Path | None, fields: Mapping[str, FieldType], *, nulls: bool
) -> Iterator[list[dict[str, Any]]]:
    """Yield all documents as rows, in batches that are sent at once.

    Raises:
        IndexingError: See `row_of`; or corpus and vectors do not belong together.
    """
    documents = documents_of(folder, corpus)
    rows: list[dict[str, Any]] = []
    for block in FolderSource(folder).blocks():
        for vector in block:
            rows.append(row_of(next(documents), vector, fields, nulls=nulls))
            if len(rows) >= _ROWS_PER_UPSERT:
                yield rows
                rows = []
    if rows:
        yield rows


def row_of(
    document: Stored, vector: np.ndarray, fields: Mapping[str, FieldType], *, nulls: bool
) -> dict[str, Any]:
    """Return a document as a collection keeps it.

    Raises:
        IndexingError: The document is too long, or has metadata that the collection has no field for.
    """
    _check_size(document, "id", document.id, MAX_ID_BYTES)
    _check_size(document, "title", document.title, MAX_TEXT_BYTES)
    _check_size(document, "text", document.text, MAX_TEXT_BYTES)
    row: dict[str, Any] = {
        "id": document.id,
        "vector": vector,
        "title": document.title,
        "text": document.text,
    }
    if nulls:
        row |= {f"metadata_{place}": None for place in range(len(fields))}
    for name, value in document.metadata.items():
        wanted = fields.get(name)
        if wanted == "string" and not isinstance(value, str):
            value = json.dumps(value)
        elif wanted not in (type_of(value), "number" if type_of(value) == "integer" else None):
            raise IndexingError(
                f"Document {document.id!r} has {name}={value!r}; the collection has "
                f"{f'{name} as {wanted}' if wanted else 'no such field'}. Build the collection again."
            )
        if isinstance(value, str):
            _check_size(document, name, value, MAX_TEXT_BYTES)
        row[f"metadata_{list(fields).index(name)}"] = value
    return row


def _check_size(document: Stored, what: str, text: str, limit: int) -> None:
    size = len(text.encode())
    if size > limit:
        raise IndexingError(
            f"The {what} of document {document.id[:40]!r} has {size} bytes; Milvus takes {limit}. Cut it, or "
            "build an index folder."
        )
