"""Lookup encoders of saved models, computed with numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open

from mar_st.files import read_record
from mar_st.lookup.features import DICTIONARY, Features, saved_features
from mar_st.model.digest import model_digest, space_of
from mar_st.modules.layout import SavedModule, query_routes, saved_chain
from mar_st.online.protocol import EncoderError, find_prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


#: Type of the lookup encoder in saved models, and suffix of the type of the module after it.
_LOOKUP_TYPE, _NORMALIZE_SUFFIX = "mar_st.lookup.module.LookupEncoder", ".Normalize"

#: Types of a saved table that numpy has, by safetensors' name.
_TABLE_TYPES = {"F16", "F32", "I8"}


class NumpyLookupEncoder:
    """A lookup encoder; see `mar_st.lookup.module.LookupEncoder` for what it computes.

    Args:
        features: Dictionary of features and rules for looking up texts.
        parts: Arrays `weights`, `bias`, `scales` and `table`.
        settings: Attributes of `QueryEncoder`: `identity`, `origin`, `query`, `space`, `normalised`,
            `prompts`.
    """

    identity: str
    origin: str
    query: str | None
    space: str | None
    normalised: bool
    prompts: Mapping[str, str | None]

    def __init__(self, features: Features, parts: Mapping[str, np.ndarray], **settings: Any) -> None:
        self.features = features
        self._weights, self._bias = parts["weights"], parts["bias"]
        self._scales, self._table = parts["scales"], parts["table"]
        self.dim, self.max_length = int(self._table.shape[1]), features.max_length
        vars(self).update(settings)

    @classmethod
    def open(cls, folder: Path, query: str | None = None) -> Self | None:
        """Load the query encoder of a saved model if it is a lookup encoder; open only its files.

        Args:
            folder: A saved sentence-transformers model.
            query: Name of the query encoder, for a MAR with several; default `query`.

        Returns:
            `None` if the query encoder is of another kind, is missing, or has a dtype that numpy lacks.

        Raises:
            MarError: Its files are damaged or do not match.
            EncoderError: Its files cannot be read.
        """
        name_and_chain = _chain(folder, query)
        if name_and_chain is None:
            return None
        name, chain = name_and_chain
        place, config = chain[0].path, read_record(chain[0].path / "config.json") or {}
        try:
            with safe_open(str(place / "model.safetensors"), framework="numpy") as file:
                if file.get_slice("embedding.weight").get_dtype() not in _TABLE_TYPES:
                    return None
                weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 -- no mapping
        except (SafetensorError, OSError) as error:
            raise EncoderError(f"{place} cannot be read ({error}); copy the encoder again.") from error
        table = weights["embedding.weight"]
        features = saved_features(str(place), config, place / DICTIONARY, table.shape)
        parts = {
            "weights": weights["weight"].astype(np.float32),
            "bias": weights["bias"].astype(np.float32),
            "scales": weights.get("scales", np.ones(len(features), dtype=np.float32)),
            "table": table,
        }
        identity = model_digest(folder, route=name or "query")
        return cls(
            features,
            parts,
            identity=identity,
            origin=identity,
            query=name,
            space=space_of(folder),
            normalised=len(chain) > 1,
            prompts=(read_record(folder / "config_sentence_transformers.json") or {}).get("prompts") or {},
        )

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


def _chain(folder: Path, query: str | None) -> tuple[str | None, list[SavedModule]] | None:
    """Return the name of a query encoder and its saved modules; `None` unless it is a lookup encoder."""
    if not (folder / "modules.json").is_file():
        return None
    routes = query_routes(folder)
    name = query or "query" if routes else query
    if name is not None and name not in routes:
        return None
    first, *others = saved_chain(folder, name or "query")
    if first.type != _LOOKUP_TYPE or not all(part.type.endswith(_NORMALIZE_SUFFIX) for part in others):
        return None
    return name, [first, *others]
