"""The same index in Milvus: Milvus Lite (a path) on one machine, a server or cluster by its address.

A collection holds a row per document: `id`, `vector`, `title`, `text`, `metadata` (JSON), and for each
metadata field a dynamic field `metadata_0`, `metadata_1`, ... (Milvus allows fewer names than metadata have).
A property describes the collection as a manifest does. Words (BM25) are not indexed there, so hybrid search
needs an index folder.

A value of a filter is written as a literal, in which every character that could end it is escaped.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from tqdm import tqdm

from mar_st.data.corpus import Entry, FieldType, FieldTypes, type_of
from mar_st.errors import MarError
from mar_st.files import load_package, one_line
from mar_st.index.base import MILVUS_PREFIX, Index, Key, ScoredKeys
from mar_st.index.build import compared, encoded_corpus
from mar_st.index.documents import documents_of
from mar_st.index.filters import BOUND_SIGNS, Filter
from mar_st.index.vectors import cells, code_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mar_st.encode.folder import VectorFolder

#: Environment variable with the credentials for a server: `USER:PASSWORD`, or an API key.
TOKEN_VARIABLE = "MILVUS_TOKEN"  # noqa: S105 -- its name

#: Property that describes a collection.
_PROPERTY = "mar_index"

#: Maximum bytes of an id, and of any other text, in a collection (Milvus' own limits).
_MAX_ID, _MAX_TEXT = 512, 65_535

#: Rows that are sent, or ids that are asked for, at once.
_BATCH = 512

_ADDRESS = re.compile(r"(?P<uri>https?://[^/]+|.*\.db)(?:/(?P<collection>\w+))?")

#: The escapes that all parsers of Milvus know. Other characters stand for themselves.
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _index_type(kind: str, dim: int, count: int) -> tuple[str, dict[str, Any], dict[str, int]]:
    """Return what Milvus builds for a kind: its name there, build settings and search settings."""
    types: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
        "auto": ("AUTOINDEX", {}, {}),
        "exact": ("FLAT", {}, {}),
        "hnsw": ("HNSW", {"M": 32, "efConstruction": 100}, {"ef": 128}),
        "ivf-pq": (
            "IVF_PQ", {"nlist": cells(count), "m": code_bytes(dim), "nbits": 8}, {"nprobe": 64},
        ),
    }  # fmt: skip
    if kind not in types:
        raise MarError(f"Kinds of index in Milvus are {', '.join(types)}; got {kind!r}.")
    return types[kind]


def _client(target: str) -> tuple[Any, str]:
    """Return a `pymilvus.MilvusClient` and the name of the collection for an address."""
    match = _ADDRESS.fullmatch(target.removeprefix(MILVUS_PREFIX))
    if not match:
        raise MarError(f"{target!r} is not an address: write milvus:PATH.db or milvus:http://HOST:PORT.")
    pymilvus, uri = load_package("pymilvus", extra="scale"), match["uri"]
    token = os.environ.get(TOKEN_VARIABLE, "")
    if _is_lite(target):
        load_package("milvus_lite", extra="scale")
        token = ""
        Path(uri).absolute().parent.mkdir(parents=True, exist_ok=True)
    with _failures_of(f"{uri}; a login is read from {TOKEN_VARIABLE}"):
        return pymilvus.MilvusClient(uri, token=token), match["collection"] or "documents"


@contextmanager
def _failures_of(name: str) -> Iterator[None]:
    """Report in one line what Milvus refused."""
    try:
        yield
    except load_package("pymilvus", extra="scale").MilvusException as error:
        raise MarError(f"Milvus ({name}) answered: {one_line(error)}") from error


def _is_lite(target: str) -> bool:
    return not target.removeprefix(MILVUS_PREFIX).startswith("http")


def _literal(given: Any) -> str:
    """Return a value, or several values, as written in an expression."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, str):
        return f'"{given.translate(_ESCAPES)}"'
    if isinstance(given, int | float):
        return repr(given)
    return f"[{', '.join(map(_literal, given))}]"


