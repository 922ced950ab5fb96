"""The texts that are judged: read, checked and grouped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.options import Argument
from mar_st.text.values import as_id
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.llm.settings import PrivateSettings
from medteb_mteb.curation.step import Input

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from mar_st.data.rows import Row


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """A query text, which may have several ids, and the distinct documents to judge for it, by id."""

    ids: tuple[str, ...]
    text: str
    documents: Mapping[str, str]

    @property
    def query(self) -> str:
        """Return the first id."""
        return self.ids[0]


@dataclass
class Material:
    """The texts to be judged.

    Attributes:
        queries: Text of every query of the pools.
        documents: Text of every document of the pools.
        pools: Query id to the ids of its documents.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    pools: Mapping[str, Sequence[str]]

    @cached_property
    def query_digests(self) -> dict[str, bytes]:
        """Return the sha256 of each query's text, by id."""
        return {name: hashlib.sha256(text.encode()).digest() for name, text in self.queries.items()}

    @cached_property
    def document_digests(self) -> dict[str, bytes]:
        """Return the sha256 of each document's text, by id."""
        return {name: hashlib.sha256(text.encode()).digest() for name, text in self.documents.items()}

    @cached_property
    def suspects(self) -> frozenset[str]:
        """Return the ids of the documents that look like a prompt injection."""
        return frozenset(name for name, text in self.documents.items() if suspicious(text))

    @property
    def pairs(self) -> int:
        """Return the number of pairs in the pools."""
        return sum(map(len, self.pools.values()))

    def groups(self) -> Iterator[QueryGroup]:
        """Yield the pools grouped by query text; every judgement occurs once."""
        by_text: dict[bytes, list[str]] = {}
        for query in self.pools:
            by_text.setdefault(self.query_digests[query], []).append(query)
        for names in by_text.values():
            documents: dict[bytes, str] = {}
            for document in (document for name in names for document in self.pools[name]):
                documents.setdefault(self.document_digests[document], document)
            texts = {document: self.documents[document] for document in documents.values()}
            yield QueryGroup(tuple(names), self.queries[names[0]], texts)


class PooledSettings(PrivateSettings):
    """Options of a step that sends the texts of pools to LLMs."""

    queries: Annotated[Path, Argument(), Input("texts")] = Field(description="Queries.")
    documents: Annotated[Path, Argument(), Input("texts")] = Field(description="Documents.")
    pools: Annotated[Path, Argument(), Input("pools")] = Field(
        description="Pools: rows of query-id and corpus-ids."
    )


def read_material(settings: PooledSettings, depth: int | None = None) -> Material:
    """Return the texts of the pools, or of the first `depth` documents of each; all others are left out.

    Raises:
        MarError: The input cannot be used, or texts are not anonymised.
    """
    query_texts = {text.id: text for text in read_texts(settings.queries)}
    document_texts = {text.id: text for text in read_texts(settings.documents)}
    every = read_pools(settings.pools, query_texts, document_texts)
    pairs = {query: names[:depth] for query, names in every.items()}
    shown = dict.fromkeys(name for names in pairs.values() for name in names)
    settings.refuse_private(
        queries=[query_texts[name] for name in pairs], documents=[document_texts[name] for name in shown]
    )
    return Material(
        {name: query_texts[name].full for name in pairs},
        {name: document_texts[name].full for name in shown},
        pairs,
    )


def read_pools(
    source: str | Path, queries: Container[str] | None = None, documents: Container[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the ids of the documents of each query, by query id in the order of the rows.

    Rows are `{"query-id": ..., "corpus-ids": [...]}`, the form of mteb's `top_ranked`; other columns are
    ignored.

    Args:
        source: A file, or a folder with `pools` or `top_ranked`.
        queries: Allowed ids of queries; `None`: any.
        documents: Allowed ids of documents; `None`: any.

    Raises:
        MarError: The rows cannot be read, are not pools of these queries and documents, or have no pairs.
    """
    pools: dict[str, tuple[str, ...]] = {}

    def add(row: Row) -> None:
        query, listed = as_id(row.values.get("query-id")), row.values.get("corpus-ids")
        if query is None or not isinstance(listed, list):
            raise MarError(f"expected query-id and a list corpus-ids, got {', '.join(map(str, row.values))}")
        if queries is not None and query not in queries:
            raise MarError(f"there is no query {query!r}")
        if query in pools:
            raise MarError(f"query {query!r} has an earlier row")
        names = [as_id(entry) for entry in listed]
        unknown = [n for n in names if n is None or (documents is not None and n not in documents)]
        if unknown:
            raise MarError(f"there is no document {unknown[0]!r}")
        # A list may name a document twice; it is one pair.
        pools[query] = tuple(dict.fromkeys(name for name in names if name is not None))

    folder = Path(source)
    table = "top_ranked" if folder.is_dir() and any(folder.glob("top_ranked*")) else "pools"
    for _ in read_rows(source, add, table=table if folder.is_dir() else ""):
        pass
    if not any(pools.values()):
        raise MarError(f"{source} holds no pairs to judge.")
    return pools
