"""The reader of rows: JSONL, JSON arrays, CSV, TSV, Parquet, saved `datasets`, the Hub, lines of text.

Only the current row is in memory (a JSON array is read as a whole). CSV and TSV have the quoting rules of
CSV; a cell whose quotes do not follow them is taken as it is. Commas or tabs, whichever the header has,
separate the cells. `mar_st.data.lines` reads the text.
"""

from __future__ import annotations

import csv
import zlib
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from mar_st.data.lines import parsed_json, start_of, text_lines
from mar_st.errors import MarError
from mar_st.files import one_line, regular
from mar_st.text.values import TsvCell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["HUB", "PACKAGE", "ROW_SUFFIXES", "Row", "hub_dataset", "locate", "read_rows", "row_files"]

HUB, PACKAGE = "hub:", "package:"
SEPARATORS = {".csv": ",", ".tsv": "\t"}
ROW_SUFFIXES = (".jsonl", ".ndjson", ".json", *SEPARATORS, ".parquet")
#: A file of texts, one per line; in a folder, such a file is more likely a note.
TEXT_SUFFIX = ".txt"
#: Maximum characters of a cell; the default of the csv module, 131,072, is less than some documents.
MAX_CELL_CHARACTERS = 2**31 - 1
#: Maximum number of lines in a quoted cell, after its first.
MAX_CELL_LINES = 1000
#: Splits of saved data sets and of the Hub, in order of preference.
SPLITS = ("train", "corpus", "test")

T = TypeVar("T")


class Row(NamedTuple):
    """A row and its place for messages: `FILE:LINE`, or `FILE, row N` where a file has no lines."""

    place: str
    values: dict[str, Any]


@overload
def read_rows(source: str | Path, *, table: str = "") -> Iterator[Row]: ...
@overload
def read_rows(source: str | Path, make: Callable[[Row], T], *, table: str = "") -> Iterator[T]: ...
def read_rows(source: str | Path, make: Callable[[Row], Any] | None = None, *, table: str = "") -> Any:
    """Yield the rows of a source in their order, or what a function makes of them.

    After the first unusable row nothing more is yielded: the other rows are only checked, so that one error
    counts all problems.

    Args:
        source: A file, a folder, a folder that `datasets` saved, `package:PACKAGE/PATH` (data packaged with
            an installed package), or `hub:ORG/NAME[@REVISION][:CONFIG][:SPLIT]`.
        make: Converts a row; it raises `MarError` for an unusable one, without the place, which is added.
        table: Name of the files to read in a folder, such as `corpus`, see `row_files`.

    Raises:
        MarError: The source does not exist, or rows are unusable: not JSON or CSV, not text in UTF-8 or
            GB18030, repeated keys or columns, numbers that are not finite, or refused by `make`. The message
            shows the first problem with its place, and the number of all.
    """
    first, count = "", 0
    for row in _rows(source, table):
        problem, made = str(row), None
        if isinstance(row, Row):
            try:
                problem, made = "", row if make is None else make(row)
            except MarError as error:
                problem = f"{row.place}: {error}"
        count += bool(problem)
        first = first or problem
        if not count:
            yield made
    if count:
        raise MarError(first if count == 1 else f"{first} ({count:,} rows of {source} are unusable.)")


def row_files(source: str | Path, table: str = "") -> list[Path]:
    """Return the files of rows of a source, sorted; empty for data of the Hub and saved data sets.

    Args:
        source: See `read_rows`.
        table: Name of the files in a folder: `TABLE.jsonl` (or another suffix, also with `.gz`),
            `TABLE*.parquet`, `TABLE/*.parquet` or else any `*.parquet`; it may hold `*`. Default: all files
            of rows.

    Raises:
        MarError: The source does not exist, or is or holds no file of rows.
    """
    if str(source).startswith(HUB):
        return []
    path = regular(locate(source))
    if path.is_file():
        if _suffix(path) not in (*ROW_SUFFIXES, TEXT_SUFFIX):
            raise MarError(f"{path} is none of {', '.join(ROW_SUFFIXES)} (also .gz).")
        return [path]
    if any((path / name).is_file() for name in ("dataset_dict.json", "dataset_info.json")):
        return []
    files = _files_of(path, table)
    if files:
        return files
    wanted = f"{table}.jsonl, .csv, .tsv or {table}*.parquet" if table else ", ".join(ROW_SUFFIXES)
    inner = [folder.name for folder in sorted(path.iterdir()) if folder.is_dir() and _files_of(folder, table)]
    hint = f" The folders {', '.join(inner[:9])} in it do: give one of them." if inner else ""
    raise MarError(f"{path} holds no {wanted}, and no data set that datasets' save_to_disk wrote.{hint}")


def _files_of(folder: Path, table: str) -> list[Path]:
    patterns = [f"{table}{suffix}{packed}" for suffix in ROW_SUFFIXES[:-1] for packed in ("", ".gz")]
    patterns += [f"{table}*.parquet", f"{table}/*.parquet", "*.parquet"]
    found = (
        sorted(file for file in folder.glob(pattern) if file.is_file() and _suffix(file) in ROW_SUFFIXES)
        for pattern in (patterns if table else ["*"])
    )
    return next(filter(None, found), [])


