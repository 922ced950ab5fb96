"""Reading a corpus, entry by entry: JSONL, Parquet, a folder in the Hub layout, saved `datasets`, a Hub name.

Only the current entry is in memory. An entry is an object with `_id` (or `id`), `text` and maybe `title`;
its other fields, and those of an object `metadata`, are metadata if they are strings, numbers or booleans.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mar_st.errors import MarError
from mar_st.files import printable, repeated
from mar_st.model.names import check_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Scalar: TypeAlias = str | int | float | bool

#: Fields that are not metadata.
_ENTRY_FIELDS = ("_id", "id", "title", "text", "metadata")

#: Files of a corpus in a folder in the Hub layout, in order of preference.
_FILE_PATTERNS = ("corpus.jsonl", "corpus.jsonl.gz", "corpus*.parquet", "corpus/*.parquet", "*.parquet")

#: Name of a Hub data set: `org/name`, `org/name:config` or `org/name:config:split`.
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+){0,2}")

#: Splits of a Hub data set that hold a corpus, in order of preference.
_SPLITS = ("corpus", "train", "test")


#: Largest absolute value of an integer of metadata; twice as much would be infinite as a float.
_LARGEST_INTEGER = 10**308


class CorpusError(MarError):
    """A corpus that cannot be read; the message names the file and the line."""


class Entry(NamedTuple):
    """A document of a corpus.

    Attributes:
        id: Its id, unique in the corpus.
        title: Its title; empty if it has none.
        text: Its text.
        metadata: Its other fields: strings, numbers, booleans.
    """

    id: str
    title: str
    text: str
    metadata: dict[str, Scalar]

    @property
    def document(self) -> str:
        """Return the encoded text: title, newline, text, or the text alone."""
        return f"{self.title}\n{self.text}" if self.title else self.text


def read_corpus(source: str | Path) -> Iterator[Entry]:
    """Yield the entries of a corpus in their order.

    Args:
        source: A JSONL file (`.jsonl`, `.json`, also `.gz`), a Parquet file, a folder that holds
            `corpus.jsonl` or `corpus*.parquet`, a folder that `datasets` saved, or a Hub name
            (`org/name[:config[:split]]`, streamed).

    Yields:
        Entries. Duplicate ids are not detected here; `mar encode` and `mar index build` refuse them.

    Raises:
        CorpusError: The source does not exist, its format is unknown, or a row is not a document; the message
            names file and line.
    """
    for _, entry in marked_entries(source):
        yield entry


class Mark(NamedTuple):
    """Position at which reading can continue.

    Attributes:
        file: Number of the file (`corpus_files`).
        offset: Bytes before the line; -1 if reading cannot start in the middle of the file.
        line: Number of the next line or row.
    """

    file: int
    offset: int
    line: int


def marked_entries(source: str | Path, start: Mark | None = None) -> Iterator[tuple[Mark, Entry]]:
    """Yield the entries of a corpus, each with its position.

    Args:
        source: See `read_corpus`.
        start: Position to begin at, in an uncompressed JSONL file; default the first entry.

    Raises:
        CorpusError: See `read_corpus`.
    """
    for mark, place, row in _rows(source, start):
        yield mark, _entry(place, row)


def corpus_files(source: str | Path) -> list[Path]:
    """Return files that hold a corpus, in their order; empty for a Hub name and for a folder of `datasets`.

    Raises:
        CorpusError: See `read_corpus`.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        if _is_saved_dataset(path):
            return []
        for pattern in _FILE_PATTERNS:
            files = sorted(path.glob(pattern))
            if files:
                return files
        raise CorpusError(
            f"{path} holds no corpus. A folder needs corpus.jsonl or corpus*.parquet, or one that "
            "datasets' save_to_disk wrote."
        )
    if isinstance(source, str) and _HUB_NAME.fullmatch(source) and not path.parent.is_dir():
        return []
    raise CorpusError(
        f"There is no corpus at {source}. Give a JSONL or Parquet file, a folder with corpus.jsonl, or a "
        "Hub name such as org/name."
    )


def _rows(source: str | Path, start: Mark | None) -> Iterator[tuple[Mark, str, Any]]:
    files = corpus_files(source)
    for number, path in enumerate(files):
        if start is not None and number < start.file:
            continue
        if path.suffix == ".parquet":
            for row, (place, content) in enumerate(_parquet(path), 1):
                yield Mark(number, -1, row), place, content
        else:
            yield from _jsonl(path, number, start if start is not None and number == start.file else None)
    if not files:
        path = Path(source).expanduser()
        rows = _saved_dataset(path) if path.is_dir() else _hub(str(source))
        for row, (place, content) in enumerate(rows, 1):
            yield Mark(0, -1, row), place, content


