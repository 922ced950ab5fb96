"""Texts to features: tokenised a window at a time, then cut into batches without tokenising again."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.base.modules import Transformer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

#: Outputs of a tokenizer for each token, and their padding values.
_PADDING = {"input_ids": "pad_token_id", "token_type_ids": "pad_token_type_id"}


@dataclass(frozen=True)
class Window:
    """Texts that are ready to be encoded; equal texts are stored once.

    Attributes:
        lengths: Tokens of each distinct text (characters if it is not tokenised yet), `(distinct,)`.
        batches: Indices of the distinct texts in each batch.
        inverse: Index of the distinct text that equals each text, `(n,)`.
        columns: Outputs of the tokenizer by name, all texts concatenated, int32.
        texts: The distinct texts, if they are not tokenised yet.
        constants: Values shared by all texts (prompt length, modality).
    """

    lengths: np.ndarray
    batches: list[np.ndarray]
    inverse: np.ndarray
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)

    def tokens(self, column: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the values of some distinct texts in a column, one text after the other, int64."""
        ends = np.cumsum(self.lengths)
        parts = [column[ends[row] - self.lengths[row] : ends[row]] for row in rows]
        return np.concatenate(parts).astype(np.int64)


def front_end(module: nn.Module, **options: Any) -> TokenFrontEnd | PlainFrontEnd:
    """Return the front end for the first module of a route.

    Args:
        module: The first module.
        **options: `prompt`, `task`, `max_length`, `rows`, `packed`, see `TokenFrontEnd`.
    """
    if isinstance(module, Transformer) and set(module.modality_config) == {"text"} and module.tokenizer:
        return TokenFrontEnd(module, **options)
    options.pop("packed")
    return PlainFrontEnd(module, **options)


def token_batches(
    lengths: Sequence[int] | np.ndarray, budget: int, *, padded: bool = True, rows: int | None = None
) -> list[np.ndarray]:
    """Split texts into batches of about `budget` tokens, longest texts first.

    Texts of the same length are batched together, so there is almost no padding. The order depends only on
    the lengths.

    Args:
        lengths: Tokens of each text, `(n,)`.
        budget: Maximum number of tokens of a batch, padding included; a longer text is a batch of its own.
        padded: Whether texts are padded to the longest of their batch; else they are laid end to end.
        rows: Maximum number of texts of a batch; default no limit.

    Returns:
        Row numbers of each batch, int64; every row occurs once.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    most = rows or len(order)
    batches, start, total = [], 0, 0
    for place, row in enumerate(order):
        length = int(sizes[row])
        # Sorted, so the first text of a batch is its longest.
        after = int(sizes[order[start]]) * (place - start + 1) if padded else total + length
        if place > start and (after > budget or place - start >= most):
            batches.append(order[start:place])
            start, total = place, 0
        total += length
    if start < len(order):
        batches.append(order[start:])
    return batches


def distinct(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return texts without repetitions, in order, and the place of each text among them."""
    places: dict[str, int] = {}
    inverse = np.fromiter((places.setdefault(text, len(places)) for text in texts), np.int64, len(texts))
    return list(places), inverse


class TokenFrontEnd:
    """Front end for transformers: sentence-transformers tokenises without padding, batches are padded here.

    Args:
        module: The transformer.
        prompt: Prefix of every text.
        task: `document`, `query` or `None`.
        max_length: Maximum number of tokens per text; default the module's.
        rows: Maximum number of texts of a batch.
        packed: Lay texts end to end instead of padding them (`mar_st.kernels.attention`).
    """

    def __init__(
        self,
        module: Any,
        *,
        prompt: str,
        task: str | None,
        max_length: int | None,
        rows: int | None,
        packed: bool,
    ) -> None:
        self.module, self.prompt, self.task, self.max_length = module, prompt, task, max_length
        self.rows, self.packed = rows, packed
        self._lock = threading.Lock()  # a fast tokenizer must not be used by two threads at once
        tokenizer = module.tokenizer
        self._left = tokenizer.padding_side == "left"
        self._pads = {name: getattr(tokenizer, attribute, 0) or 0 for name, attribute in _PADDING.items()}
        self._offset = int(module._infer_flatten_position_offset()) if packed else 0

    def window(self, texts: Sequence[str], budget: int) -> Window:
        """Tokenise the distinct texts and plan batches of about `budget` tokens."""
        unique, inverse = distinct(texts)
        if not unique:
            return Window(inverse, [], inverse)
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
        batches = token_batches(lengths, budget, padded=not self.packed, rows=self.rows)
        return Window(lengths, batches, inverse, columns, constants=constants)

    def features(self, window: Window, rows: np.ndarray) -> dict[str, Any]:
        """Return the features of a batch, packed or padded, tensors in CPU memory."""
        make = self._pack if self.packed else self._pad
        return {**make(window, rows), **window.constants}

    def _pad(self, window: Window, rows: np.ndarray) -> dict[str, Any]:
        longest = int(window.lengths[rows].max())
        places = np.arange(longest)
        lengths = window.lengths[rows, None]
        mask = places >= longest - lengths if self._left else places < lengths
        features = {"attention_mask": torch.from_numpy(mask.astype(np.int64))}
        for name, column in window.columns.items():
            array = np.full(mask.shape, self._pads[name], dtype=np.int64)
            array[mask] = window.tokens(column, rows)
            features[name] = torch.from_numpy(array)
        return features

    def _pack(self, window: Window, rows: np.ndarray) -> dict[str, Any]:
        lengths = window.lengths[rows]
        ends = np.cumsum(lengths)
        bounds = torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32))
        positions = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths) + self._offset
        features: dict[str, Any] = {
            name: torch.from_numpy(window.tokens(column, rows)[None])
            for name, column in window.columns.items()
        }
        longest = int(lengths.max())
        return features | {
            "position_ids": torch.from_numpy(positions[None]),
            "cu_seq_lens_q": bounds,
            "cu_seq_lens_k": bounds,
            "max_length_q": longest,
            "max_length_k": longest,
        }


class PlainFrontEnd:
    """Front end for other first modules (static embeddings, chat templates): they preprocess each batch.

    Lengths are counted in characters.
    """

    def __init__(
        self, module: Any, *, prompt: str, task: str | None, max_length: int | None, rows: int | None
    ) -> None:
        self.module, self.prompt, self.task, self.rows = module, prompt, task, rows
        self._limit = {"max_length": max_length} if max_length else {}
        self._lock = threading.Lock()

    def window(self, texts: Sequence[str], budget: int) -> Window:
        """Plan batches of the distinct texts by their number of characters."""
        unique, inverse = distinct(texts)
        lengths = np.array([len(self.prompt) + len(text) + 2 for text in unique], dtype=np.int64)
        return Window(lengths, token_batches(lengths, budget, rows=self.rows), inverse, texts=unique)

    def features(self, window: Window, rows: np.ndarray) -> dict[str, Any]:
        """Let the module preprocess the texts of a batch."""
        texts = [window.texts[row] for row in rows]
        with self._lock:
            inputs: dict[str, Any] = self.module.preprocess(
                texts, prompt=self.prompt or None, task=self.task, **self._limit
            )
        return inputs
