"""Rows of files and of data sets of the Hub, with their places for messages."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.data.records import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


def locate(name: str) -> Path:
    """Path of a data source; `package:medteb_mteb/FOLDER` means data packaged with an installed package.

    Raises:
        DataError: Nothing is there, or it is on the Hub.
    """
    if name.startswith("hub:"):
        raise DataError(f"{name} is a data set of the Hub; a file or a folder is needed here.")
    if not name.startswith("package:"):
        path = Path(name).expanduser()
        if not path.exists():
            raise DataError(
                f"No training data at {path}. Give a JSONL or Parquet file, or a folder with triples.jsonl "
                "or Parquet files."
            )
        return path
    package, _, inner = name.removeprefix("package:").partition("/")
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise DataError(f"The data {name} belongs to the package {package}, which is not installed.")
    root = Path(spec.origin).parent
    # In a wheel the data lie inside the package, in a checkout at the top of the repository.
    for candidate in (root / "_tasks" / inner, root.parent.parent / "tasks" / inner):
        if candidate.exists():
            return candidate
    raise DataError(f"The installed {package} has no data {inner}; reinstall it.")


def parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a Parquet file with their places.

    Raises:
        DataError: It is no Parquet file.
    """
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        raise DataError(f"{path} is no Parquet file ({error}).") from error
    number = 0
    for batch in file.iter_batches():
        for row in batch.to_pylist():
            number += 1
            yield f"{path}, row {number}", row


def hub_rows(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of `hub:ORG/NAME[@REVISION][:CONFIG][:SPLIT]`; the split is `train` unless it is named."""
    from datasets import load_dataset

    path, *rest = name.removeprefix("hub:").split(":")
    path, _, revision = path.partition("@")
    config, split = (rest[0], rest[1]) if len(rest) > 1 else (None, rest[0] if rest else "train")
    try:
        data = load_dataset(path, config, split=split, revision=revision or None)
    except Exception as error:  # datasets raises many kinds
        raise DataError(
            f"{name} could not be loaded ({type(error).__name__}: {str(error)[:200]}). Check the name and "
            "the network, or download it and give the file."
        ) from error
    # Numbers of NLI's classes differ between data sets; their names do not.
    named = {
        column: feature
        for column, feature in data.features.items()
        if "entailment" in (getattr(feature, "names", None) or ())
    }
    for number, row in enumerate(data, 1):
        classes = {c: f.int2str(row[c]) for c, f in named.items() if isinstance(row[c], int) and row[c] >= 0}
        yield f"{name}, row {number}", {**row, **classes}


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a JSONL file, maybe gzipped, with their line numbers.

    Raises:
        DataError: It is missing, or a line is no JSON object.
    """
    if not path.is_file():
        raise DataError(
            f"{path} is missing; training data need corpus.jsonl, queries.jsonl and triples.jsonl."
        )
    with _open(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"{path}:{number}: not a JSON object ({error}).") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}:{number}: expected a JSON object, got {type(row).__name__}.")
            yield number, row
