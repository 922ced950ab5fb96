"""Lists of texts: queries or documents in a file, or one text per line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.text.texts import join_document
from mar_st.text.values import as_id, as_text

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.data.rows import Row


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