def _jsonl(path: Path, file: int, start: Mark | None) -> Iterator[tuple[Mark, str, Any]]:
    if path.name.removesuffix(".gz").rpartition(".")[2] not in ("jsonl", "json", "ndjson"):
        raise CorpusError(f"{path} is neither JSONL (.jsonl, .jsonl.gz) nor Parquet (.parquet).")
    zipped = path.suffix == ".gz"
    offset, number = (start.offset, start.line) if start is not None else (0, 1)
    try:
        with _opened(path) as lines:
            lines.seek(offset)
            for line in lines:
                mark = Mark(file, -1 if zipped else offset, number)
                if line.strip():
                    try:
                        content = json.loads(line)
                    except (ValueError, RecursionError) as error:  # bad JSON or bad UTF-8
                        raise CorpusError(
                            f"{path}:{number}: not a JSON object in UTF-8 ({error})."
                        ) from error
                    yield mark, f"{path}:{number}", content
                offset += len(line)
                number += 1
    except (EOFError, gzip.BadGzipFile) as error:
        raise CorpusError(f"{path}:{number}: damaged gzip file ({error}). Copy it again.") from error


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    from pyarrow import ArrowException  # lazy: pyarrow
    from pyarrow.parquet import ParquetFile  # lazy: pyarrow

    number = 0
    try:
        with ParquetFile(path, memory_map=True) as file:
            column = repeated(file.schema_arrow.names)
            if column is not None:
                raise CorpusError(f"{path}: the column {column!r} occurs twice. Rename one, or leave it out.")
            for batch in file.iter_batches(batch_size=4096):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except ArrowException as error:
        raise CorpusError(f"{path}, row {number + 1}: cannot be read as Parquet ({error}).") from error


def _is_saved_dataset(path: Path) -> bool:
    return (path / "dataset_dict.json").is_file() or (path / "dataset_info.json").is_file()


def _saved_dataset(path: Path) -> Iterator[tuple[str, Any]]:
    from datasets import DatasetDict, load_from_disk  # lazy: datasets

    data = load_from_disk(str(path))
    name = str(path)
    if isinstance(data, DatasetDict):
        split = next((split for split in _SPLITS if split in data), None)
        if split is None:
            raise CorpusError(f"{path} has the splits {', '.join(data)}; a corpus is in {_one_of(_SPLITS)}.")
        data, name = data[split], f"{path} ({split})"
    for number, row in enumerate(data, 1):
        yield f"{name}, row {number}", row


def _hub(name: str) -> Iterator[tuple[str, Any]]:
    from datasets import get_dataset_split_names, load_dataset  # lazy: datasets

    repository, *rest = name.split(":")
    config = rest[0] if rest else None
    try:
        check_dataset(repository)
        if len(rest) > 1:
            split = rest[1]
        else:
            known = get_dataset_split_names(repository, config)
            split = next((preferred for preferred in _SPLITS if preferred in known), known[0])
        stream = load_dataset(repository, config, split=split, streaming=True)
        rows = enumerate(stream, 1)
    except Exception as error:  # datasets and the Hub client raise many kinds
        reason = " ".join(str(error).split())[:200]
        raise CorpusError(
            f"The Hub data set {name} could not be opened ({type(error).__name__}: {reason}). Check the name "
            "and the network, or download it and give the file."
        ) from error
    for number, row in rows:
        yield f"{name}, row {number}", row


def _one_of(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1]


def _entry(place: str, row: Any) -> Entry:
    if not isinstance(row, dict):
        raise CorpusError(f"{place}: expected an object with '_id' and 'text', got {type(row).__name__}.")
    identity = row.get("_id")
    if identity is None:
        identity = row.get("id")
    if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
        raise CorpusError(
            f"{place}: needs an '_id' (or 'id'), a string or a whole number; it has {sorted(map(str, row))}."
        )
    text, title = row.get("text"), row.get("title")
    shown = printable(str(identity))[:200]
    if not isinstance(text, str):
        raise CorpusError(f"{place}: 'text' of document {shown} is {_kind(text)}; it should be a string.")
    if title is not None and not isinstance(title, str):
        raise CorpusError(f"{place}: 'title' of document {shown} is {_kind(title)}; it should be a string.")
    if not text.strip() and not (title or "").strip():
        raise CorpusError(f"{place}: document {shown} is empty: it has neither a text nor a title.")
    metadata = _metadata(row)
    for value in metadata.values():
        if type(value) is int and abs(value) > _LARGEST_INTEGER:
            raise CorpusError(
                f"{place}: document {shown} has an integer of more than 308 digits in its metadata. "
                "Write it as a string."
            )
    strings = [value for value in metadata.values() if isinstance(value, str)]
    try:
        "".join([str(identity), title or "", text, *metadata, *strings]).encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{place}: document {shown} holds half a surrogate pair, so it is not valid text ({error})."
        ) from error
    return Entry(str(identity), title or "", text, metadata)


def _kind(value: Any) -> str:
    return "missing" if value is None else f"of type {type(value).__name__}"


def _metadata(row: Mapping[str, Any]) -> dict[str, Scalar]:
    nested = row.get("metadata")
    fields = {
        key: value for key, value in row.items() if key not in _ENTRY_FIELDS and isinstance(value, Scalar)
    }
    if isinstance(nested, dict):
        fields |= {str(key): value for key, value in nested.items() if isinstance(value, Scalar)}
    return fields