def _rows(
    folder: VectorFolder, corpus: str | Path | None, fields: Mapping[str, FieldType]
) -> Iterator[list[dict[str, Any]]]:
    """Yield all documents as rows of a collection, in batches.

    Raises:
        MarError: A document is too long, or corpus and vectors do not belong together.
    """
    documents = documents_of(folder, corpus)
    vectors = (vector for block in compared(folder).blocks() for vector in block)
    places = {name: place for place, name in enumerate(fields)}
    while batch := list(islice(documents, _BATCH)):
        rows = []
        for document, vector in zip(batch, islice(vectors, len(batch)), strict=True):
            row: dict[str, Any] = {"id": document.id, "title": document.title, "text": document.text}
            row["metadata"] = json.dumps(document.metadata, ensure_ascii=False)
            for name, value in row.items():
                most = _MAX_ID if name == "id" else _MAX_TEXT
                if len(value.encode()) > most:
                    raise MarError(
                        f"The {name} of document {document.id[:60]!r} exceeds Milvus' {most} bytes."
                    )
            for name, value in document.metadata.items():
                if fields.get(name) == "string":
                    row[f"metadata_{places[name]}"] = value if isinstance(value, str) else json.dumps(value)
                elif fields.get(name) == type_of(value):
                    row[f"metadata_{places[name]}"] = float(value) if fields[name] == "number" else value
            rows.append({**row, "vector": vector})
        yield rows


def build_milvus(
    folder: VectorFolder,
    target: str,
    *,
    corpus: str | Path | None,
    kind: str,
    progress: bool,
) -> dict[str, Any]:
    """Build a collection from a folder of vectors, see `mar_st.index.build.build_index`.

    Returns:
        The description of the collection, and its number of documents.

    Raises:
        MarError: Milvus does not have this kind, the collection already exists, or no server answers.
    """
    name, given, search = _index_type(kind, folder.dim, len(folder))
    client, collection = _client(target)
    unfinished = f"{collection}_unfinished"
    types, counts = load_package("pymilvus", extra="scale").DataType, FieldTypes()
    for document in documents_of(folder, corpus):
        counts.add(document)
    about: dict[str, Any] = {
        "model": (folder.manifest.get("model") or {}).get("name"),
        "space": folder.space, "dim": folder.dim, "similarity": folder.similarity, "kind": kind,
        "texts": corpus is not None, "fields": counts.types(), "search": search,
    }  # fmt: skip
    with _failures_of(target):
        if client.has_collection(collection):
            raise MarError(f"{target} holds a collection already. Name another: milvus:ADDRESS/NAME")
        if client.has_collection(unfinished):  # left over from a killed build
            client.drop_collection(unfinished)
        schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
        schema.add_field("id", types.VARCHAR, is_primary=True, max_length=_MAX_ID)
        schema.add_field("vector", types.FLOAT_VECTOR, dim=folder.dim)
        for field in ("title", "text", "metadata"):
            schema.add_field(field, types.VARCHAR, max_length=_MAX_TEXT)
        # Session: a writer finds its own writes, and a reader does not wait for the writes of others.
        client.create_collection(
            unfinished, schema=schema, consistency_level="Session", properties={_PROPERTY: json.dumps(about)}
        )
        MilvusIndex(client, unfinished, target).add(folder, corpus=corpus, progress=progress)
        client.flush(unfinished)
        chosen = client.prepare_index_params()
        chosen.add_index("vector", index_type=name, metric_type="IP", params=given)
        client.create_index(unfinished, chosen)
        client.rename_collection(unfinished, collection)
        client.load_collection(collection)
    return {**about, "count": len(folder)}