def locate(name: str | Path) -> Path:
    """Return the path of a local source; `package:PACKAGE/PATH` is data packaged with an installed package.

    Raises:
        MarError: The source does not exist, cannot be a path, or is on the Hub.
    """
    text = str(name)
    if text.startswith(HUB):
        raise MarError(f"{text} is a data set of the Hub; a file or a folder is needed here.")
    if text.startswith(PACKAGE):
        return _packaged(text)
    try:
        path = Path(name).expanduser()
        exists = path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a NUL, or the home of an unknown user
        raise MarError(f"{text[:200]!r} is not a path that can be read ({one_line(error, 100)}).") from error
    if not exists:
        raise MarError(
            f"There is no file or folder {path}. Give JSONL, CSV, TSV or Parquet, a folder of them, or "
            "hub:ORG/NAME for a data set of the Hub."
        )
    return path


def hub_dataset(name: str, table: str = "") -> Any:
    """Return the data set `hub:ORG/NAME[@REVISION][:CONFIG][:SPLIT]`, in the cache of `datasets`.

    Args:
        name: The name. Without a split, that of the name `table`, or else `train`, `corpus` or `test`, is
            taken.
        table: Preferred split.

    Raises:
        MarError: The data set could not be loaded.
    """
    from datasets import get_dataset_split_names, load_dataset  # lazy: datasets

    from mar_st.model.names import check_dataset  # lazy: a room above

    path, *rest = name.removeprefix(HUB).split(":")
    path, _, revision = path.partition("@")
    config = rest[0] if len(rest) > 1 else None
    try:
        check_dataset(path)
        if rest:
            split = rest[-1]
        else:
            split = _split(name, get_dataset_split_names(path, config, revision=revision or None), table)
        return load_dataset(path, config, split=split, revision=revision or None)
    except Exception as error:  # datasets raises many kinds
        raise MarError(
            f"{name} could not be loaded ({type(error).__name__}: {one_line(error, 200)}). Check the name, "
            "its configuration (hub:ORG/NAME:CONFIG:SPLIT) and the network, or download it and give the file."
        ) from error


def _rows(source: str | Path, table: str) -> Iterator[Row | MarError]:
    files = row_files(source, table)
    for file in files:
        yield from _file_rows(file)
    if not files:
        on_hub = str(source).startswith(HUB)
        data = hub_dataset(str(source), table) if on_hub else _saved(locate(source), table)
        yield from _dataset_rows(str(source), data)


def _file_rows(path: Path) -> Iterator[Row | MarError]:
    suffix = _suffix(path)
    try:
        if suffix == ".parquet":
            yield from _parquet_rows(path)
        elif suffix in SEPARATORS:
            yield from _separated_rows(path, SEPARATORS[suffix])
        elif suffix == TEXT_SUFFIX:
            yield from _line_rows(path, lambda place, line: Row(place, {"text": line.strip()}))
        elif start_of(path).lstrip().startswith("["):
            yield from _array_rows(path)
        else:
            yield from _line_rows(path, _checked)
    except (OSError, EOFError, zlib.error) as error:
        yield MarError(f"{path} cannot be read ({type(error).__name__}: {one_line(error)}). Copy it again.")


def _line_rows(path: Path, make: Callable[[str, str], Row | MarError]) -> Iterator[Row | MarError]:
    for number, line in text_lines(path):
        if isinstance(line, MarError):
            yield line
        elif line.strip():
            yield make(f"{path}:{number}", line)


def _array_rows(path: Path) -> Iterator[Row | MarError]:
    lines = [line for _, line in text_lines(path)]
    errors = [line for line in lines if isinstance(line, MarError)]
    content = errors[0] if errors else parsed_json(str(path), "".join(map(str, lines)))
    if isinstance(content, MarError):
        yield content
        return
    for number, row in enumerate(content, 1):
        place = f"{path}, row {number}"
        yield Row(place, row) if isinstance(row, dict) else _no_object(place, row)


def _separated_rows(path: Path, separator: str) -> Iterator[Row | MarError]:
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    header: list[str] = []
    lines = _Lines(text_lines(path))
    for number, line in lines:
        if isinstance(line, MarError):
            yield line
            continue
        if not line.strip():
            continue
        if not header and separator not in line:
            separator = next((other for other in SEPARATORS.values() if other in line), separator)
        cells = _cells(line, separator, lines, len(header))
        if not header:
            header = [name.strip() for name in cells]
            if not all(header) or len(set(header)) < len(header):
                yield MarError(
                    f"{path}:{number}: the header must name every column, each once; it is {header}."
                )
                break
        elif len(cells) == len(header):
            yield Row(f"{path}:{number}", dict(zip(header, map(TsvCell, cells), strict=True)))
        else:
            yield MarError(
                f"{path}:{number}: has {len(cells)} cells, and the header names {len(header)} columns. Quote "
                "cells that hold the separator or a line break."
            )


