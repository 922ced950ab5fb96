"""The word lists of the recognisers: text files in `words/`, compiled for this project."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = [
    "COMPOUND", "GIVEN", "NEVER", "NO_BEGINNING", "PREPOSITIONS", "RARE", "SURNAMES",
    "alternatives", "characters", "known_words", "words",
]  # fmt: skip

_FOLDER = Path(__file__).parent / "words"


@cache
def words(name: str) -> tuple[str, ...]:
    """Return the words of `words/NAME.txt`, in file order; lines that begin with # are comments."""
    lines = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return tuple(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def characters(name: str) -> frozenset[str]:
    """Return the characters of `words/NAME.txt`."""
    return frozenset("".join(words(name)))


def alternatives(name: str) -> str:
    """Return the words of `words/NAME.txt` as alternatives in a regular expression, longer ones first."""
    return "|".join(sorted(words(name), key=len, reverse=True))


SURNAMES, COMPOUND = characters("surnames"), frozenset(words("compound"))
PREPOSITIONS = characters("prepositions")
RARE = characters("rare") | PREPOSITIONS
GIVEN, NEVER = characters("given"), characters("never")
NO_BEGINNING = frozenset(words("no-beginnings"))


@cache
def known_words() -> frozenset[str]:
    """Return words of two to four characters that are not names: jieba's, `no-names` and `ordinary`."""
    import jieba  # lazy: jieba

    with jieba.get_dict_file() as lines:
        rows = (line.decode("utf-8").split() for line in lines)
        ordinary = {word for word, _, tag in rows if 2 <= len(word) <= 4 and not tag.startswith("nr")}
    return frozenset(ordinary.union(words("no-names"), words("ordinary")))
