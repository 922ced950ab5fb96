"""The text of a document, the form in which texts are compared by their characters, batches of one length."""

from __future__ import annotations

import hashlib
import unicodedata
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Document: TypeAlias = "str | Mapping[str, str]"


def text_digest(text: str) -> bytes:
    """Return the first 16 bytes of the sha256 of a text in UTF-8, by which vectors and answers know it.

    Raises:
        UnicodeEncodeError: It holds half of a surrogate pair.
    """
    return hashlib.sha256(text.encode()).digest()[:16]


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


def token_batches(
    lengths: Sequence[int] | np.ndarray, budget: int, *, rows: int | None = None
) -> list[np.ndarray]:
    """Split texts into batches of about `budget` tokens, longest texts first.

    Texts of the same length are batched together, so there is almost no padding. The order depends only on
    the lengths.

    Args:
        lengths: Tokens of each text, `(n,)`.
        budget: Maximum number of tokens of a batch, padding included; a longer text is a batch of its own.
        rows: Maximum number of texts of a batch; default no limit.

    Returns:
        Row numbers of each batch, int64; every row occurs once.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    most = rows or len(order)
    batches, start = [], 0
    for place in range(len(order)):
        after = int(sizes[order[start]]) * (place - start + 1)  # the first text of a batch is its longest
        if place > start and (after > budget or place - start >= most):
            batches.append(order[start:place])
            start = place
    if start < len(order):
        batches.append(order[start:])
    return batches
