"""Reading lists of texts: a JSONL file of queries or of a corpus, or a plain text file, one text per line."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


Document: TypeAlias = "str | Mapping[str, str]"


class TextsError(MarError):
    """A file of texts that cannot be read; the message names file and line."""


def join_document(document: Document) -> str:
    """Return the text of a corpus entry: the string itself, or title, newline, text.

    The published corpus joins title and text in this way.

    Raises:
        TypeError: `document` is neither a string nor a mapping.
        KeyError: `document` is a mapping without `text`.
    """
    if isinstance(document, str):
        return document
    if not hasattr(document, "get"):
        raise TypeError(
            f"A document is a string or a dict with 'text' and maybe 'title'; got {type(document).__name__}."
        )
    if "text" not in document:
        raise KeyError(f"A document needs a 'text' key; this one has {sorted(document)}.")
    title = document.get("title") or ""
    return f"{title}\n{document['text']}" if title else document["text"]


@dataclass(frozen=True)
class TextRow:
    """One line of a file of texts.

    Attributes:
        id: The `_id`, if there is one.
        text: The `text` (with the title) or the `query`; `None` if there is neither.
    """

    id: str | None
    text: str | None


def read_rows(path: Path) -> Iterator[tuple[int, TextRow]]:
    """Yield the rows of a JSONL file with their line numbers.

    Raises:
        TextsError: The file does not exist, its JSON is invalid, or a line has neither a text nor an `_id`.
    """
    if not path.is_file():
        raise TextsError(f"There is no file {path}. Give a JSONL file with 'text', or a text file.")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if content.strip():
                yield number, _row(path, number, content)


def _row(path: Path, number: int, raw: bytes) -> TextRow:
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        form = "UTF-8" if path.suffix == ".txt" else "a JSON object in UTF-8"
        raise TextsError(f"{path}:{number}: not {form} ({error}).") from error
    if path.suffix == ".txt":
        return TextRow(None, line.strip())
    try:
        content: dict[str, Any] = json.loads(line)
        if "\\u" in line:  # half of a surrogate pair is not text
            json.dumps(content, ensure_ascii=False).encode()
        text = join_document(content) if "text" in content else content.get("query")
        row = TextRow(str(content["_id"]) if "_id" in content else None, text)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise TextsError(f"{path}:{number}: not a JSON object with 'text' ({error}).") from error
    if row.text is None and row.id is None:
        raise TextsError(f"{path}:{number}: needs 'text' (or 'query', or '_id'); it has {sorted(content)}.")
    if row.text is not None and not (isinstance(row.text, str) and row.text.strip()):
        raise TextsError(f"{path}:{number}: the text is empty or not a string.")
    return row


def read_texts(path: Path) -> dict[str, str | None]:
    """Return the distinct texts of a file in their order, each with the first `_id` it has.

    Raises:
        TextsError: See `read_rows`; also if a line has no text.
    """
    texts: dict[str, str | None] = {}
    for number, row in read_rows(path):
        if row.text is None:
            raise TextsError(f"{path}:{number}: has no 'text'.")
        texts.setdefault(row.text, row.id)
    if not texts:
        raise TextsError(f"{path} holds no texts.")
    return texts


def read_ids(path: Path) -> dict[str, str]:
    """Return the text of every `_id` of a file."""
    return {row.id: row.text for _, row in read_rows(path) if row.id is not None and row.text is not None}
