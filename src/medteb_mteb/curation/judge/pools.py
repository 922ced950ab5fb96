"""Pools: which documents are judged for which query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.text.values import as_id
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.folders.problems import Problems, short_repr
from medteb_mteb.folders.rows import iter_rows

if TYPE_CHECKING:
    from collections.abc import Container

    from medteb_mteb.folders.rows import Row

__all__ = ["pool_files", "read_pools"]

SUFFIXES = (".jsonl", ".parquet")


def pool_files(source: str | Path) -> list[Path]:
    """Return files of pools: the file, or a folder's `top_ranked*` files, or else all its JSONL and Parquet.

    Raises:
        BuildError: The file is missing or unreadable.
    """
    path = Path(source)
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return [path]
    if not path.is_dir():
        raise BuildError(f"There are no pools at {path}. Give a JSONL file, or a folder of them.")
    inner = path / "top_ranked"
    files = [f for f in (inner if inner.is_dir() else path).iterdir() if f.suffix.lower() in SUFFIXES]
    named = [file for file in files if file.name.startswith("top_ranked")]
    if not files:
        raise BuildError(f"{path} holds no {' or '.join(SUFFIXES)} files with pools.")
    return sorted(named or files)


def read_pools(
    source: str | Path, queries: Container[str], documents: Container[str]
) -> dict[str, tuple[str, ...]]:
    """Return the ids of the documents of each query, by query id in the order of the files.

    Rows are `{"query-id": ..., "corpus-ids": [...]}`, the form of mteb's `top_ranked`; other columns are
    ignored.

    Args:
        source: See `pool_files`.
        queries: Allowed ids of queries.
        documents: Allowed ids of documents.

    Raises:
        BuildError: The file is missing or unreadable, or the pools have no pairs.
        FolderError: Rows are unusable; each is listed with file and line.
    """
    files = pool_files(source)
    problems = Problems(Path(source))
    pools: dict[str, tuple[str, ...]] = {}
    for file in files:
        for row in iter_rows(file, problems):
            _add(row, pools, queries, documents, problems)
    problems.raise_if_any()
    if not any(pools.values()):
        raise BuildError(f"{source} holds no pairs to judge.")
    return pools


def _add(
    row: Row,
    pools: dict[str, tuple[str, ...]],
    queries: Container[str],
    documents: Container[str],
    problems: Problems,
) -> None:
    query, listed = as_id(row.values.get("query-id")), row.values.get("corpus-ids")
    if query is None or not isinstance(listed, list):
        columns = ", ".join(map(str, row.values))
        message = f"expected 'query-id' and a list 'corpus-ids'; the columns are {columns}"
        problems.add(row.file, row.line, "column", message)
        return
    ids = [as_id(entry) for entry in listed]
    if query not in queries:
        problems.add(row.file, row.line, "query", f"there is no query {query!r}")
    if query in pools:
        problems.add(row.file, row.line, "duplicate", f"query {query!r} has an earlier row")
    for entry, name in zip(listed, ids, strict=True):
        if name is None or name not in documents:
            problems.add(row.file, row.line, "document", f"there is no document {short_repr(entry)}")
    # A list may name a document twice; it is one pair.
    pools[query] = tuple(dict.fromkeys(name for name in ids if name is not None))
