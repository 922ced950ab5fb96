"""Ranks at which retrievers found the documents of a pool, as written by `medteb pool`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mar_st.data.rows import row_files
from mar_st.text.values import as_id
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.folders import Problems, table_rows

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from mar_st.data import Row

__all__ = ["Ranks", "read_ranks"]


@dataclass(frozen=True)
class Ranks:
    """Ranks in pools.

    Attributes:
        retrievers: Names of the retrievers, in the order of the pools.
        by_query: Query -> document -> retriever -> rank, from 1.
    """

    retrievers: tuple[str, ...]
    by_query: dict[str, dict[str, dict[str, int]]]

    def run(self, retriever: str) -> dict[str, dict[str, float]]:
        """Return the documents that a retriever contributed to the pools, as a run."""
        return {
            query: {d: -float(ranks[retriever]) for d, ranks in row.items() if retriever in ranks}
            for query, row in self.by_query.items()
        }

    def alone(self, retriever: str) -> dict[str, set[str]]:
        """Return the documents of each query that only this retriever found."""
        return {
            query: {d for d, ranks in row.items() if set(ranks) == {retriever}}
            for query, row in self.by_query.items()
        }


def read_ranks(source: Path, queries: Container[str], documents: Container[str]) -> Ranks:
    """Return ranks by query, document and retriever; pairs of other queries and documents are ignored.

    Args:
        source: `pools.jsonl`, or the folder of a pool.
        queries: Ids of the queries.
        documents: Ids of the documents.

    Raises:
        BuildError: The pools cannot be read, or have other queries.
        FolderError: The pools have unusable rows; each is listed with file and line.
    """
    files = row_files(source, "pools" if source.is_dir() else "")
    problems = Problems(source)
    names: dict[str, None] = {}
    by_query: dict[str, dict[str, dict[str, int]]] = {}
    for file in files:
        for row in table_rows([file], problems):
            query = as_id(row.values.get("query-id"))
            ranks = _ranks(row, problems)
            if query is None:
                problems.add(row.place, "query", "expected 'query-id', the id of a query")
            if query is None or ranks is None or query not in queries:
                continue
            if query in by_query:
                problems.add(row.place, "duplicate", f"query {query!r} has an earlier row")
            found = {name for by_name in ranks.values() for name in by_name}
            names |= dict.fromkeys(name for name in row.values["ranks"] if name in found)
            by_query[query] = {d: by_name for d, by_name in ranks.items() if d in documents}
    problems.raise_if_any()
    if not by_query:
        raise BuildError(f"{source} holds no pools of the queries of this edition.")
    return Ranks(tuple(names), by_query)


def _ranks(row: Row, problems: Problems) -> dict[str, dict[str, int]] | None:
    """Return document -> retriever -> rank for one row."""
    listed, ranks = row.values.get("corpus-ids"), row.values.get("ranks")
    if (
        not isinstance(listed, list)
        or not isinstance(ranks, dict)
        or any(not isinstance(places, list) or len(places) != len(listed) for places in ranks.values())
    ):
        message = "expected 'corpus-ids' and 'ranks', a list of the same length for each retriever"
        problems.add(row.place, "ranks", message)
        return None
    by_document: dict[str, dict[str, int]] = {}
    for place, entry in enumerate(listed):
        by_name = {name: places[place] for name, places in ranks.items() if places[place] is not None}
        document = as_id(entry)
        if document is None or any(type(rank) is not int or rank < 1 for rank in by_name.values()):
            problems.add(row.place, "ranks", "ranks are whole numbers from 1, documents have ids")
            return None
        if document in by_document:
            problems.add(row.place, "duplicate", f"document {document!r} is listed twice")
        by_document[document] = by_name
    return by_document