class MilvusIndex(Index):
    """A collection of Milvus.

    Args:
        client: A `pymilvus.MilvusClient`.
        collection: Name of the collection.
        name: Address, for messages.
    """

    def __init__(self, client: Any, collection: str, name: str) -> None:
        self.client, self.collection = client, collection
        try:
            super().__init__(
                name, json.loads(client.describe_collection(collection)["properties"][_PROPERTY])
            )
        except (ValueError, KeyError, TypeError) as error:
            raise MarError(f"The collection {collection} of {name} is not of 'mar index build'.") from error

    @classmethod
    def connect(cls, target: str) -> Self:
        """Open a collection, see `Index.open`.

        Raises:
            MarError: No server answers, or the collection does not exist.
        """
        file = target.removeprefix(MILVUS_PREFIX).rpartition(".db")[0] + ".db"
        if _is_lite(target) and not Path(file).exists():
            raise MarError(f"There is no Milvus Lite index {target}. 'mar index build' builds one.")
        client, collection = _client(target)
        with _failures_of(target):
            if not client.has_collection(collection):
                raise MarError(f"{target} has no collection {collection}. 'mar index build' builds one.")
            client.load_collection(collection)
            return cls(client, collection, target)

    def __len__(self) -> int:
        with _failures_of(self.name):
            rows = self.client.query(
                self.collection, filter="", output_fields=["count(*)"], consistency_level="Strong"
            )
        return int(rows[0]["count(*)"])

    def find(
        self, vectors: np.ndarray, k: int, where: Filter | None, settings: Mapping[str, int] | None = None
    ) -> ScoredKeys:
        """Search the collection by vectors, as `Index.find`."""
        wanted = {**self.settings, **(settings or {})}
        if "ef" in wanted:
            wanted["ef"] = max(wanted["ef"], k)  # Milvus refuses less
        terms, names = list[str](), list(self.fields)
        for condition in () if where is None else where.typed(self.fields).conditions:
            field = f"metadata_{names.index(condition.field)}"
            if condition.any_of is not None:
                terms.append(f"{field} in {_literal(condition.any_of)}")
            terms += [f"{field} {BOUND_SIGNS[name]} {_literal(value)}" for name, value in condition.bounds]
        scores = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        keys: list[list[Key]] = []
        for start in range(0, len(vectors), _BATCH):
            with _failures_of(self.name):
                results = self.client.search(
                    self.collection,
                    data=list(vectors[start : start + _BATCH]),
                    limit=k,
                    filter=" and ".join(terms),
                    output_fields=["id"],
                    anns_field="vector",
                    search_params={"params": wanted},
                )
            for hits in results:
                # Milvus orders equal scores arbitrarily; here, as everywhere, ids break ties.
                ordered = sorted((-float(hit["distance"]), str(hit["id"])) for hit in hits)
                scores[len(keys), : len(ordered)] = [-score for score, _ in ordered]
                keys.append([name for _, name in ordered])
        return ScoredKeys(keys, scores)

    def documents(self, keys: Sequence[Key]) -> list[Entry]:
        """Read the documents of some hits, as `Index.documents`; one deleted since then has no text."""
        found = {row["id"]: row for row in self._found(self.ids(keys), ["id", "title", "text", "metadata"])}
        empty = {"title": "", "text": "", "metadata": "{}"}
        rows = ((name, found.get(name, empty)) for name in self.ids(keys))
        return [Entry(name, row["title"], row["text"], json.loads(row["metadata"])) for name, row in rows]

    def document(self, name: str) -> Entry | None:
        """Look an id up, as `Index.document`."""
        return self.documents([name])[0] if self._found([name], ["id"]) else None

    def ids(self, keys: Sequence[Key]) -> list[str]:
        """Return the keys, which are ids."""
        return [str(key) for key in keys]

    def add(self, vectors: VectorFolder, *, corpus: str | Path | None = None, progress: bool = True) -> None:
        """Add documents, see `mar_st.index.build.add`; an interrupted addition is repeated.

        Raises:
            MarError: The vectors or documents do not fit.
        """
        corpus = corpus if corpus is not None else encoded_corpus(vectors)
        self.check_addition(vectors, corpus)
        vectors.verify()
        with tqdm(total=len(vectors), desc="milvus", unit="documents", disable=not progress) as bar:
            for rows in _rows(vectors, corpus, self.fields):
                with _failures_of(self.name):
                    self.client.upsert(self.collection, rows)
                bar.update(len(rows))

    def delete(self, ids: Iterable[str]) -> None:
        """Delete documents by id; ids that are not there are passed over."""
        names = list(dict.fromkeys(ids))
        for start in range(0, len(names), _BATCH):
            with _failures_of(self.name):
                self.client.delete(self.collection, filter=self._named(names[start : start + _BATCH]))

    def _found(self, ids: Sequence[str], fields: list[str]) -> list[dict[str, Any]]:
        """Return some fields of documents, also of those that others wrote a moment ago."""
        rows: list[dict[str, Any]] = []
        for start in range(0, len(ids), _BATCH):
            selection = self._named(ids[start : start + _BATCH])
            with _failures_of(self.name):
                rows += self.client.query(
                    self.collection, filter=selection, output_fields=fields, consistency_level="Strong"
                )
        return rows

    def _named(self, ids: Sequence[str]) -> str:
        """Return the expression that selects documents by id; pymilvus inserts its own `ids` unescaped."""
        try:
            "".join(ids).encode()
        except UnicodeEncodeError as error:
            raise MarError(f"An id is not valid Unicode ({error}).") from error
        return f"id in {_literal(ids)}"
