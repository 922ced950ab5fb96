"""The text of a document: title and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Document: TypeAlias = "str | Mapping[str, str]"


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
