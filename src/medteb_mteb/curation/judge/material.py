"""The texts that are judged: read, checked and grouped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.judge.pools import read_pools
from medteb_mteb.curation.llm.private import refuse_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["JudgingMaterial", "QueryGroup", "read_material"]


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Documents (ids of distinct texts) to judge for one query text, which may have several ids."""

    query: str
    documents: tuple[str, ...]


class JudgingMaterial:
    """The texts to be judged, with their digests.

    Args:
        queries: Text of every query of the pools.
        documents: Text of every document of the pools.
        pools: Query id to the ids of its documents.
        gold: Query id to texts of documents that are known to answer it.
    """

    def __init__(
        self,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        pools: Mapping[str, Sequence[str]],
        gold: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.queries, self.documents, self.pools = queries, documents, pools
        self.digests = {
            **{("q", name): hashlib.sha256(text.encode()).digest() for name, text in queries.items()},
            **{("d", name): hashlib.sha256(text.encode()).digest() for name, text in documents.items()},
        }
        self._suspects: dict[str, bool] = {}
        self._gold: dict[bytes, list[str]] = {}
        for query, texts in (gold or {}).items():
            if query in queries:
                self._gold.setdefault(self.digests["q", query], []).extend(texts)

    def groups(self) -> Iterator[QueryGroup]:
        """Yield the pools grouped by query text; every judgement occurs once."""
        by_text: dict[bytes, list[str]] = {}
        for query in self.pools:
            by_text.setdefault(self.digests["q", query], []).append(query)
        for names in by_text.values():
            documents: dict[bytes, str] = {}
            for name in names:
                for document in self.pools[name]:
                    documents.setdefault(self.digests["d", document], document)
            yield QueryGroup(names[0], tuple(documents.values()))

    def suspect(self, document: str) -> bool:
        """Return True if a document looks like a prompt injection."""
        if document not in self._suspects:
            self._suspects[document] = suspicious(self.documents[document])
        return self._suspects[document]

    def gold_beside(self, query: str, documents: Sequence[str]) -> list[str]:
        """Return the texts that are known to answer a query, without those of the documents beside them."""
        known = self._gold.get(self.digests["q", query], [])
        beside = {self.documents[document] for document in documents} if known else set()
        return sorted({text for text in known if text not in beside})

    @property
    def pairs(self) -> int:
        """Return the number of pairs in the pools."""
        return sum(map(len, self.pools.values()))


def read_material(
    queries: str | Path,
    documents: str | Path,
    pools: str | Path,
    *,
    already_anonymous: bool,
    gold: str | Path | None = None,
) -> JudgingMaterial:
    """Return texts of the pools and of the gold pairs, which have the same form; all others are left out."""
    query_texts = {text.id: text for text in read_texts(queries)}
    document_texts = {text.id: text for text in read_texts(documents)}
    pairs = read_pools(pools, query_texts, document_texts)
    pool_queries = [query_texts[name] for name in pairs]
    pool_documents = [
        document_texts[name] for name in dict.fromkeys(d for names in pairs.values() for d in names)
    ]
    gold_pools = {} if gold is None else read_pools(gold, query_texts, document_texts)
    if not already_anonymous:
        gold_documents = [document_texts[name] for names in gold_pools.values() for name in names]
        refuse_private({"queries": pool_queries, "documents": [*pool_documents, *gold_documents]})
    return JudgingMaterial(
        {text.id: text.full for text in pool_queries},
        {text.id: text.full for text in pool_documents},
        pairs,
        {query: [document_texts[name].full for name in names] for query, names in gold_pools.items()},
    )
