"""Texts to features: tokenised a window at a time, then cut into batches without tokenising again."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mar_st.text.texts import token_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Outputs of a tokenizer for each token, and their padding values.
_PADDING = {"input_ids": "pad_token_id", "token_type_ids": "pad_token_type_id"}


@dataclass(frozen=True)
class Window:
    """Texts that are ready to be encoded; equal texts are stored once.

    Attributes:
        lengths: Tokens of each distinct text, `(distinct,)`.
        batches: Indices of the distinct texts in each batch.
        inverse: Index of the distinct text that equals each text, `(n,)`.
        columns: Outputs of the tokenizer by name, all texts concatenated, int32.
        constants: Values shared by all texts (prompt length, modality).
    """

    lengths: np.ndarray
    batches: list[np.ndarray]
    inverse: np.ndarray
    columns: dict[str, np.ndarray]
    constants: dict[str, Any]


def distinct(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return texts without repetitions, in order, and the place of each text among them."""
    places: dict[str, int] = {}
    inverse = np.fromiter((places.setdefault(text, len(places)) for text in texts), np.int64, len(texts))
    return list(places), inverse


class FrontEnd:
    """Makes features for a transformer: sentence-transformers tokenises, batches are padded here.

    Args:
        module: The transformer.
        prompt: Prefix of every text.
        task: `document`, `query` or `None`.
        max_length: Maximum number of tokens per text; default the module's.
        rows: Maximum number of texts of a batch.
    """

    def __init__(
        self, module: Any, *, prompt: str, task: str | None, max_length: int | None, rows: int | None
    ) -> None:
        self.module, self.prompt, self.task, self.max_length = module, prompt, task, max_length
        self.rows = rows
        self._lock = threading.Lock()  # a fast tokenizer must not be used by two threads at once
        tokenizer = module.tokenizer
        self._left = tokenizer.padding_side == "left"
        self._pads = {name: getattr(tokenizer, attribute, 0) or 0 for name, attribute in _PADDING.items()}

    def window(self, texts: Sequence[str], budget: int) -> Window:
        """Tokenise the distinct texts and plan batches of about `budget` tokens."""
        unique, inverse = distinct(texts)
        if not unique:
            return Window(inverse, [], inverse, {}, {})
        limit = {"max_length": self.max_length} if self.max_length else {}
        with self._lock:
            features = self.module.preprocess(
                unique,
                prompt=self.prompt or None,
                task=self.task,
                processing_kwargs={
                    "text": {"padding": False, "return_attention_mask": False},
                    "common": {"return_tensors": None},
                },
                **limit,
            )
        constants = {name: features[name] for name in ("prompt_length", "modality") if name in features}
        lengths = np.fromiter(map(len, features["input_ids"]), np.int64, len(unique))
        total = int(lengths.sum())
        # Lists of numbers would take ten times the memory.
        columns = {
            name: np.fromiter(chain.from_iterable(features[name]), np.int32, total)
            for name in self._pads
            if name in features
        }
        batches = token_batches(lengths, budget, rows=self.rows)
        return Window(lengths, batches, inverse, columns, constants)

    def features(self, window: Window, rows: np.ndarray) -> dict[str, Any]:
        """Return the features of a batch, padded, tensors in CPU memory."""
        lengths = window.lengths[rows]
        ends = np.cumsum(window.lengths)[rows]
        places = np.arange(int(lengths.max()))
        mask = places >= len(places) - lengths[:, None] if self._left else places < lengths[:, None]
        features = {"attention_mask": torch.from_numpy(mask.astype(np.int64))}
        for name, column in window.columns.items():
            array = np.full(mask.shape, self._pads[name], dtype=np.int64)
            parts = [column[end - length : end] for end, length in zip(ends, lengths, strict=True)]
            array[mask] = np.concatenate(parts)
            features[name] = torch.from_numpy(array)
        return {**features, **window.constants}
