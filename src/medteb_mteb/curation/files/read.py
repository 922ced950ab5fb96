"""Reading raw texts: folders and files of JSONL, CSV, TSV and Parquet, or a data set of the Hub."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import math
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mar_st.files import repeated
from mar_st.model.names import check_dataset
from mar_st.text.values import as_id, as_text, writable
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.editions import sha256_of
from medteb_mteb.folders.problems import Problems
from medteb_mteb.folders.rows import MAX_CELL_CHARACTERS, Row, iter_rows

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Mapping

    from mar_st.data import Triple

__all__ = [
    "FIELD_KEYS",
    "HUB_PREFIX",
    "MANIFEST",
    "STEP_FILE",
    "concealed",
    "file_rows",
    "read_texts",
    "read_triples",
    "source_digest",
    "source_files",
]

logger = logging.getLogger(__name__)

HUB_PREFIX = "hub:"
#: Why an exact copy of a text without an id is dropped.
REPEATED_TEXT = "repeated"
SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")
MANIFEST = "manifest.json"
STEP_FILE = "step.json"

#: Keys of each field of a text, unless `columns` names one.
FIELD_KEYS: dict[str, tuple[str, ...]] = {
    "id": ("_id", "id", "docid", "query-id"),
    "text": ("text", "content", "body", "query", "question"),
    "title": ("title",),
}


def read_texts(
    source: str | Path, columns: Mapping[str, str] | None = None, *, dropped: Counter[str] | None = None
) -> Iterator[Text]:
    """Yield the texts of a source, streamed in the order of the files' names and rows.

    A text without an id gets the digest of its content as id, so an exact copy of an earlier one is dropped;
    columns that are not a field of a text go to its `meta`.

    Args:
        source: A file or folder of JSONL, CSV, TSV or Parquet, a folder that a step wrote, or
            `hub:ORG/NAME` (with `:SPLIT`, default train).
        columns: Columns by field (`id`, `text`, `title`); default: the first column of `FIELD_KEYS` that
            exists.
        dropped: Receives the number of dropped copies as `repeated`; without it a warning is logged.

    Raises:
        BuildError: The source does not exist, or it has no text column.
        FolderError: Rows are unusable; each is listed with file and line.
    """
    unknown = sorted(set(columns or {}) - set(FIELD_KEYS))
    if unknown:
        raise BuildError(f"{unknown[0]!r} is not a field of a text; choose from {', '.join(FIELD_KEYS)}.")
    if str(source).startswith(HUB_PREFIX):
        yield from _checked(_hub_rows(str(source)), Problems(Path(str(source))), columns, dropped)
        return
    files = source_files(source)
    path = Path(source)
    problems = Problems(path)
    rows = (row for file in files for row in file_rows(file, problems))
    # Texts count as anonymised only if a step wrote that, not because of a column of that name.
    yield from _checked(rows, problems, columns, dropped, built=(path / STEP_FILE).is_file())


def read_triples(path: str) -> list[Triple]:
    """Return the triples of a training set, in any form and place that `mar train` reads.

    Raises:
        MarError: The file cannot be read.
    """
    from mar_st.data import read_source  # lazy: transformers
    from mar_st.recipes.schema import Data  # lazy: pydantic

    return list(read_source(Data(name="training", path=path, prompt=""), 0).triples)


def source_files(source: str | Path) -> list[Path]:
    """Return the data files of a source, sorted by name; for a step's folder, its `records-*.jsonl`.

    Raises:
        BuildError: The file is missing or unreadable.
    """
    path = Path(source)
    if path.is_file():
        if path.suffix.lower() not in SUFFIXES:
            raise BuildError(f"{path} is none of {', '.join(SUFFIXES)}.")
        return [path]
    if not path.is_dir():
        raise BuildError(f"There is no {path}. Give a file, a folder, or {HUB_PREFIX}ORG/NAME.")
    if (path / STEP_FILE).is_file():
        if not (path / MANIFEST).is_file():
            raise BuildError(f"{path} holds a step that is not finished; run it to its end first.")
        # A step may have dropped all of a shard.
        return sorted(file for file in path.glob("records-*.jsonl") if file.stat().st_size)
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
    if not files:
        raise BuildError(f"{path} holds no {', '.join(SUFFIXES)} files.")
    return files


def source_digest(source: str | Path, columns: Mapping[str, str] | None = None) -> str:
    """Return the sha256 (64 hex digits) of the input of `read_texts`: names, contents, and `columns`.

    A Hub data set is identified by the fingerprint that `datasets` assigns.
    """
    digest = hashlib.sha256(json.dumps(dict(columns or {}), sort_keys=True).encode())
    if str(source).startswith(HUB_PREFIX):
        digest.update(str(_hub(str(source))._fingerprint).encode())
        return digest.hexdigest()
    for file in source_files(source):
        digest.update(f"{file.name} {sha256_of(file)}\n".encode())
    return digest.hexdigest()


def file_rows(file: Path, problems: Problems) -> Iterator[Row]:
    """Yield the rows of a JSONL, CSV, TSV or Parquet file; unreadable rows are added to `problems`.

    Args:
        file: The file.
        problems: Receives problems with file and line.
    """
    yield from _csv_rows(file, problems) if file.suffix.lower() == ".csv" else iter_rows(file, problems)


def _csv_rows(file: Path, problems: Problems) -> Iterator[Row]:
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            column = repeated(reader.fieldnames or ())
            if column is not None:
                problems.add(file, 1, "cells", f"the column {column!r} occurs twice")
                return
            empty = True
            for values in reader:
                empty = False
                if None in values or None in values.values():
                    expected = len(reader.fieldnames or ())
                    problems.add(file, reader.line_num, "cells", f"expected {expected} cells")
                    continue
                yield Row(file, reader.line_num, dict(values))
            if empty:
                what = "no rows below its header" if reader.fieldnames else "neither a header nor rows"
                problems.add(file, None, "empty", f"the file holds {what}")
    except UnicodeDecodeError as error:
        problems.add(file, None, "utf8", f"not valid UTF-8 ({error.reason} at byte {error.start + 1})")
    except csv.Error as error:
        problems.add(file, None, "csv", f"not readable as CSV: {error}")


def _hub(source: str) -> Any:
    from datasets import load_dataset  # lazy: datasets

    name, _, split = source.removeprefix(HUB_PREFIX).partition(":")
    try:
        check_dataset(name)
        return load_dataset(name, split=split or "train")
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise BuildError(
            f"{source} cannot be loaded from the Hub ({type(error).__name__}: {reason})."
        ) from error


def _hub_rows(source: str) -> Iterator[Row]:
    for number, values in enumerate(_hub(source), start=1):
        yield Row(Path(source), number, dict(values))


def _checked(
    rows: Iterator[Row],
    problems: Problems,
    columns: Mapping[str, str] | None,
    dropped: Counter[str] | None,
    *,
    built: bool = False,
) -> Iterator[Text]:
    """Yield the texts of rows; problems are collected to the end and raised as one error."""
    seen: set[str] = set()
    copies = 0
    for row in rows:
        text = _text(row, problems, columns or {}, built=built)
        if text is None:
            continue
        if text.id in seen:
            if _has_id(row, columns or {}):
                taken = f"the id {text.id!r} is taken by an earlier row"
                problems.add(row.file, row.line, "duplicate", taken)
            else:
                copies += 1
            continue
        seen.add(text.id)
        if not problems.total:
            yield text
    problems.raise_if_any()
    if not seen:
        raise BuildError(f"{problems.folder} holds no rows.")
    if dropped is not None:
        dropped.update({REPEATED_TEXT: copies} if copies else {})
    elif copies:
        logger.warning(
            "%s: %d rows without an id repeat an earlier text and are dropped", problems.folder, copies
        )


def _text(row: Row, problems: Problems, columns: Mapping[str, str], *, built: bool) -> Text | None:
    values = row.values
    named = {
        field: columns.get(field) or next((name for name in known if name in values), None)
        for field, known in FIELD_KEYS.items()
    }
    column = named["text"]
    if column is None or column not in values:
        present = ", ".join(map(str, values))
        wanted = f"column {column!r}" if column else f"a column {' or '.join(FIELD_KEYS['text'])}"
        problems.add(row.file, row.line, "column", f"expected {wanted}; the columns are {present}")
        return None
    text = as_text(values[column])
    if text is None:
        problems.add(row.file, row.line, "text", f"{column!r} is empty or not text")
        return None
    title = (values.get(named["title"]) if named["title"] else "") or ""
    if not isinstance(title, str) or writable(title) != title:
        problems.add(row.file, row.line, "title", f"{named['title']!r} is not text")
        return None
    identity = as_id(values[named["id"]]) if named["id"] in values else None
    if identity is None and named["id"] in values:
        problems.add(row.file, row.line, "id", f"{named['id']!r} is empty or not an id")
        return None
    if not built and identity and {"\t", "\n", "\r"} & set(identity):
        # Labels of an edition are TSV, and would only be written after everything has been judged.
        problems.add(row.file, row.line, "id", f"the id {identity[:60]!r} has a tab or a line break")
        return None
    own = values.get("meta")
    others = {name: v for name, v in values.items() if name not in {*named.values(), "anonymised", "meta"}}
    try:
        meta = _columns(own if isinstance(own, dict) else {})
        meta |= {name: value for name, value in _columns(others).items() if value is not None}
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "a column is nested too deeply"
        problems.add(row.file, row.line, "meta", reason)
        return None
    return Text(
        identity or hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16],
        text,
        title,
        str(values.get("anonymised") or "") if built else "",
        meta,
    )


def _has_id(row: Row, columns: Mapping[str, str]) -> bool:
    """Return True if the id of a row is its own, not the digest of its text."""
    names = (columns["id"],) if "id" in columns else FIELD_KEYS["id"]
    return any(name in row.values for name in names)


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    return {_as_json(name, name): _as_json(name, value) for name, value in values.items()}


def _as_json(name: str, value: Any) -> Any:
    """Return a value of another column as JSON holds it: dates and times in ISO 8601, NaN as a missing value.

    Raises:
        ValueError: JSON, or UTF-8, cannot hold the value.
    """
    if isinstance(value, dict):
        return {str(_as_json(name, key)): _as_json(name, part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(name, part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        raise ValueError(f"{name!r} is {value}, which JSON cannot hold")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta | UUID):
        return str(value)
    if not isinstance(value, str | int | float | None):
        raise ValueError(
            f"{name!r} holds {type(value).__name__}, which JSON cannot hold; leave the column out"
        )
    if isinstance(value, str) and writable(value) != value:
        raise ValueError(f"{name!a} holds half of a surrogate pair, which no file can hold")
    return value


def concealed(digest: str) -> str:
    """Return a digest (64 hex digits) of a digest, which takes a twentieth of a second to compute.

    It is for digests of raw texts. Someone with the anonymised texts knows the raw file except for its
    identifiers, and could try identifiers until the digest matches that of a manifest.
    """
    return hashlib.scrypt(digest.encode(), salt=b"medteb raw texts", n=1 << 14, r=8, p=1, dklen=32).hex()
