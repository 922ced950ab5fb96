"""The text of a document, and the form in which texts are compared by their characters."""

from __future__ import annotations

import unicodedata
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


def normalise(text: str) -> str:
    """Return the letters and digits of a text, after NFKC and in lower case."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return "".join(character for character in folded if character.isalnum())
