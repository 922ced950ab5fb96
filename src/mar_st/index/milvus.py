"""The same index in Milvus: Milvus Lite (a path) on one machine, a server or cluster by its address.

A collection holds a row per document: `id`, `vector`, `title`, `text`, and a nullable field for each metadata
field, `metadata_0`, `metadata_1`, ... (names of Milvus are narrower than those of metadata). What the
collection is (model, space, names and types) stands in its description and in a property. Words (BM25) are
not indexed there, so hybrid search needs an index folder.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.index.build import joined
from mar_st.index.documents import Stored, common_type, type_of
from mar_st.index.errors import IndexingError, need
from mar_st.index.filters import BOUNDS
from mar_st.index.index import MILVUS, Found, Index
from mar_st.index.source import FolderSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mar_st.encode import VectorFolder
    from mar_st.index.filters import Condition, FieldType, Filter, Scalar
    from mar_st.index.index import Key

#: Property that says what a collection is; Milvus Lite keeps properties but no descriptions.
_PROPERTY = "mar_index"

#: Name of a collection where the address names none.
COLLECTION = "documents"

#: Bytes of an id and of a text that a collection takes (Milvus' own limit).
LONGEST_ID, LONGEST_TEXT = 512, 65_535

#: Rows that are sent at once, and ids that are asked for at once.
_SENT, _ASKED = 512, 1000

_INDEXES: dict[str, dict[str, Any]] = {
    "auto": {"index_type": "AUTOINDEX"},
    "exact": {"index_type": "FLAT"},
    "hnsw": {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 100}},
    "ivf-pq": {"index_type": "IVF_PQ", "params": {"nlist": 1024, "m": 16, "nbits": 8}},
    "int8": {"index_type": "IVF_SQ8", "params": {"nlist": 1024}},
}

_ADDRESS = re.compile(r"(?P<uri>https?://[^/]+|.*\.db)(?:/(?P<collection>\w+))?")


class MilvusIndex(Index):
    """A collection of Milvus.

    Args:
        client: A `pymilvus.MilvusClient`.
        collection: Name of the collection.
        name: Address, for messages.
    """

    has_words = False

    def __init__(self, client: Any, collection: str, name: str) -> None:
        self.client, self.collection, self.name = client, collection, name
        described = client.describe_collection(collection)
        try:
            kept = described.get("properties", {}).get(_PROPERTY) or described["description"]
            self.about: dict[str, Any] = json.loads(kept)
            self.dim, self.similarity = self.about["dim"], self.about["similarity"]
        except (ValueError, KeyError, TypeError) as error:
            raise IndexingError(
                f"The collection {collection} of {name} was not made by 'mar index'."
            ) from error
        self.space, self.kind, self.has_texts = self.about["space"], self.about["kind"], self.about["texts"]
        self.fields: dict[str, FieldType] = self.about["fields"]
        self.model = self.about["model"]

    @classmethod
    def connect(cls, target: str) -> MilvusIndex:
        """Open a collection.

        Args:
            target: `milvus:PATH.db` or `milvus:http://HOST:PORT`, maybe with `/COLLECTION`.

        Raises:
            IndexingError: Nothing answers there, or there is no such collection.
        """
        uri, collection = _address(target)
        if not uri.startswith("http") and not Path(uri).exists():
            raise IndexingError(
                f"There is no Milvus Lite index {uri}. 'mar index VECTORS {target}' builds one."
            )
        client = _client(uri)
        if not client.has_collection(collection):
            raise IndexingError(f"{uri} has no collection {collection}. 'mar index' builds one.")
        client.load_collection(collection)
        return cls(client, collection, target)

    def __len__(self) -> int:
        found = self.client.query(self.collection, filter="", output_fields=["count(*)"])
        return int(found[0]["count(*)"])

    def find(self, vectors: np.ndarray, k: int, where: Filter | None) -> Found:
        """See `Index`."""
        results = self.client.search(
            self.collection,
            data=vectors.tolist(),
            limit=k,
            filter="" if where is None else expression(where.typed(self.fields), list(self.fields)),
            output_fields=["id"],
            anns_field="vector",
        )
        scores = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        keys: list[list[Key]] = []
        for number, hits in enumerate(results):
            # Milvus ranks equal scores as it likes; here, as everywhere, they are told apart the same way.
            ordered = sorted((-float(hit["distance"]), str(hit["id"])) for hit in hits)
            scores[number, : len(ordered)] = [-score for score, _ in ordered]
            keys.append([name for _, name in ordered])
        return Found(keys, scores)

    def find_words(self, texts: Sequence[str], k: int, where: Filter | None) -> Found:
        """Not possible.

        Raises:
            IndexingError: Always.
        """
        del texts, k, where
        raise IndexingError(f"{self.name} has no BM25. For hybrid search build an index folder (mar index).")

    def documents(self, keys: Sequence[Key]) -> list[Stored]:
        """See `Index`."""
        found: dict[str, Stored] = {}
        columns = {f"metadata_{place}": name for place, name in enumerate(self.fields)}
        for start in range(0, len(keys), _ASKED):
            asked = [str(key) for key in keys[start : start + _ASKED]]
            wanted = ["id", "title", "text", *columns]
            for row in self.client.get(self.collection, ids=asked, output_fields=wanted):
                metadata = {
                    name: row[column] for column, name in columns.items() if row.get(column) is not None
                }
                found[row["id"]] = Stored(row["id"], row["title"], row["text"], metadata)
        return [found[str(key)] for key in keys]

    def ids(self, found: Found) -> list[list[str]]:
        """See `Index`."""
        return [[str(key) for key in keys] for keys in found.keys]

    def add(
        self,
        vectors: VectorFolder,
        *,
        corpus: str | Path | None = None,
        replace: bool = False,
        progress: bool = True,
    ) -> None:
        """Add documents, or replace them, see `mar_st.index.update.add`.

        Raises:
            IndexingError: The vectors do not fit, or ids are there (without `replace`) or are not (with it).
        """
        if (vectors.dim, vectors.similarity) != (self.dim, self.similarity):
            raise IndexingError(
                f"{vectors.path} has {vectors.dim} dimensions compared by {vectors.similarity}; {self.name} "
                f"has {self.dim} by {self.similarity}."
            )
        if self.has_texts and corpus is None:
            raise IndexingError(f"The index {self.name} keeps texts, so give the corpus of what is added.")
        ids = vectors.ids.to_pylist()
        there = self._present(ids)
        if replace and len(there) < len(ids):
            odd = next(name for name in ids if name not in there)
            raise IndexingError(f"{odd!r} is not in {self.name}; add instead of updating.")
        if there and not replace:
            raise IndexingError(f"{min(there)!r} is in {self.name} already; update instead of adding.")
        _insert(self.client, self.collection, vectors, corpus, fields=self.fields, progress=progress)

    def delete(self, ids: Iterable[str]) -> None:
        """Delete documents by id.

        Raises:
            IndexingError: Some are not there.
        """
        names = list(dict.fromkeys(ids))
        there = self._present(names)
        if not names or len(there) < len(names):
            odd = [name for name in names if name not in there]
            raise IndexingError(f"{odd[:3]} are not in {self.name}, so nothing was deleted.")
        for start in range(0, len(names), _ASKED):
            self.client.delete(self.collection, ids=names[start : start + _ASKED])

    def _present(self, ids: Sequence[str]) -> set[str]:
        found = set()
        for start in range(0, len(ids), _ASKED):
            rows = self.client.get(
                self.collection, ids=list(ids[start : start + _ASKED]), output_fields=["id"]
            )
            found |= {row["id"] for row in rows}
        return found


def build_milvus(
    folder: VectorFolder,
    target: str,
    *,
    corpus: str | Path | None,
    kind: str,
    params: Mapping[str, Any],
    progress: bool,
) -> dict[str, Any]:
    """Make a collection of a folder of vectors, see `mar_st.index.build_index`.

    Returns:
        What the collection's description says.

    Raises:
        IndexingError: The kind is none of Milvus', the collection is there already, or nothing answers.
    """
    if kind not in _INDEXES:
        raise IndexingError(f"Kinds of index in Milvus are {', '.join(_INDEXES)}; got {kind!r}.")
    uri, collection = _address(target)
    client = _client(uri)
    if client.has_collection(collection):
        raise IndexingError(f"{uri} has a collection {collection} already. Name another: {target}/NAME")
    data_type = need("pymilvus").DataType
    fields = _types(folder, corpus)
    about = {
        "format": "mar-index", "version": 1, "model": (folder.manifest.get("model") or {}).get("name"),
        "space": folder.space, "dim": folder.dim, "similarity": folder.similarity, "kind": kind,
        "texts": corpus is not None, "fields": fields,
    }  # fmt: skip
    written = json.dumps(about, ensure_ascii=False)
    schema = client.create_schema(auto_id=False, description=written)
    schema.add_field("id", data_type.VARCHAR, is_primary=True, max_length=LONGEST_ID)
    schema.add_field("vector", data_type.FLOAT_VECTOR, dim=folder.dim)
    schema.add_field("title", data_type.VARCHAR, max_length=LONGEST_TEXT)
    schema.add_field("text", data_type.VARCHAR, max_length=LONGEST_TEXT)
    types = {"string": "VARCHAR", "integer": "INT64", "number": "DOUBLE", "boolean": "BOOL"}
    for place, type_name in enumerate(fields.values()):
        long = {"max_length": LONGEST_TEXT} if type_name == "string" else {}
        schema.add_field(f"metadata_{place}", getattr(data_type, types[type_name]), nullable=True, **long)
    unfinished = f"{collection}_unfinished"
    if client.has_collection(unfinished):  # of a build that was killed
        client.drop_collection(unfinished)
    client.create_collection(unfinished, schema=schema, properties={_PROPERTY: written})
    _insert(client, unfinished, folder, corpus, fields=fields, progress=progress)
    client.flush(unfinished)
    chosen = client.prepare_index_params()
    settings = {**_INDEXES[kind].get("params", {}), **params}
    chosen.add_index("vector", index_type=_INDEXES[kind]["index_type"], metric_type="IP", params=settings)
    client.create_index(unfinished, chosen)
    client.rename_collection(unfinished, collection)
    client.load_collection(collection)
    return {**about, "count": len(folder)}


def expression(where: Filter, fields: Sequence[str]) -> str:
    """A typed filter in Milvus' language.

    Args:
        where: The filter.
        fields: Names of the metadata fields in the order of the collection's.
    """
    terms = (_term(condition, f"metadata_{fields.index(condition.field)}") for condition in where.conditions)
    return " and ".join(f"({term})" for term in terms)


def _term(condition: Condition, field: str) -> str:
    if condition.any_of is not None:
        return f"{field} in [{', '.join(map(_literal, condition.any_of))}]"
    return " and ".join(f"{field} {BOUNDS[name]} {_literal(value)}" for name, value in condition.bounds)


def _literal(value: Scalar) -> str:
    return json.dumps(value, ensure_ascii=False)


def _insert(
    client: Any,
    collection: str,
    folder: VectorFolder,
    corpus: str | Path | None,
    *,
    fields: Mapping[str, FieldType],
    progress: bool,
) -> None:
    """Send all documents.

    Raises:
        IndexingError: A document is too long, or has metadata that the collection has no field for.
    """
    documents = _documents(folder, corpus)
    rows: list[dict[str, Any]] = []
    with tqdm(total=len(folder), desc="milvus", unit="documents", disable=not progress) as bar:
        for block in FolderSource(folder).blocks():
            for vector in block:
                rows.append(_row(next(documents), vector, fields))
                if len(rows) >= _SENT:
                    client.upsert(collection, rows)
                    bar.update(len(rows))
                    rows = []
        if rows:
            client.upsert(collection, rows)
            bar.update(len(rows))


def _row(document: Stored, vector: np.ndarray, fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """A document as the collection keeps it."""
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
    row |= {f"metadata_{place}": None for place in range(len(fields))}
    for name, value in document.metadata.items():
        wanted = fields.get(name)
        if wanted == "string" and not isinstance(value, str):
            value = json.dumps(value)
        elif wanted not in (type_of(value), "number" if type_of(value) == "integer" else None):
            raise IndexingError(
                f"Document {document.id!r} has {name}={value!r}; the collection has "
                f"{f'{name} as {wanted}' if wanted else 'no such field'}. Build the collection anew."
            )
        row[f"metadata_{list(fields).index(name)}"] = value
    return row


def _documents(folder: VectorFolder, corpus: str | Path | None) -> Iterator[Stored]:
    if corpus is not None:
        return joined(folder, corpus)
    return (Stored(name, "", "", {}) for chunk in folder.ids.chunks for name in chunk.to_pylist())


def _types(folder: VectorFolder, corpus: str | Path | None) -> dict[str, FieldType]:
    """Types of the metadata fields."""
    seen: dict[str, set[FieldType]] = {}
    for document in _documents(folder, corpus):
        for name, value in document.metadata.items():
            seen.setdefault(name, set()).add(type_of(value))
    return {name: common_type(kinds) for name, kinds in sorted(seen.items())}


def _address(target: str) -> tuple[str, str]:
    found = _ADDRESS.fullmatch(target.removeprefix(MILVUS))
    if not found:
        raise IndexingError(f"{target!r} is no address: write milvus:PATH.db or milvus:http://HOST:PORT.")
    return found["uri"], found["collection"] or COLLECTION


def _client(uri: str) -> Any:
    pymilvus = need("pymilvus")
    if not uri.startswith("http"):
        need("milvus_lite")
        Path(uri).absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        return pymilvus.MilvusClient(uri)
    except pymilvus.MilvusException as error:
        reason = " ".join(str(error).split())[:200]
        raise IndexingError(
            f"Milvus at {uri} cannot be opened ({reason}). Is it running, or in use?"
        ) from error