class _Lines:
    """An iterator of numbered lines that takes lines back."""

    def __init__(self, lines: Iterator[tuple[int, str | MarError]]) -> None:
        self._lines, self._back = lines, deque[tuple[int, str | MarError]]()

    def __iter__(self) -> Iterator[tuple[int, str | MarError]]:
        return self

    def __next__(self) -> tuple[int, str | MarError]:
        return self._back.popleft() if self._back else next(self._lines)

    def take_back(self, lines: list[tuple[int, str | MarError]]) -> None:
        self._back.extendleft(reversed(lines))


def _cells(line: str, separator: str, following: _Lines, count: int) -> list[str]:
    """Return the cells of the row that starts with a line; a quoted cell may go on in the following lines.

    Args:
        line: The line.
        separator: Comma or tab.
        following: The lines after it, which are taken if they belong to the row.
        count: Number of columns; 0 for the header.
    """
    plain = line.rstrip("\r\n").split(separator)
    if '"' not in line:
        return plain
    taken: list[tuple[int, str | MarError]] = []
    while True:
        text = "".join([line, *(str(further) for _, further in taken)])
        try:
            cells = next(csv.reader([text], delimiter=separator, strict=True))
            if len(cells) == count or not count or not taken:
                return cells
            break
        except csv.Error as error:
            if "end of data" not in str(error) or not _take_to_quote(following, taken):
                break
    following.take_back(taken)
    return plain


def _take_to_quote(following: _Lines, taken: list[tuple[int, str | MarError]]) -> bool:
    """Take lines up to the next with a quote, which may close a cell; return False if there is none near."""
    for number, line in following:
        taken.append((number, line))
        if isinstance(line, MarError) or len(taken) > MAX_CELL_LINES:
            return False
        if '"' in line:
            return True
    return False


def _parquet_rows(path: Path) -> Iterator[Row | MarError]:
    import pyarrow as pa  # lazy: pyarrow
    from pyarrow.parquet import ParquetFile  # lazy: pyarrow

    number = 0
    try:
        with ParquetFile(path, memory_map=True) as file:
            names = file.schema_arrow.names
            if len(set(names)) < len(names):
                yield MarError(f"{path}: columns repeat: {', '.join(names)}. Rename one, or leave it out.")
                return
            for batch in file.iter_batches(batch_size=4096):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(f"{path}, row {number}", values)
    except (pa.ArrowException, ValueError, OverflowError) as error:  # a date may be beyond Python's
        yield MarError(f"{path}, row {number + 1}: not readable as Parquet ({one_line(error)}).")


def _dataset_rows(name: str, data: Any) -> Iterator[Row]:
    # Numbers of NLI's classes differ between data sets; their names do not.
    named = {
        column: feature
        for column, feature in (data.features or {}).items()
        if "entailment" in (getattr(feature, "names", None) or ())
    }
    for number, values in enumerate(data, 1):
        known = {c: values[c] for c in named if values[c] is not None and values[c] >= 0}
        classes = {c: named[c].int2str(value) for c, value in known.items()}
        yield Row(f"{name}, row {number}", {**values, **classes})


def _saved(path: Path, table: str) -> Any:
    from datasets import DatasetDict, load_from_disk  # lazy: datasets

    data = load_from_disk(str(path))
    return data[_split(str(path), list(data), table)] if isinstance(data, DatasetDict) else data


def _split(name: str, splits: Sequence[str], table: str) -> str:
    wanted = [split for split in (table, *SPLITS) if split in splits]
    if not wanted:
        raise MarError(f"{name} has the splits {', '.join(splits)}; name one of them: hub:ORG/NAME:SPLIT.")
    return wanted[0]


def _packaged(name: str) -> Path:
    package, _, inner = name.removeprefix(PACKAGE).partition("/")
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):  # a parent package is missing, or the name is not one of a package
        spec = None
    if spec is None or spec.origin is None:
        raise MarError(f"The data {name} belong to the package {package}, which is not installed.")
    root = Path(spec.origin).parent
    # In a wheel the data are inside the package, in a checkout at the top of the repository.
    for candidate in (root / "_tasks" / inner, root.parent.parent / "tasks" / inner):
        if candidate.exists():
            return candidate
    raise MarError(f"The installed {package} has no data {inner}; reinstall it.")


def is_rows(path: Path) -> bool:
    """Return True if a file has the suffix of a table, maybe with `.gz`."""
    return _suffix(path) in ROW_SUFFIXES


def _suffix(path: Path) -> str:
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def _checked(place: str, text: str) -> Row | MarError:
    content = parsed_json(place, text)
    if isinstance(content, MarError):
        return content
    return Row(place, content) if isinstance(content, dict) else _no_object(place, content)


def _no_object(place: str, content: Any) -> MarError:
    return MarError(
        f"{place}: expected a JSON object, got {type(content).__name__}. Give one per line, or an array."
    )
