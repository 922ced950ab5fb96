"""The offline encoder: many texts to vectors, at full speed.

Unlike a plain loop over batches, it tokenises a window of texts at once, in a thread, while the previous
window is computed. It cuts the window into batches of about equal numbers of tokens, with texts of the same
length together, so there is almost no padding. Equal texts of a window are computed once. On a CPU, each
processor computes its own batch: matrix products of one batch do not split well, and a vector then does not
depend on the number of processors.
"""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
import torch.nn.functional as functional
from sentence_transformers.base.modules import Normalize, Transformer
from torch import nn
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.model.digest import DOCUMENT_PROMPTS
from mar_st.modules.arrangement import route
from mar_st.text.texts import token_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sentence_transformers import SentenceTransformer


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


Role: TypeAlias = Literal["query", "document"]
Item = TypeVar("Item")

#: Tokens of a batch on a GPU.
GPU_TOKENS = 32_768

#: Maximum bytes of activations (the widest layer twice) of a batch on a CPU, so that they stay in cache.
CPU_BYTES = 12 * 2**20

#: Minimum and maximum tokens of a batch on a CPU.
CPU_TOKENS = (512, 16_384)

#: Number of texts in a window if the caller gives no windows.
WINDOW_TEXTS = 8192


class Engine:
    """Encodes texts of one role with a sentence-transformers model.

    Args:
        model: The model, on its device. It is used in evaluation mode and not changed.
        role: Route and stored prompt of the texts; a model without routes uses its one encoder.
        dim: Number of leading dimensions to keep (Matryoshka). Vectors are normalised again if the model's
            have length 1; a model that cuts after normalisation keeps its scale. Default all, or the model's
            `truncate_dim`, which only cuts (as `encode` does).
        prompt: Prefix of every text; default the stored prompt.
        max_length: Maximum number of tokens per text; default the model's.
        tokens: Maximum number of tokens of a batch; default by device and width of the model.
        rows: Maximum number of texts of a batch; default no limit.
        threads: Batches computed at once on a CPU; default torch's number of threads.
        autocast: Compute in bfloat16 where torch considers it safe; weights do not change.

    Attributes:
        dim: Width of the vectors.
        normalised: Whether the vectors have length 1.
        similarity: Similarity function of the model, `cosine` or `dot`.
        prompt: Prefix of every text.
        tokens: Maximum number of tokens of a batch.

    Raises:
        MarError: `dim` exceeds the model's dimensions or `max_length` its positions, or the model has no such
            route.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        role: Role = "document",
        *,
        dim: int | None = None,
        prompt: str | None = None,
        max_length: int | None = None,
        tokens: int | None = None,
        rows: int | None = None,
        threads: int | None = None,
        autocast: bool = False,
    ) -> None:
        self.model, self.role, self.autocast = model, role, autocast
        self._chain: list[Any] = [_full_precision(module) for module in route(model, role)]
        self.prompt = stored_prompt(model.prompts, role) if prompt is None else prompt
        self.max_length = max_length
        self._set_width(dim)
        first = self._chain[0]
        most = _positions(first)
        if max_length is not None and most is not None and max_length > most:
            raise MarError(
                f"The model has positions for {most} tokens; max_length {max_length} exceeds them. Give at "
                f"most {most}, or leave it out."
            )
        self.threads = max(1, threads or torch.get_num_threads()) if self._on_cpu else 1
        self.tokens = tokens or (default_tokens(first) if self._on_cpu else GPU_TOKENS)
        self._front: FrontEnd | None = None
        if isinstance(first, Transformer) and set(first.modality_config) == {"text"} and first.tokenizer:
            self._front = FrontEnd(first, prompt=self.prompt, task=role, max_length=max_length, rows=rows)
        elif max_length is not None:
            raise MarError(f"A {type(first).__name__} takes texts whole; leave out max_length.")

    @property
    def _on_cpu(self) -> bool:
        return bool(self.model.device.type == "cpu")

    def encode(
        self, texts: Sequence[str], *, window: int = WINDOW_TEXTS, show_progress: bool = False
    ) -> np.ndarray:
        """Return vectors of texts, `(len(texts), dim)` float32; sorts `window` texts by length together."""
        spans = ((start, texts[start : start + window]) for start in range(0, len(texts), window))
        all_vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        with tqdm(total=len(texts), desc="encoding", unit="texts", disable=not show_progress) as bar:
            for start, vectors in self.stream(spans):
                all_vectors[start : start + len(vectors)] = vectors
                bar.update(len(vectors))
        return all_vectors

    def stream(self, windows: Iterable[tuple[Item, Sequence[str]]]) -> Iterator[tuple[Item, np.ndarray]]:
        """Yield the vectors of windows of texts, each `(n, dim)` float32, in order.

        The other texts of a window change a vector only by rounding, through its batch. The next window is
        read and tokenised in a thread.

        Args:
            windows: Pairs of any object that identifies a window, and the texts of the window.
        """
        front = self._front
        if front is None:  # such as static embeddings
            for item, texts in windows:
                options: dict[str, Any] = {
                    "truncate_dim": self.dim,
                    "normalize_embeddings": self._renormalise,
                }
                yield item, self.model.encode(list(texts), task=self.role, prompt=self.prompt, **options)
            return

        def prepared() -> Iterator[tuple[Item, Window]]:
            for item, texts in windows:
                yield item, front.window(texts, self.tokens)

        threads: Any = _pool(self.threads, self.autocast) if self._on_cpu else nullcontext()
        with _evaluation(self.model), threads as pool:
            for item, window in _ahead(prepared()):
                yield item, self._compute(front, window, pool)

    def _compute(self, front: FrontEnd, window: Window, pool: ThreadPoolExecutor | None) -> np.ndarray:
        if not len(window.lengths):
            return np.empty((0, self.dim), dtype=np.float32)

        def run(rows: np.ndarray) -> torch.Tensor:
            return self._forward(front.features(window, rows))

        # One context around all batches: weights are cast once, and torch's threads share the casts.
        with torch.autocast(self.model.device.type, torch.bfloat16) if self.autocast else nullcontext():
            # Nothing waits for a GPU before the last batch is submitted.
            parts = list(pool.map(run, window.batches)) if pool else [run(rows) for rows in window.batches]
        places = np.empty(len(window.lengths), dtype=np.int64)
        places[np.concatenate(window.batches)] = np.arange(len(window.lengths))
        vectors: np.ndarray = torch.cat(parts).cpu().numpy()[places[window.inverse]]
        return vectors

    @torch.inference_mode()
    def _forward(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the vectors of a batch, `(n, dim)` float32, on the model's device."""
        device = self.model.device
        if device.type != "cpu":
            cuda = device.type == "cuda"  # nothing waits for the copy of pinned memory
            features = {
                name: (value.pin_memory() if cuda else value).to(device, non_blocking=cuda)
                if torch.is_tensor(value)
                else value
                for name, value in features.items()
            }
        for module in self._chain:
            features = module(features)
            # Only the transformer uses half precision; later modules are cheap, see _full_precision.
            if isinstance(module, Transformer) and not self.autocast:
                features["token_embeddings"] = features["token_embeddings"].float()
        vectors = features["sentence_embedding"][:, : self.dim].float()
        return functional.normalize(vectors, dim=-1) if self._renormalise else vectors

    def _set_width(self, dim: int | None) -> None:
        sized = [module for module in self._chain if hasattr(module, "get_embedding_dimension")]
        full = int(sized[-1].get_embedding_dimension())
        if dim is not None and not 1 <= dim <= full:
            raise MarError(f"The model gives vectors of {full} dimensions; {dim} of them cannot be kept.")
        self.dim = min(dim or self.model.truncate_dim or full, full)
        unit = isinstance(self._chain[-1], Normalize)
        self._renormalise = unit and dim is not None and dim < full
        self.normalised = unit and (self.dim == full or self._renormalise)
        self.similarity = str(self.model.similarity_fn_name)


