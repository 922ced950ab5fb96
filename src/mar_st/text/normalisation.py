"""The form in which texts are compared by their characters."""

from __future__ import annotations

import unicodedata

__all__ = ["normalise"]


def normalise(text: str) -> str:
    """Return the letters and digits of a text, after NFKC and in lower case."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return "".join(character for character in folded if character.isalnum())
