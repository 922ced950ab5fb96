"""Rows of files and of data sets of the Hub, with their places for messages."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pyarrow import ArrowException
from pyarrow.parquet import ParquetFile

from mar_st.data.records import DataError
from mar_st.files import one_line, repeated
from mar_st.model.names import check_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Separator of the columns, by the suffix of a file.
SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass
class Position:
    """Progress of reading a file, in bytes."""

    done: float = 0.0


def locate(name: str) -> Path:
    """Path of a data source; `package:medteb_mteb/FOLDER` means data packaged with an installed package.

    Raises:
        DataError: The source does not exist, cannot be a path, or is on the Hub.
    """
    if name.startswith("hub:"):
        raise DataError(f"{name} is a data set of the Hub; a file or a folder is needed here.")
    if not name.startswith("package:"):
        try:
            path = Path(name).expanduser()
            exists = path.exists()
        except (OSError, RuntimeError) as error:  # the name is too long, or names the home of an unknown user
            raise DataError(
                f"{name[:200]!r} is not a path that can be read ({one_line(error, 100)}). Give another one."
            ) from error
        if not exists:
            raise DataError(
                f"No training data at {path}. Give a JSONL, CSV, TSV or Parquet file, or a folder with "
                "triples.jsonl or Parquet files."
            )
        return path
    package, _, inner = name.removeprefix("package:").partition("/")
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):  # a parent package is missing, or the name is not one of a package
        spec = None
    if spec is None or spec.origin is None:
        raise DataError(f"The data {name} belongs to the package {package}, which is not installed.")
    root = Path(spec.origin).parent
    # In a wheel the data are inside the package, in a checkout at the top of the repository.
    for candidate in (root / "_tasks" / inner, root.parent.parent / "tasks" / inner):
        if candidate.exists():
            return candidate
    raise DataError(f"The installed {package} has no data {inner}; reinstall it.")


def file_rows(path: Path, position: Position) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield rows of a file with their places; its suffix gives the format, by default JSONL.

    Raises:
        DataError: The file is missing, damaged, or not of the format that its suffix names.
    """
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind == ".parquet":
        yield from parquet_rows(path, position)
    elif kind in SEPARATORS:
        yield from separated_rows(path, SEPARATORS[kind], position)
    else:
        for number, row in json_rows(path, position):
            yield f"{path}:{number}", row


def parquet_rows(path: Path, position: Position | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a Parquet file with their places.

    Raises:
        DataError: The file is missing, damaged or not a Parquet file.
    """
    number = 0
    with _readable(path, "a Parquet file"), ParquetFile(path) as file:
        column = repeated(file.schema_arrow.names)
        if column is not None:
            raise DataError(f"{path}: the column {column!r} occurs twice. Rename one, or leave it out.")
        bytes_per_row = path.stat().st_size / max(file.metadata.num_rows, 1)
        for batch in file.iter_batches(batch_size=2**13):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row
            if position is not None:
                position.done += batch.num_rows * bytes_per_row


def hub_data(name: str) -> Any:
    """Return data set `hub:ORG/NAME[@REVISION][:CONFIG][:SPLIT]`; the split is `train` unless it is named.

    Raises:
        DataError: The data set could not be loaded.
    """
    from datasets import load_dataset  # lazy: datasets

    path, *rest = name.removeprefix("hub:").split(":")
    path, _, revision = path.partition("@")
    config, split = (rest[0], rest[1]) if len(rest) > 1 else (None, rest[0] if rest else "train")
    try:
        check_dataset(path)
        return load_dataset(path, config, split=split, revision=revision or None)
    except Exception as error:  # datasets raises many kinds
        raise DataError(
            f"{name} could not be loaded ({type(error).__name__}: {str(error)[:200]}). Check the name and "
            "the network, or download it and give the file."
        ) from error


def hub_rows(name: str, data: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a data set of the Hub with their places."""
    # Numbers of NLI's classes differ between data sets; their names do not.
    named = {
        column: feature
        for column, feature in data.features.items()
        if "entailment" in (getattr(feature, "names", None) or ())
    }
    for number, row in enumerate(data, 1):
        classes = {c: f.int2str(row[c]) for c, f in named.items() if isinstance(row[c], int) and row[c] >= 0}
        yield f"{name}, row {number}", {**row, **classes}


def json_rows(path: Path, position: Position | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a JSONL file, maybe gzipped, with their line numbers.

    Raises:
        DataError: The file is missing or damaged, or a line is not a JSON object.
    """
    if not path.is_file():
        raise DataError(
            f"{path} is missing; training data need corpus.jsonl, queries.jsonl and triples.jsonl."
        )
    with _readable(path), path.open("rb") as raw:
        tell = _position_counter(raw, position)
        for number, line in enumerate(_content(path, raw), 1):
            if number % 4096 == 0:
                tell()
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode())
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}:{number}: not a JSON object ({error}).") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}:{number}: expected a JSON object, got {type(row).__name__}.")
            yield number, row
        tell()


def separated_rows(
    path: Path, separator: str, position: Position | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a CSV or TSV file with a header, maybe gzipped; empty fields are left out.

    Raises:
        DataError: The file is missing, damaged or not UTF-8, it has no header, or a row has another number of
            fields.
    """
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # texts of more than 128 kB are not a mistake here
    with _readable(path), path.open("rb") as raw:
        tell = _position_counter(raw, position)
        text = io.TextIOWrapper(_content(path, raw), encoding="utf-8-sig", newline="")
        lines = csv.reader(text, delimiter=separator, strict=True)
        try:
            header = [name.strip() for name in next(lines, [])]
            if not all(header) or len(set(header)) < max(len(header), 1):
                raise DataError(
                    f"{path}:1: the first line of a CSV or TSV file names its columns, each once; it is "
                    f"{header}."
                )
            for fields in lines:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise DataError(
                        f"{path}:{lines.line_num}: has {len(fields)} fields, and the header names "
                        f"{len(header)} columns. Quote fields that hold the separator or a line break."
                    )
                row = {name: field for name, field in zip(header, fields, strict=True) if field}
                yield f"{path}:{lines.line_num}", row
                tell()
        except UnicodeDecodeError as error:  # text is decoded block by block, so the line is not known
            raise DataError(
                f"{path}: is not UTF-8 after line {lines.line_num} ({error}). Save it as UTF-8."
            ) from error
        except csv.Error as error:
            raise DataError(
                f"{path}:{lines.line_num}: this line is not valid CSV or TSV ({error})."
            ) from error


@contextmanager
def _readable(path: Path, form: str = "") -> Iterator[None]:
    """Turn errors for a file that is missing or damaged into one that names it."""
    form = form or ("a gzip file" if path.suffix == ".gz" else "a file")
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing. Give a file that exists.") from error
    except (OSError, EOFError, zlib.error, ArrowException, UnicodeDecodeError) as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise DataError(f"{path} cannot be read as {form} ({reason}). Copy or write it again.") from error


def _content(path: Path, raw: BinaryIO) -> Any:
    return gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw


def _position_counter(raw: BinaryIO, position: Position | None) -> Callable[[], None]:
    """Add the bytes read since the last call to a position."""
    last = 0

    def tell() -> None:
        nonlocal last
        if position is not None:
            now = raw.tell()
            position.done += now - last
            last = now

    return tell
