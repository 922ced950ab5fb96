"""Feature extraction of a lookup encoder: character n-grams and words of a text, in plain Python.

Everything that computes a lookup encoder (the torch module, the numpy export, the page in a browser) makes
its features by these rules, which are part of the format:

1. NFKC, lower case, runs of white space become one space, none at the ends.
2. The first `max_length` characters (code points) count.
3. Features are all runs of `n` characters for each length `n`, and every run of Latin letters and digits that
   is longer than these, as a word. A tab before a word distinguishes it from a run of characters; no
   normalised text holds a tab.
4. Features that are not in the dictionary are left out.
5. A feature that occurs `c` times counts `sqrt(c)`.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from operator import add
from typing import TYPE_CHECKING

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Prefix of a word in the dictionary.
WORD_PREFIX = "\t"

#: Latin letters (ASCII, Latin-1, Extended A and B), lower case, and digits.
_WORD = re.compile("[0-9a-z\u00df-\u00f6\u00f8-\u024f]+")


class LookupEncoderError(MarError):
    """A lookup encoder that cannot be built, fitted, loaded or exported; the message says why."""


def normalise(text: str) -> str:
    """Return the text that features are cut from: NFKC, lower case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def grams(text: str, lengths: tuple[int, int]) -> list[str]:
    """Return the features of a normalised text, with repetitions.

    Args:
        text: Result of `normalise`.
        lengths: Characters of the shortest and of the longest n-gram.
    """
    shortest, longest = lengths
    runs = list(text)
    features = runs if shortest == 1 else []
    for length in range(2, min(longest, len(text)) + 1):
        runs = list(map(add, runs, text[length - 1 :]))
        if length >= shortest:
            features = features + runs
    return features + [WORD_PREFIX + word for word in _WORD.findall(text) if len(word) > longest]


class Features:
    """The dictionary of a lookup encoder and the rules by which texts are looked up in it.

    Args:
        names: Features, by number.
        lengths: Characters of the shortest and of the longest n-gram.
        max_length: Maximum number of characters of a normalised text; the rest is ignored.

    Raises:
        LookupEncoderError: There are no features or one occurs twice, the lengths are not `1 <= shortest <=
            longest`, or `max_length` is not positive.
    """

    def __init__(self, names: Iterable[str], *, lengths: tuple[int, int], max_length: int) -> None:
        shortest, longest = lengths
        if not 1 <= shortest <= longest:
            raise LookupEncoderError(
                f"lengths are those of the shortest and the longest n-gram, at least 1; got {lengths}."
            )
        if max_length < 1:
            raise LookupEncoderError(f"max_length is a positive number of characters; got {max_length}.")
        self.names = list(names) if isinstance(names, Iterable) else [names]
        if not all(isinstance(name, str) for name in self.names):
            raise LookupEncoderError("The dictionary of a lookup encoder is a list of texts; copy it again.")
        self.lengths, self.max_length = (int(shortest), int(longest)), int(max_length)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        if not self.names or len(self._numbers) < len(self.names):
            raise LookupEncoderError(
                f"A lookup encoder needs features, each once; got {len(self.names)} with "
                f"{len(self._numbers)} different ones."
            )

    def __len__(self) -> int:
        return len(self.names)

    def to_json(self) -> str:
        """Return the dictionary as a JSON list."""
        return json.dumps(self.names, ensure_ascii=False)

    def digest(self) -> str:
        """Return the sha256 of the dictionary."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def size(self, text: str) -> int:
        """Return the characters of a normalised text, before it is cut."""
        return len(normalise(text))

    def counts(self, text: str, max_length: int | None = None) -> Mapping[int, int]:
        """Return how often each known feature is in a text, by number.

        Args:
            text: Any text; one without a known feature gives an empty dictionary.
            max_length: Maximum number of characters; default the dictionary's own.
        """
        normalised = normalise(text)[: max_length or self.max_length]
        occurrences: Counter[int | None] = Counter(map(self._numbers.get, grams(normalised, self.lengths)))
        occurrences.pop(None, None)
        return occurrences  # type: ignore[return-value]
