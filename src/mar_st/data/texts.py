"""Texts in files: queries or documents, with or without ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.data.rows import Row, read_rows
from mar_st.errors import MarError
from mar_st.text.texts import join_document
from mar_st.text.values import as_id, as_text, is_document

if TYPE_CHECKING:
    from pathlib import Path


def read_texts(source: str | Path, *, table: str = "") -> dict[str, str | None]:
    """Return the distinct texts of a source in their order, each with the first `_id` it has.

    Args:
        source: See `read_rows`; rows hold `text` (and maybe `title`, which goes before it) or `query`. A
            `.txt` file holds one text per line.
        table: Name of the files in a folder, `corpus` or `queries`.

    Raises:
        MarError: A row has no text, or there are no rows.
    """
    texts: dict[str, str | None] = {}
    for text, key in read_rows(source, _text, table=table):
        texts.setdefault(text, key)
    if not texts:
        raise MarError(f"{source} holds no texts.")
    return texts


def _text(row: Row) -> tuple[str, str | None]:
    values = row.values
    text = as_text(values.get("text") or values.get("query"))
    if text is None:
        raise MarError(f"needs a 'text' (or 'query') that is not empty; it has {sorted(values)}.")
    title = as_text(values.get("title")) or ""
    return join_document({"text": text, "title": title}), as_id(values.get("_id", values.get("id")))


def texts_by_id(source: str | Path, table: str) -> dict[str, str]:
    """Return the texts of `corpus` or `queries` in a folder by `_id` (or `id`).

    Titles of a corpus go before the texts; a document may consist of its title alone.

    Raises:
        MarError: A row has no id or no text, or an id occurs twice.
    """
    texts: dict[str, str] = {}

    def make(row: Row) -> None:
        values = row.values
        key, text = as_id(values.get("_id", values.get("id"))), values.get("text")
        title = (values.get("title") or "") if table == "corpus" else ""
        if key is None or not isinstance(text, str) or not isinstance(title, str):
            raise MarError(f"needs '_id' and 'text', strings that are not empty; has {sorted(values)}.")
        if not is_document(text, title):
            raise MarError(f"the text of {key!r} is empty.")
        if key in texts:
            raise MarError(f"the id {key!r} occurs twice.")
        texts[key] = join_document({"title": title, "text": text})

    for _ in read_rows(source, make, table=table):
        pass
    return texts
