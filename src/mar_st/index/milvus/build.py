"""Building a collection from a folder of vectors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.index.construct import MILVUS_EFFORTS
from mar_st.index.corpus import documents_of
from mar_st.index.documents import common_type, type_of
from mar_st.index.errors import IndexingError, need
from mar_st.index.kind import MilvusIndexType
from mar_st.index.milvus.client import connect, failures_of, is_newer, parse_address
from mar_st.index.milvus.collection import MilvusIndex
from mar_st.index.milvus.rows import PROPERTY, schema_of, send
from mar_st.index.registry import AUTO, registered
from mar_st.index.source import FolderSource
from mar_st.index.tune import ExactResults, calibrate, exact_results

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mar_st.encode import VectorFolder
    from mar_st.index.filters import FieldType


class _Unfinished:
    """An unfinished collection, searched to measure its recall."""

    def __init__(self, index: MilvusIndex, rows: Mapping[str, int]) -> None:
        self.index, self.rows = index, rows

    def search(
        self, queries: np.ndarray, k: int, *, settings: Mapping[str, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores, and numbers of rows; -1 for those that are not an exact result."""
        scored = self.index.find(queries, k, None, settings)
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        for number, keys in enumerate(scored.keys):
            rows[number, : len(keys)] = [self.rows.get(str(key), -1) for key in keys]
        return scored.scores, rows


def build_milvus(
    folder: VectorFolder,
    target: str,
    *,
    corpus: str | Path | None,
    kind: str,
    params: Mapping[str, Any],
    recall: float,
    queries: np.ndarray | None,
    progress: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Build a collection from a folder of vectors, see `mar_st.index.build_index`.

    The search settings are the cheapest that reach the recall on the finished collection.

    Returns:
        The description of the collection, and its number of documents.

    Raises:
        IndexingError: Milvus does not have this kind, the collection already exists, or no server answers.
    """
    index_type = _index_type(kind, folder)
    uri, collection = parse_address(target)
    client = connect(uri)
    unfinished = f"{collection}_unfinished"
    with failures_of(uri):
        if client.has_collection(collection):
            raise IndexingError(
                f"{uri} has a collection {collection} already. Name another: milvus:{uri}/NAME"
            )
        if client.has_collection(unfinished):  # left over from a killed build
            client.drop_collection(unfinished)
        fields = _types(folder, corpus)
        about = {
            "format": "mar-index", "version": 1, "model": (folder.manifest.get("model") or {}).get("name"),
            "space": folder.space, "dim": folder.dim, "similarity": folder.similarity, "kind": kind,
            "texts": corpus is not None, "fields": fields,
        }  # fmt: skip
        schema = schema_of(client, need("pymilvus").DataType, folder.dim, fields, nulls=is_newer(client))
        # Session: a writer finds its own writes, and a reader does not wait for the writes of others.
        client.create_collection(
            unfinished, schema=schema, consistency_level="Session", properties=_property(about)
        )
        send(client, unfinished, folder, corpus, fields=fields, progress=progress)
        client.flush(unfinished)
        say(f"Milvus builds its index of kind {kind}")
        _construct(client, unfinished, index_type, params)
        if len(index_type.ladder) > 1:
            opened = MilvusIndex(client, unfinished, target)
            measured = _measure(opened, folder, recall, queries, index_type.ladder, progress)
            about |= {"search": measured.pop("search"), "measured": {**measured, "target": recall}}
            client.alter_collection_properties(unfinished, _property(about))
        client.rename_collection(unfinished, collection)
        client.load_collection(collection)
    return {**about, "count": len(folder)}


def _property(about: Mapping[str, Any]) -> dict[str, str]:
    return {PROPERTY: json.dumps(about, ensure_ascii=False)}


def _index_type(kind: str, folder: VectorFolder) -> MilvusIndexType:
    """Return what Milvus builds for a kind."""
    # AUTOINDEX is a graph, unless the server is configured differently.
    types: dict[str, MilvusIndexType | None] = {AUTO: MilvusIndexType("AUTOINDEX", {}, MILVUS_EFFORTS)}
    types |= {name: cls.milvus(folder.dim, len(folder)) for name, cls in registered().items()}
    index_type = types.get(kind)
    if index_type is None:
        known = ", ".join(name for name, one in types.items() if one is not None)
        raise IndexingError(f"Kinds of index in Milvus are {known}; got {kind!r}.")
    return index_type


def _construct(client: Any, collection: str, index_type: MilvusIndexType, params: Mapping[str, Any]) -> None:
    chosen = client.prepare_index_params()
    chosen.add_index(
        "vector", index_type=index_type.name, metric_type="IP", params={**index_type.params, **params}
    )
    client.create_index(collection, chosen)
    client.load_collection(collection)


def _measure(
    index: MilvusIndex,
    folder: VectorFolder,
    recall: float,
    queries: np.ndarray | None,
    ladder: Sequence[Mapping[str, int]],
    progress: bool,
) -> dict[str, Any]:
    expected: ExactResults = exact_results(FolderSource(folder), queries, progress=progress)
    best = np.unique(expected.rows[expected.rows >= 0])
    names = folder.ids.take(best).to_pylist()
    rows = dict(zip(names, best.tolist(), strict=True))
    return calibrate(_Unfinished(index, rows), expected, recall, ladder)


def _types(folder: VectorFolder, corpus: str | Path | None) -> dict[str, FieldType]:
    """Return the types of the metadata fields."""
    seen: dict[str, set[FieldType]] = {}
    for document in documents_of(folder, corpus):
        for name, value in document.metadata.items():
            seen.setdefault(name, set()).add(type_of(value))
    return {name: common_type(kinds) for name, kinds in sorted(seen.items())}
