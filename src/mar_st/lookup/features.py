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
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

#: File of the dictionary, a JSON list; beside `config.json` and `model.safetensors`.
DICTIONARY = "features.json"

#: Settings in `config.json`.
CONFIG_KEYS = ["embedding_dimension", "lengths", "max_length", "dictionary"]

#: Prefix of a word in the dictionary.
WORD_PREFIX = "\t"

#: Latin letters (ASCII, Latin-1, Extended A and B), lower case, and digits.
_WORD = re.compile("[0-9a-z\u00df-\u00f6\u00f8-\u024f]+")


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
        MarError: The names are not different texts.
    """

    def __init__(self, names: list[str], *, lengths: tuple[int, int], max_length: int) -> None:
        if not isinstance(names, list) or len({n for n in names if isinstance(n, str)}) < len(names):
            raise MarError("The dictionary of a lookup encoder is a list of different texts; copy it again.")
        self.names = names
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self.lengths, self.max_length = lengths, int(max_length)

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


def saved_features(
    place: str, config: Mapping[str, Any], dictionary: str | Path | None, table: tuple[int, ...]
) -> Features:
    """Return the dictionary and rules of a saved lookup encoder.

    Args:
        place: Its location, for messages.
        config: Content of `config.json`.
        dictionary: The file `features.json`.
        table: Shape of the table of vectors.

    Raises:
        MarError: A file is missing or damaged, or the files do not fit each other.
    """
    try:
        if dictionary is None:
            raise KeyError(DICTIONARY)
        lengths = (int(config["lengths"][0]), int(config["lengths"][1]))
        names, most = read_json(Path(dictionary)), int(config["max_length"])
        features = Features(names, lengths=lengths, max_length=most)
        fits = table == (len(features), config["embedding_dimension"])
        if not fits or features.digest() != config["dictionary"]:
            raise MarError(f"{DICTIONARY}, config.json and the table {table} come from different encoders.")
    except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise MarError(f"The lookup encoder {place} is damaged ({error}). Copy it again.") from error
    return features
