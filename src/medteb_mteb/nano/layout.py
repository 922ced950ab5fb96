"""Reads and checks a Nano set: a folder of the published layout, or the same data set of the Hub.

The *configuration* names the table and the *split* names the task: `corpus` and `queries` (`_id`, `text`),
`qrels` (`query-id`, `corpus-id`; positives only) and the candidate lists (`query-id`, `corpus-ids`, best
first), each as Parquet in `CONFIGURATION/SPLIT.parquet` or where the card's header says.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.text.values import as_id, as_number, as_text
from medteb_mteb.editions import sha256_of
from medteb_mteb.folders.layout import config_files, config_names, config_splits
from medteb_mteb.folders.problems import FolderError, Problems, short_repr
from medteb_mteb.folders.rows import read_rows
from medteb_mteb.nano.table import BM25, HYBRID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "HYBRID_SIZE",
    "NANO_TABLES",
    "NanoData",
    "check_split",
    "holds_split",
    "is_nano",
    "list_names",
    "load_hub",
    "read_split",
    "revision_of",
    "splits_of",
    "without_safeguard",
]

NANO_TABLES = ("corpus", "queries", "qrels")
#: Number of candidates of a hybrid list before its safeguard.
HYBRID_SIZE = 100
#: Maximum number of problems shown.
_MAX_SHOWN_PROBLEMS = 20


@dataclass(frozen=True)
class NanoData:
    """One split.

    Attributes:
        split: Name of the split.
        corpus: Texts of the documents by id, in file order.
        queries: Texts of the queries by id, in file order.
        qrels: Positive documents by query, in file order.
        lists: Candidate lists by name: documents by query, best first.
    """

    split: str
    corpus: Mapping[str, str]
    queries: Mapping[str, str]
    qrels: Mapping[str, Sequence[str]]
    lists: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)


def is_nano(folder: Path) -> bool:
    """Return whether a folder holds a Nano set: the tables as configurations, and a published candidate list.

    Raises:
        FolderError: The header of its card is malformed.
    """
    return (
        folder.is_dir() and bool({BM25, HYBRID}.intersection(list_names(folder))) and bool(splits_of(folder))
    )


def splits_of(folder: Path) -> list[str]:
    """Return the names of the splits that have all three tables, in the card's order.

    Raises:
        FolderError: The header of the card is malformed.
    """
    table_splits = [config_splits(folder, table) for table in NANO_TABLES]
    return [split for split in table_splits[0] if all(split in others for others in table_splits[1:])]


def holds_split(folder: Path, split: str) -> bool:
    """Return True if a folder has a file of a split, or cannot be read; False for a copy of other splits."""
    try:
        return any(_files(folder, name, split, needed=False) for name in NANO_TABLES)
    except (FolderError, OSError):
        return True  # reading it reports the problem


def list_names(folder: Path) -> list[str]:
    """Return the names of the candidate lists.

    Raises:
        FolderError: The header of the card is malformed.
    """
    return [name for name in config_names(folder) if name not in NANO_TABLES]


def revision_of(folder: Path, split: str) -> str:
    """Return the sha256 (hex) of a split's tables and lists; other splits of the folder do not change it.

    Raises:
        FolderError: A table is missing.
    """
    digests = {
        name: [_digest(file) for file in _files(folder, name, split, needed=name in NANO_TABLES)]
        for name in (*NANO_TABLES, *sorted(list_names(folder)))
    }
    canonical = json.dumps({"split": split, "files": digests}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


_digests: dict[tuple[str, int, int], str] = {}


def _digest(file: Path) -> str:
    # Five tasks use one split, and mteb constructs every task to list them.
    state = file.stat()
    key = (str(file), state.st_mtime_ns, state.st_size)
    if key not in _digests:
        _digests[key] = sha256_of(file)
    return _digests[key]


def _files(folder: Path, name: str, split: str, *, needed: bool = True) -> list[Path]:
    files = config_files(folder, name, split)
    if needed and not files:
        there = ", ".join(splits_of(folder)) or "none"
        raise FolderError(
            folder,
            [
                f"no {name} for split {split!r}; expected {name}/{split}.parquet, or a card that says where. "
                f"Splits that are there: {there}"
            ],
        )
    return files


def read_split(folder: Path | str, split: str, lists: Iterable[str] | None = None) -> NanoData:
    """Read one split of a folder and check it.

    Args:
        folder: The folder.
        split: The split.
        lists: Candidate lists to read; default all that the split has.

    Raises:
        FolderError: A table is missing, a row is unusable, or the split violates the rules of `check_split`.
    """
    folder = Path(folder).expanduser().absolute()
    if not folder.is_dir():
        raise FolderError(folder, ["no such folder"])
    names = [name for name in list_names(folder) if config_files(folder, name, split)]
    wanted = names if lists is None else list(lists)
    problems = Problems(folder)
    tables = {
        name: [row.values for row in read_rows(_files(folder, name, split), problems)]
        for name in (*NANO_TABLES, *wanted)
    }
    problems.raise_if_any()
    data = _from_tables(folder, split, tables)
    check_split(data, folder)
    return data


def load_hub(hub: str, split: str, revision: str, lists: Iterable[str] = ()) -> NanoData:
    """Load one split from the Hub through `datasets`, and check it.

    Args:
        hub: Hub name, such as `hakari-bench/NanoCMTEB`.
        split: The split.
        revision: Revision of the data set.
        lists: Candidate lists to load.

    Raises:
        FolderError: A row is unusable, or the split violates the rules of `check_split`.
    """
    from datasets import load_dataset  # lazy: datasets

    tables = {
        name: list(load_dataset(hub, name, split=split, revision=revision)) for name in (*NANO_TABLES, *lists)
    }
    data = _from_tables(Path(hub), split, tables)
    check_split(data, Path(hub))
    return data


def _from_tables(folder: Path, split: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> NanoData:
    wrong: list[str] = []

    def texts(name: str) -> dict[str, str]:
        by_id: dict[str, str] = {}
        for number, row in enumerate(tables[name], start=1):
            key, text = as_id(row.get("_id")), as_text(row.get("text"))
            if key is None or text is None:
                wrong.append(f"{name}, row {number}: expected _id and text, got {_row_repr(row)}")
            elif key in by_id:
                wrong.append(f"{name}, row {number}: a second text of the id {key!r}")
            else:
                by_id[key] = text
        return by_id

    corpus, queries = texts("corpus"), texts("queries")
    qrels: dict[str, list[str]] = {}
    for number, row in enumerate(tables["qrels"], start=1):
        query, document = as_id(row.get("query-id")), as_id(row.get("corpus-id"))
        if query is None or document is None:
            wrong.append(f"qrels, row {number}: expected query-id and corpus-id, got {_row_repr(row)}")
        elif (as_number(row.get("score", 1)) or 0) > 0:
            qrels.setdefault(query, []).append(document)
    lists: dict[str, dict[str, list[str]]] = {}
    for name, rows in tables.items():
        if name in NANO_TABLES:
            continue
        lists[name] = {}
        for number, row in enumerate(rows, start=1):
            query, given = as_id(row.get("query-id")), row.get("corpus-ids")
            candidates = [as_id(document) for document in given] if isinstance(given, list) else [None]
            if query is None or query in lists[name] or None in candidates:
                wrong.append(
                    f"{name}, row {number}: expected one row per query with query-id and corpus-ids, "
                    f"got {_row_repr(row)}"
                )
            else:
                lists[name][query] = [document for document in candidates if document is not None]
    _raise(folder, split, wrong)
    return NanoData(split, corpus, queries, qrels, lists)


def check_split(data: NanoData, folder: Path) -> None:
    """Check that a split is sound.

    Every query has a positive, every id is known, no pair and no candidate is repeated, and every list has a
    row for every query. A hybrid list has 100 candidates (all documents, if there are fewer); a 101st,
    the safeguard, is there if and only if the 100 hold no positive, and is then a positive itself.

    Args:
        data: The split.
        folder: Name of the data in errors.

    Raises:
        FolderError: The split violates a rule; all problems are listed.
    """
    wrong = [f"qrels: query {query!r} has no positive" for query in data.queries if not data.qrels.get(query)]
    for query, documents in data.qrels.items():
        if query not in data.queries:
            wrong.append(f"qrels: query {query!r} is not in the queries")
        wrong += [
            f"qrels: {d!r} of query {query!r} is not in the corpus" for d in documents if d not in data.corpus
        ]
        if len(set(documents)) < len(documents):
            wrong.append(f"qrels: query {query!r} has a positive twice")
    for name, rows in data.lists.items():
        wrong += [f"{name}: query {query!r} has no list" for query in data.queries if query not in rows]
        for query, documents in rows.items():
            wrong += [
                f"{name}, query {query!r}: {problem}"
                for problem in _list_problems(data, name, query, documents)
            ]
    _raise(folder, data.split, wrong)


def _list_problems(data: NanoData, name: str, query: str, documents: Sequence[str]) -> list[str]:
    if query not in data.queries:
        return ["is not in the queries"]
    wrong = [f"candidate {one!r} is not in the corpus" for one in documents if one not in data.corpus]
    if len(set(documents)) < len(documents):
        wrong.append("a candidate is listed twice")
    if name != HYBRID:
        return wrong
    size, positives = min(HYBRID_SIZE, len(data.corpus)), set(data.qrels.get(query, ()))
    if len(documents) not in (size, size + 1):
        return [*wrong, f"{len(documents)} candidates; expected {size}, or {size + 1} with a safeguard"]
    has_positive = bool(positives.intersection(documents[:size]))
    if len(documents) == size and not has_positive:
        wrong.append(f"none of {size} candidates is positive and there is no safeguard")
    if len(documents) > size and has_positive:
        wrong.append(f"a safeguard at rank {size + 1}, though a positive is ranked above it")
    if len(documents) > size and documents[size] not in positives:
        wrong.append(f"the candidate at rank {size + 1} is not a positive")
    return wrong


def without_safeguard(data: NanoData) -> dict[str, list[str]]:
    """Return the hybrid lists without the candidates at rank 101."""
    return {query: list(documents[:HYBRID_SIZE]) for query, documents in data.lists[HYBRID].items()}


def _raise(folder: Path, split: str, wrong: Sequence[str]) -> None:
    if wrong:
        shown = [f"split {split!r}, {problem}" for problem in wrong[:_MAX_SHOWN_PROBLEMS]]
        raise FolderError(folder, shown, len(wrong))


def _row_repr(row: Mapping[str, Any]) -> str:
    return short_repr(dict(row), limit=100)
