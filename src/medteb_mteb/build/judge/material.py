"""The texts that are judged: read, checked and grouped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.build.judge.injection import suspicious
from medteb_mteb.build.judge.pools import read_pools
from medteb_mteb.build.llm.private import refuse_private
from medteb_mteb.build.read import read_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Group", "Material", "read_material"]


@dataclass(frozen=True, slots=True)
class Group:
    """Documents (ids of distinct texts) to judge for one query text, which may have several ids."""

    query: str
    documents: tuple[str, ...]


class Material:
    """The texts to be judged, with their digests.

    Args:
        queries: Text of every query of the pools.
        documents: Text of every document of the pools.
        pools: Query id to the ids of its documents.
    """

    def __init__(
        self,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        pools: Mapping[str, Sequence[str]],
    ) -> None:
        self.queries, self.documents, self.pools = queries, documents, pools
        self.digests = {
            **{("q", name): hashlib.sha256(text.encode()).digest() for name, text in queries.items()},
            **{("d", name): hashlib.sha256(text.encode()).digest() for name, text in documents.items()},
        }
        self._suspects: dict[str, bool] = {}

    def groups(self) -> Iterator[Group]:
        """The pools by text: the same judgement is in one group, once."""
        by_text: dict[bytes, list[str]] = {}
        for query in self.pools:
            by_text.setdefault(self.digests["q", query], []).append(query)
        for names in by_text.values():
            found: dict[bytes, str] = {}
            for name in names:
                for document in self.pools[name]:
                    found.setdefault(self.digests["d", document], document)
            yield Group(names[0], tuple(found.values()))

    def suspect(self, document: str) -> bool:
        """Return True if a document looks like a prompt injection."""
        if document not in self._suspects:
            self._suspects[document] = suspicious(self.documents[document])
        return self._suspects[document]

    @property
    def pairs(self) -> int:
        """Number of pairs in the pools."""
        return sum(map(len, self.pools.values()))


def read_material(
    queries: str | Path, documents: str | Path, pools: str | Path, *, already_anonymous: bool
) -> Material:
    """The texts of the pools; those of no pool are left out."""
    asked = {text.id: text for text in read_texts(queries)}
    there = {text.id: text for text in read_texts(documents)}
    pairs = read_pools(pools, asked, there)
    wanted_queries = [asked[name] for name in pairs]
    wanted = [there[name] for name in dict.fromkeys(d for names in pairs.values() for d in names)]
    if not already_anonymous:
        refuse_private({"queries": wanted_queries, "documents": wanted})
    return Material(
        {text.id: text.full for text in wanted_queries}, {text.id: text.full for text in wanted}, pairs
    )