def _ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Iterate in a thread, one item ahead of the one that is used."""
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1, "ahead") as thread:
        waiting = thread.submit(next, iterator, end)
        while (item := waiting.result()) is not end:
            waiting = thread.submit(next, iterator, end)
            yield item  # type: ignore[misc]


def _full_precision(module: Any) -> Any:
    """Return a transformer unchanged; for a later layer in half precision, return a float32 copy."""
    if isinstance(module, Transformer) or all(p.dtype == torch.float32 for p in module.parameters()):
        return module
    return copy.deepcopy(module).float()


def _positions(module: Any) -> int | None:
    """Return the maximum length that learned position embeddings allow; `None` if the model has none."""
    for part in module.modules():
        table = getattr(part, "position_embeddings", None)
        if isinstance(table, nn.Embedding):
            padding = getattr(part, "padding_idx", None)  # RoBERTa models count from the row after it
            return table.num_embeddings - (padding + 1 if isinstance(padding, int) else 0)
    return None


def stored_prompt(prompts: Mapping[str, str | None], role: Role) -> str:
    """Return the prompt that sentence-transformers' `encode_query` or `encode_document` uses, or no text."""
    names = DOCUMENT_PROMPTS if role == "document" else ("query",)
    return next((prompts[name] for name in names if name in prompts), "") or ""


def default_tokens(module: Any) -> int:
    """Return the number of tokens of a batch on a CPU, by the widest layer of a transformer."""
    config = getattr(getattr(module, "model", None), "config", None)
    hidden = int(getattr(config, "hidden_size", 0) or 768)
    widest = max(int(getattr(config, "intermediate_size", 0) or 4 * hidden), hidden)
    low, high = CPU_TOKENS
    return min(max(CPU_BYTES // (8 * widest) // 64 * 64, low), high)


@contextmanager
def _evaluation(model: SentenceTransformer) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def _pool(threads: int, autocast: bool) -> Iterator[ThreadPoolExecutor]:
    """Provide threads that each compute alone; torch's own number of threads is restored afterwards."""

    def begin() -> None:
        torch.set_num_threads(1)
        if autocast:  # holds for a thread, and ends with it
            torch.set_autocast_dtype("cpu", torch.bfloat16)
            torch.set_autocast_enabled("cpu", True)

    before = torch.get_num_threads()
    with ThreadPoolExecutor(threads, "encode", initializer=begin) as pool:
        try:
            yield pool
        finally:
            torch.set_num_threads(before)
