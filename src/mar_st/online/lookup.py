"""An exported lookup encoder that needs only numpy: `mar export --format numpy`.

`export.json` holds the settings, `features.json` the dictionary and `lookup.bin`, little-endian and in this
order, weights float32 `(features,)`, bias float32 `(dim,)`, scales float32 `(features,)` and the table
`(features, dim)` in its precision. The page of `--format lookup-json` reads the same files.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from mar_st.files import JsonError, read_json
from mar_st.lookup.features import Features
from mar_st.online.listing import MAX_SETTING, ExportListing
from mar_st.online.protocol import EncoderError, find_prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DICTIONARY, TABLE_FILE = "features.json", "lookup.bin"

#: Types of the table by precision.
TABLE_DTYPES: dict[str, np.dtype[Any]] = {
    "int8": np.dtype("i1"),
    "fp16": np.dtype("<f2"),
    "fp32": np.dtype("<f4"),
}


@dataclass(frozen=True, kw_only=True)
class LookupListing(ExportListing):
    """Content of `export.json` of a lookup encoder.

    Attributes:
        features: Number of features.
        dim: Width of the vectors.
        normalised: Whether they have length 1.
        similarity: Similarity function of the model.
        lengths: Length of the shortest and of the longest n-gram, in characters.
        max_length: Maximum characters of a normalised text.
        precision: Precision of the table, a key of `TABLE_DTYPES`.
        prompts: Stored prompts by name; this encoder does not use them.
        space: Digest of the document space, if it is known.
        documents: Number of documents that the page searches; 0 without a page.
        report: Measurements of the export.
    """

    form: ClassVar[str] = "mar-lookup"

    features: int
    dim: int
    normalised: bool
    similarity: str | None
    lengths: list[int]
    max_length: int
    precision: str
    prompts: dict[str, str]
    space: str | None = None
    documents: int = 0
    report: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, content: dict[str, Any]) -> Self:
        """Parse the content of a listing, as `ExportListing.of`."""
        listing = cls(**content)
        listing.check({"features": 1, "dim": 1, "max_length": 1})
        return listing

    def check(self, least: Mapping[str, int]) -> None:
        """Check the fields of the listing, as `ExportListing.check`."""
        super().check(least)
        if len(self.lengths) != 2 or not all(
            type(value) is int and 1 <= value <= MAX_SETTING for value in self.lengths
        ):
            raise TypeError(f"'lengths' are two whole numbers, not {repr(self.lengths)[:40]}")
        if self.precision not in TABLE_DTYPES or type(self.normalised) is not bool:
            raise TypeError(
                f"'precision' is one of {', '.join(TABLE_DTYPES)}, and 'normalised' true or false"
            )
        if not all(isinstance(text, str | None) for text in self.prompts.values()):
            raise TypeError("'prompts' are texts")

    def needed(self) -> list[str]:
        """Return the names of the files that loading needs, as `ExportListing.needed`."""
        return [DICTIONARY, TABLE_FILE]


class NumpyLookupEncoder:
    """The lookup encoder of an exported folder; see `mar_st.lookup.LookupEncoder` for what it computes.

    Args:
        listing: Listing of the folder.
        features: Dictionary of features and rules for looking up texts.
        parts: `weights`, `bias`, `scales` and `table` of `lookup.bin`.
    """

    def __init__(self, listing: LookupListing, features: Features, parts: Mapping[str, np.ndarray]) -> None:
        self.listing, self.features = listing, features
        self._weights, self._bias = parts["weights"], parts["bias"]
        self._scales, self._table = parts["scales"], parts["table"]
        self.dim, self.normalised, self.max_length = listing.dim, listing.normalised, listing.max_length
        self.space, self.query, self.origin = listing.space, listing.query, listing.model["identity"]
        self.prompts: Mapping[str, str] = listing.prompts

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Load an exported folder.

        Raises:
            EncoderError: The folder is broken.
        """
        listing = LookupListing.read(folder)
        try:
            names = read_json(folder / DICTIONARY)
        except JsonError as error:
            raise EncoderError(
                f"{folder / DICTIONARY} is damaged ({error}). Copy or export the encoder again."
            ) from error
        shortest, longest = listing.lengths
        features = Features(names, lengths=(shortest, longest), max_length=listing.max_length)
        content = (folder / TABLE_FILE).read_bytes()
        count, dim, kind = listing.features, listing.dim, TABLE_DTYPES[listing.precision]
        size = 4 * (2 * count + dim) + kind.itemsize * count * dim
        if len(features) != count or len(content) != size:
            raise EncoderError(
                f"The files of {folder} come from different exports; export the encoder again."
            )
        singles = np.frombuffer(content, "<f4", 2 * count + dim)
        parts = dict(zip(("weights", "bias", "scales"), np.split(singles, [count, count + dim]), strict=True))
        parts["table"] = np.frombuffer(content, kind, offset=singles.nbytes).reshape(count, dim)
        return cls(listing, features, parts)

    @property
    def identity(self) -> str:
        """Return the digest of all that the vectors depend on."""
        content = {
            "model": self.listing.model["identity"],
            "files": {
                name: entry["sha256"]
                for name, entry in self.listing.files.items()
                if name in (DICTIONARY, TABLE_FILE)
            },
            "settings": [self.listing.lengths, self.max_length, self.listing.precision],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def encode(self, texts: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Return vectors of queries, see `QueryEncoder`; `prompt_name` is checked, but no prompt is used."""
        find_prompt(self.prompts, prompt_name)
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self._vector(text)
        return vectors

    def _vector(self, text: str) -> np.ndarray:
        counts = self.features.counts(text)
        vector: np.ndarray = self._bias
        if counts:
            numbers = np.fromiter(counts, np.intp, len(counts))
            parts = self._weights[numbers] * np.sqrt(np.fromiter(counts.values(), np.float32, len(counts)))
            parts *= self._scales[numbers] / max(float(parts @ parts) ** 0.5, 1e-6)
            vector = parts @ self._table[numbers].astype(np.float32, copy=False) + vector
        if self.normalised:
            vector = vector / max(float(vector @ vector) ** 0.5, 1e-12)
        return vector

    def count_tokens(self, texts: Sequence[str], prompt_name: str | None = None) -> list[int]:
        """Return the characters of each normalised text, which is what `max_length` counts."""
        find_prompt(self.prompts, prompt_name)
        return [self.features.size(text) for text in texts]

    def warm_up(self, tokens: Sequence[int] = (16, 32)) -> None:
        """Do nothing: there is nothing to prepare."""
