"""A collection of Milvus as an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mar_st.index.base import Index, ScoredKeys, store
from mar_st.index.documents import Stored
from mar_st.index.errors import IndexingError
from mar_st.index.manifest import has_names, has_thresholds
from mar_st.index.milvus.client import connect, failures_of, is_lite, is_newer, parse_address
from mar_st.index.milvus.expressions import of_filter, of_ids
from mar_st.index.milvus.rows import PROPERTY, rows_of, send, takes_nulls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mar_st.encode import VectorFolder
    from mar_st.index.base import Key, MeasurementField
    from mar_st.index.filters import FieldType, Filter

#: Ids and queries that are asked for at once.
_BATCH_SIZE = 1000


@store("milvus")
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
        self._templates = not is_lite(name) and is_newer(client)
        described = client.describe_collection(collection)
        try:
            self.about: dict[str, Any] = json.loads(described["properties"][PROPERTY])
            self.dim, self.similarity = self.about["dim"], self.about["similarity"]
        except (ValueError, KeyError, TypeError) as error:
            raise IndexingError(
                f"The collection {collection} of {name} was not made by 'mar index build'."
            ) from error
        self.space, self.kind, self.has_texts = self.about["space"], self.about["kind"], self.about["texts"]
        self.fields: dict[str, FieldType] = self.about["fields"]
        self.model = self.about["model"]
        self.settings, self.efforts = self.about.get("search", {}), {}
        self.matches: dict[str, dict[str, Any]] = self.about.get("matches", {})
        if not (has_names(self.matches) and has_thresholds(self.matches)):
            raise IndexingError(f"The thresholds of matches in {name} are damaged. Build the index again.")

    @classmethod
    def connect(cls, target: str) -> Self:
        """Open a collection.

        Args:
            target: `milvus:PATH.db` or `milvus:http://HOST:PORT`, optionally with `/COLLECTION`.

        Raises:
            IndexingError: No server answers, or the collection does not exist.
        """
        uri, collection = parse_address(target)
        if is_lite(uri) and not Path(uri).exists():
            raise IndexingError(
                f"There is no Milvus Lite index {uri}. 'mar index build VECTORS {target}' builds one."
            )
        client = connect(uri)
        with failures_of(uri):
            if not client.has_collection(collection):
                raise IndexingError(f"{uri} has no collection {collection}. 'mar index build' builds one.")
            client.load_collection(collection)
            return cls(client, collection, target)

    def __len__(self) -> int:
        with failures_of(self.name):
            rows = self.client.query(
                self.collection, filter="", output_fields=["count(*)"], consistency_level="Strong"
            )
        return int(rows[0]["count(*)"])

    def find(
        self, vectors: np.ndarray, k: int, where: Filter | None, settings: Mapping[str, int] | None = None
    ) -> ScoredKeys:
        """Search the collection by vectors, as `Index.find`."""
        merged = {**self.settings, **(settings or {})}
        if "ef" in merged:
            merged["ef"] = max(merged["ef"], k)  # Milvus refuses less
        typed = None if where is None else where.typed(self.fields)
        passes = of_filter(typed, list(self.fields), templates=self._templates)
        scores = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        keys: list[list[Key]] = []
        if typed is not None and typed.impossible:
            return ScoredKeys([[] for _ in vectors], scores)
        for start in range(0, len(vectors), _BATCH_SIZE):
            with failures_of(self.name):
                results = self.client.search(
                    self.collection,
                    data=list(vectors[start : start + _BATCH_SIZE]),
                    limit=k,
                    **passes.arguments,
                    output_fields=["id"],
                    anns_field="vector",
                    search_params={"params": merged},
                )
            for hits in results:
                # Milvus orders equal scores arbitrarily; here, as everywhere, ids break ties.
                ordered = sorted((-float(hit["distance"]), str(hit["id"])) for hit in hits)
                scores[len(keys), : len(ordered)] = [-score for score, _ in ordered]
                keys.append([name for _, name in ordered])
        return ScoredKeys(keys, scores)

    def find_words(
        self, texts: Sequence[str], k: int, where: Filter | None, *, deadline: float | None = None
    ) -> ScoredKeys:
        """Raise an error: Milvus collections have no BM25.

        Raises:
            IndexingError: Always.
        """
        del texts, k, where, deadline
        raise IndexingError(f"{self.name} has no BM25. Build an index folder with 'mar index build'.")

    def documents(self, keys: Sequence[Key]) -> list[Stored]:
        """Read the documents of some hits, as `Index.documents`; one deleted since then has no text."""
        stored = self.find_documents([str(key) for key in keys])
        return [stored.get(str(key)) or Stored(str(key), "", "", {}) for key in keys]

    def find_documents(self, names: Sequence[str]) -> dict[str, Stored]:
        """Read the documents of some ids, as `Index.find_documents`."""
        columns = {f"metadata_{place}": name for place, name in enumerate(self.fields)}
        documents: dict[str, Stored] = {}
        for row in self._rows(names, ["id", "title", "text", *columns]):
            metadata = {name: row[column] for column, name in columns.items() if row.get(column) is not None}
            documents[row["id"]] = Stored(row["id"], row["title"], row["text"], metadata)
        return documents

    def ids(self, scored: ScoredKeys) -> list[list[str]]:
        """Return the ids of the hits, as `Index.ids`."""
        return [[str(key) for key in keys] for keys in scored.keys]

    def sample(self, count: int) -> list[tuple[Key, Stored]]:
        """Return documents that lie evenly among the sorted ids, see `Index.sample`."""
        ids = sorted(self._ids())
        chosen = np.unique(np.linspace(0, len(ids) - 1, min(count, len(ids))).round().astype(int))
        keys = [ids[place] for place in chosen]
        return list(zip(keys, self.documents(keys), strict=True))

    def _ids(self) -> list[str]:
        everything: dict[str, Any] = {"filter": "", "output_fields": ["id"]}
        with failures_of(self.name):
            if is_lite(self.name):  # its iterators log an error for each
                rows = self.client.query(self.collection, limit=max(1, len(self)), **everything)
                return [row["id"] for row in rows]
            batches = self.client.query_iterator(self.collection, batch_size=_BATCH_SIZE, **everything)
            try:
                return [row["id"] for batch in iter(batches.next, []) for row in batch]
            finally:
                batches.close()

    def keep(self, field: MeasurementField, origin: str, entry: dict[str, Any]) -> None:
        """Write what was measured for a query encoder into the collection's properties, as `Index.keep`."""
        with failures_of(self.name):
            stored = self.client.describe_collection(self.collection)["properties"][PROPERTY]
            about = json.loads(stored)
            about[field] = {**about.get(field, {}), origin: entry}
            changed = {PROPERTY: json.dumps(about, ensure_ascii=False)}
            self.client.alter_collection_properties(self.collection, changed)

    def add(
        self,
        vectors: VectorFolder,
        *,
        corpus: str | Path | None = None,
        replace: bool = False,
        progress: bool = True,
    ) -> None:
        """Add documents, or replace them, see `mar_st.index.update.add`.

        All documents are checked before the first is sent. An addition that was interrupted may be repeated:
        documents that the collection holds unchanged may be added again.

        Raises:
            IndexingError: The vectors do not fit, or ids exist (without `replace`) or do not (with it), or a
                document does not fit the collection.
        """
        self.check_addition(vectors, corpus)
        vectors.verify()
        ids = vectors.ids.to_pylist()
        present = self._present(ids)
        if replace and len(present) < len(ids):
            odd = next(name for name in ids if name not in present)
            raise IndexingError(f"{odd!r} is not in {self.name}; add instead of updating.")
        with failures_of(self.name):
            nulls = takes_nulls(self.client, self.collection)
            for rows in rows_of(vectors, corpus, self.fields, nulls=nulls):
                self._refuse_changed([] if replace else [row for row in rows if row["id"] in present])
            send(self.client, self.collection, vectors, corpus, fields=self.fields, progress=progress)

    def delete(self, ids: Iterable[str]) -> None:
        """Delete documents by id.

        Raises:
            IndexingError: Some ids do not exist.
        """
        names = list(dict.fromkeys(ids))
        present = self._present(names)
        if not names or len(present) < len(names):
            odd = [name for name in names if name not in present]
            raise IndexingError(f"{odd[:3]} are not in {self.name}, so nothing was deleted.")
        for start in range(0, len(names), _BATCH_SIZE):
            with failures_of(self.name):
                self.client.delete(self.collection, **self._named(names[start : start + _BATCH_SIZE]))

    def _refuse_changed(self, rows: Sequence[dict[str, Any]]) -> None:
        """Refuse to add documents whose ids the collection has with other content."""
        columns = ["title", "text", *(f"metadata_{place}" for place in range(len(self.fields)))]
        ids = [row["id"] for row in rows]
        stored = {
            row["id"]: row for row in self._rows(ids, ["id", "vector", *columns], consistency_level="Strong")
        }
        for row in rows:
            kept = stored.get(row["id"], row)
            same = all(kept.get(column) == row.get(column) for column in columns)
            if not same or not np.array_equal(np.asarray(kept["vector"], dtype=np.float32), row["vector"]):
                raise IndexingError(f"{row['id']!r} is in {self.name} already; update instead of adding.")

    def _present(self, ids: Sequence[str]) -> set[str]:
        # Includes what others wrote a moment ago: searches of a server may lag behind.
        return {row["id"] for row in self._rows(ids, ["id"], consistency_level="Strong")}

    def _rows(self, ids: Sequence[str], fields: list[str], **settings: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for start in range(0, len(ids), _BATCH_SIZE):
            selection = self._named(ids[start : start + _BATCH_SIZE])
            with failures_of(self.name):
                rows += self.client.query(self.collection, **selection, output_fields=fields, **settings)
        return rows

    def _named(self, ids: Sequence[str]) -> dict[str, Any]:
        """Return arguments that select documents by id; pymilvus inserts its own `ids` unescaped."""
        return of_ids(list(ids), templates=self._templates).arguments
