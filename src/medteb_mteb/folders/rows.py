"""Reads rows of JSONL, TSV, Parquet and TREC's qrels straight from files.

Not through ``datasets``: its cache finds a local folder that has a README header by the folder's base
name, so a folder rebuilt in place, or another folder of the same name, would give back stale rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from mar_st.files import repeated
from mar_st.text.values import TsvCell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from medteb_mteb.folders.problems import Problems

__all__ = [
    "MAX_CELL_CHARACTERS",
    "SUFFIXES",
    "TREC_SUFFIXES",
    "Row",
    "iter_rows",
    "read_rows",
]

SUFFIXES = (".jsonl", ".tsv", ".parquet")
#: Maximum characters of a cell of CSV; the default of the csv module, 131,072, is less than some documents.
MAX_CELL_CHARACTERS = 1 << 24
#: Qrels in TREC's format: query, iteration, document, grade, apart by blanks.
TREC_SUFFIXES = (".trec", ".qrels")


_QRELS = ("query-id", "corpus-id", "score")


@dataclass(frozen=True, slots=True)
class Row:
    """One record with its place: the file, and the 1-based line (row for Parquet)."""

    file: Path
    line: int
    values: dict[str, Any]


def read_rows(files: Iterable[Path], problems: Problems) -> list[Row]:
    """Return all rows of one table, which may be cut into several files.

    Unreadable lines are recorded in ``problems`` and left out; the caller raises.
    """
    return [row for file in files for row in iter_rows(file, problems)]


def iter_rows(file: Path, problems: Problems, *, may_be_empty: bool = False) -> Iterator[Row]:
    """Yield the rows of one file, one at a time; see `read_rows`.

    Args:
        file: The file.
        problems: Receives unreadable lines, and a file without rows unless it `may_be_empty`.
        may_be_empty: Whether a file may have no rows.
    """
    readers = {".jsonl": _read_jsonl, ".tsv": _read_tsv, ".parquet": _read_parquet}
    readers |= dict.fromkeys(TREC_SUFFIXES, _read_qrels)
    reader = readers.get(file.suffix.lower())
    if reader is None:
        problems.add(file, None, "format", f"expected one of {', '.join(SUFFIXES)}")
        return
    empty = not may_be_empty
    for row in reader(file, problems):
        empty = False
        yield row
    if empty and not any(name == problems.name(file) for name, _ in problems.counts):
        problems.add(file, None, "empty", "the file holds no rows")


def _lines(file: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    try:
        with file.open("rb") as stream:
            yield from _decoded(file, stream, problems)
    except OSError as error:
        problems.add(file, None, "file", f"cannot be read ({error.strerror})")


def _decoded(file: Path, stream: BinaryIO, problems: Problems) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(stream, start=1):
        # Some editors put a byte order mark at the start of the file.
        data = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            problems.add(file, number, "utf8", f"not valid UTF-8 at byte {error.start + 1} of the line")
            continue
        text = text.rstrip("\r\n")
        if text.strip():
            yield number, text


def _read_jsonl(file: Path, problems: Problems) -> Iterator[Row]:
    for number, text in _lines(file, problems):
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            problems.add(file, number, "json", f"malformed JSON at column {error.colno}: {error.msg}")
            continue
        except ValueError:
            problems.add(file, number, "json", "a number of more digits than can be read")
            continue
        except RecursionError:
            problems.add(file, number, "json", "JSON nested too deeply")
            continue
        if not isinstance(values, dict):
            problems.add(file, number, "json", f"expected a JSON object, got {type(values).__name__}")
            continue
        yield Row(file, number, values)


def _read_tsv(file: Path, problems: Problems) -> Iterator[Row]:
    header: list[str] | None = None
    for number, text in _lines(file, problems):
        cells = text.split("\t")
        if header is None:
            header = cells
            column = repeated(header)
            if column is not None:
                problems.add(file, number, "cells", f"the column {column!r} occurs twice")
                return
        elif len(cells) != len(header):
            problems.add(
                file, number, "cells", f"{len(cells)} tab-separated cells, the header has {len(header)}"
            )
        else:
            yield Row(file, number, dict(zip(header, map(TsvCell, cells), strict=True)))


def _read_qrels(file: Path, problems: Problems) -> Iterator[Row]:
    for number, text in _lines(file, problems):
        words = text.split()
        if len(words) == 4:
            yield Row(file, number, dict(zip(_QRELS, map(TsvCell, (words[0], *words[2:])), strict=True)))
        else:
            message = f"{len(words)} columns, TREC qrels have 4: query, iteration, document, grade"
            problems.add(file, number, "cells", message)


def _read_parquet(file: Path, problems: Problems) -> Iterator[Row]:
    import pyarrow as pa  # lazy: pyarrow
    import pyarrow.parquet as pq  # lazy: pyarrow

    number = 0
    try:
        with pq.ParquetFile(file) as parquet:
            column = repeated(parquet.schema_arrow.names)
            if column is not None:
                problems.add(file, None, "cells", f"the column {column!r} occurs twice")
                return
            for batch in parquet.iter_batches():
                for values in batch.to_pylist():
                    number += 1
                    yield Row(file, number, values)
    # A date or a duration may be longer than Python's.
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        problems.add(file, None, "parquet", f"not readable as Parquet: {reason}")
