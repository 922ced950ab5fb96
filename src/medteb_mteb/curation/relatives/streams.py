"""Reads tables and JSON lines larger than memory row by row; these files are treated as hostile, too."""

from __future__ import annotations

import csv
import gzip
from typing import TYPE_CHECKING, Any

from mar_st.files import one_line
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.raw import (
    ARCHIVE_ERRORS,
    MAX_COMPRESSION_RATIO,
    decode,
    json_of,
    unexpected,
)
from medteb_mteb.folders.rows import MAX_CELL_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["iter_csv", "parse_jsonl"]

#: Maximum bytes of an unpacked table; the notes of MIMIC-IV have about 3.5 GB.
MAX_TABLE_BYTES = 64 << 30
#: Maximum bytes of a line; a cell may span many lines.
MAX_LINE_BYTES = 1 << 24


def iter_csv(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Yield the rows of a table with a header; `.gz` files are unpacked while they are read.

    Args:
        path: The table, in UTF-8.
        columns: Required columns; the rows hold only these.

    Raises:
        BuildError: The table cannot be read or is too large, a column is missing, or a row and the header
            differ in their number of cells. Messages never quote rows.
    """
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as stream:
            reader = csv.reader(_lines(stream, path))
            header = [name.strip() for name in next(reader, [])]
            if missing := [name for name in columns if name not in header]:
                shown = ", ".join(header)[:200]
                raise BuildError(f"{path}: no column {', '.join(missing)}; got {shown}.")
            places = [header.index(name) for name in columns]
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise BuildError(
                        f"{path}:{reader.line_num}: {len(cells)} cells; the header has {len(header)}."
                    )
                yield {name: cells[place] for name, place in zip(columns, places, strict=True)}
    except csv.Error as error:
        raise BuildError(f"{path}:{reader.line_num}: {one_line(error, 150)}.") from None
    except ARCHIVE_ERRORS as error:
        raise BuildError(f"{path} cannot be read ({one_line(error, 150)}).") from error


def parse_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON lines file; `.gz` is unpacked while it is read, empty lines are skipped.

    Raises:
        BuildError: The file cannot be read or is too large, or a line is not a JSON object.
    """
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as stream:
            for number, line in enumerate(_lines(stream, path), start=1):
                if line.strip():
                    row = json_of(line, f"{path}:{number}")
                    if not isinstance(row, dict):
                        unexpected(f"{path}:{number}", "a JSON object", row)
                    yield row
    except ARCHIVE_ERRORS as error:
        raise BuildError(f"{path} cannot be read ({one_line(error, 150)}).") from error


def _lines(stream: Any, path: Path) -> Iterator[str]:
    """Yield lines with their line endings.

    Raises:
        BuildError: A line or the whole file is too large, or a line is not UTF-8.
    """
    max_bytes = MAX_TABLE_BYTES
    if path.suffix == ".gz":
        max_bytes = min(max_bytes, max(path.stat().st_size, 1) * MAX_COMPRESSION_RATIO)
    total = number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        total, number = total + len(line), number + 1
        if len(line) > MAX_LINE_BYTES:
            raise BuildError(f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} bytes; it is refused.")
        if total > max_bytes:
            raise BuildError(f"{path} unpacks to more than {max_bytes:,} bytes; it is refused.")
        yield decode(line, f"{path}:{number}")
