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
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

    from mar_st.encode import VectorFolder
    from mar_st.index.documents import Stored
    from mar_st.index.filters import FieldType

#: Property that describes a collection.
PROPERTY = "mar_index"

#: Maximum bytes of an id and of a text in a collection (Milvus' own limits).
LONGEST_ID, LONGEST_TEXT = 512, 65_535

#: Rows that are sent at once.
_SENT = 512


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
    schema.add_field("id", types.VARCHAR, is_primary=True, max_length=LONGEST_ID)
    schema.add_field("vector", types.FLOAT_VECTOR, dim=dim)
    schema.add_field("title", types.VARCHAR, max_length=LONGEST_TEXT)
    schema.add_field("text", types.VARCHAR, max_length=LONGEST_TEXT)
    if nulls:
        names = {"string": "VARCHAR", "integer": "INT64", "number": "DOUBLE", "boolean": "BOOL"}
        for place, kind in enumerate(fields.values()):
            long = {"max_length": LONGEST_TEXT} if kind == "string" else {}
            schema.add_field(f"metadata_{place}", getattr(types, names[kind]), nullable=True, **long)
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
    described = client.describe_collection(collection)
    nulls = not described.get("enable_dynamic_field")
    documents = documents_of(folder, corpus)
    rows: list[dict[str, Any]] = []
    with tqdm(total=len(folder), desc="milvus", unit="documents", disable=not progress) as bar:
        for block in FolderSource(folder).blocks():
            for vector in block:
                rows.append(row_of(next(documents), vector, fields, nulls=nulls))
                if len(rows) >= _SENT:
                    client.upsert(collection, rows)
                    bar.update(len(rows))
                    rows = []
        if rows:
            client.upsert(collection, rows)
            bar.update(len(rows))


def row_of(
    document: Stored, vector: np.ndarray, fields: Mapping[str, FieldType], *, nulls: bool
) -> dict[str, Any]:
    """Return a document as a collection keeps it.

    Raises:
        IndexingError: The document is too long, or has metadata that the collection has no field for.
    """
    for what, text, most in (("id", document.id, LONGEST_ID), ("text", document.text, LONGEST_TEXT)):
        if len(text.encode()) > most:
            raise IndexingError(
                f"The {what} of document {document.id[:40]!r} has {len(text.encode())} bytes; Milvus takes "
                f"{most}. Cut it, or build an index folder."
            )
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
        row[f"metadata_{list(fields).index(name)}"] = value
    return row
