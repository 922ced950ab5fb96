"""Material of triples: queries of distinct texts, with the best documents of their pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.judge.pools import read_pools
from medteb_mteb.curation.llm import refuse_private
from medteb_mteb.curation.training.plan import QueryCandidates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["PoolTexts", "read_pool_texts"]


@dataclass(frozen=True)
class PoolTexts:
    """Queries with their documents.

    Attributes:
        queries: The first query of each text, in the order of the pools.
        repeated: Ids and texts of the other queries with the same text, by the id of the first.
        texts: Text of each document to judge.
    """

    queries: tuple[QueryCandidates, ...]
    repeated: Mapping[str, tuple[tuple[str, str], ...]]
    texts: Mapping[str, str]

    def shards(self, size: int) -> Iterator[tuple[int, tuple[QueryCandidates, ...]]]:
        """Yield number and queries of each shard."""
        for number, start in enumerate(range(0, len(self.queries), size)):
            yield number, self.queries[start : start + size]


def read_pool_texts(
    queries: str | Path, documents: str | Path, pools: str | Path, *, depth: int, already_anonymous: bool
) -> PoolTexts:
    """Read queries, documents and their pools.

    Args:
        queries: Queries, see `read_texts`.
        documents: Documents, see `read_texts`.
        pools: See `read_pools`.
        depth: Number of documents per pool to judge.
        already_anonymous: Whether texts that were not processed by the anonymiser may be sent.

    Raises:
        BuildError: The input cannot be used, or texts are not anonymised.
        FolderError: Rows are unusable.
    """
    query_texts = {text.id: text for text in read_texts(queries)}
    document_texts = {text.id: text for text in read_texts(documents)}
    pairs = {query: names[:depth] for query, names in read_pools(pools, query_texts, document_texts).items()}
    wanted = list(dict.fromkeys(name for names in pairs.values() for name in names))
    if not already_anonymous:
        refuse_private(
            {
                "queries": [query_texts[name] for name in pairs],
                "documents": [document_texts[name] for name in wanted],
            }
        )
    texts = {name: document_texts[name].full for name in wanted}
    by_text: dict[str, list[str]] = {}
    for query in pairs:
        by_text.setdefault(query_texts[query].full, []).append(query)
    candidates, repeated = [], {}
    for text, names in by_text.items():
        # Documents of queries with the same text are judged together; of documents with the same text, one.
        different: dict[str, str] = {}
        for name in (document for query in names for document in pairs[query]):
            different.setdefault(texts[name], name)
        candidates.append(QueryCandidates(names[0], text, tuple(different.values())))
        if len(names) > 1:
            repeated[names[0]] = tuple((name, text) for name in names[1:])
    return PoolTexts(tuple(candidates), repeated, texts)
