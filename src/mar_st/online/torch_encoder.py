"""An encoder computed by sentence-transformers: slow to load, needs no export."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mar_st.model.digest import model_digest, modules_digest, space_of
from mar_st.model.names import model_source
from mar_st.online.protocol import EncoderError, find_prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TorchEncoder:
    """The query side of a sentence-transformers model.

    Args:
        model: The model, in evaluation mode; if it has a router, this needs a route for queries.
        space: Digest of the document space, if known.
        query: Name of the query encoder in its model, if it has one.
        identity: Digest of what encodes queries; default that of the loaded modules.

    Raises:
        EncoderError: The model has no tokenizer.
    """

    def __init__(
        self,
        model: Any,
        *,
        space: str | None = None,
        query: str | None = None,
        identity: str | None = None,
    ) -> None:
        from sentence_transformers.base.modules import Normalize  # lazy: sentence_transformers

        from mar_st.modules.arrangement import route  # lazy: torch

        self.model, self.space, self.query = model, space, query
        self.modules, self._identity = route(model, "query"), identity
        transformer: Any = self.modules[0]
        self._tokenizer: Any = getattr(transformer, "tokenizer", None)
        self._counts: Any = getattr(transformer, "count_tokens", None)  # of encoders without a tokenizer
        if self._tokenizer is None and self._counts is None:
            raise EncoderError(f"The model starts with {type(transformer).__name__}, which has no tokenizer.")
        sized: list[Any] = [part for part in self.modules if hasattr(part, "get_embedding_dimension")]
        self.dim = int(model.truncate_dim or sized[-1].get_embedding_dimension())
        self.normalised = isinstance(self.modules[-1], Normalize) and model.truncate_dim is None
        self.max_length = int(transformer.max_seq_length or 512)
        self.truncation: str | None = getattr(self._tokenizer, "truncation_side", None)
        self.prompts: Mapping[str, str | None] = dict(model.prompts)
        # Tokenizers of transformers set padding and truncation on each call, so threads must not share one.
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        source: str,
        *,
        threads: int | None = None,
        query: str | None = None,
        device: str | None = None,
    ) -> Self:
        """Load a folder or Hub name; of a MAR, only the query route.

        Args:
            source: Folder, a name such as `mar-mini`, or Hub name.
            threads: Threads of torch, for the whole process.
            query: Name of the query encoder, for a MAR with several.
            device: Where to compute; default a GPU if there is one.

        Raises:
            MarError: The model does not exist, or has no such route.
        """
        import torch  # lazy: torch
        from sentence_transformers.base.modules import Router  # lazy: sentence_transformers

        from mar_st.model.loading import has_routes, loading_of  # lazy: torch
        from mar_st.model.mar import open_model  # lazy: torch
        from mar_st.model.native_gte import fetch  # lazy: torch

        if threads is not None:
            torch.set_num_threads(threads)
        source = model_source(source)
        if not Path(source).is_dir() and not has_routes(source):
            source = str(fetch(source))  # as `mar encode` does, so that both know the same space
        with loading_of(source):
            space = space_of(source) if Path(source).is_dir() else None
        name = query or "query"
        model = open_model(source, routes="query", query=query, device=device)
        return cls(
            model,
            space=space,
            query=name if isinstance(model[0], Router) else None,
            identity=model_digest(source, route=name),
        )

    @cached_property
    def identity(self) -> str:
        """Return the digest of what encodes queries."""
        return self._identity or modules_digest(self.modules)

    def encode(self, texts: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Return the vectors of texts, see `QueryEncoder`."""
        prompt = find_prompt(self.prompts, prompt_name)
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        with self._lock:
            vectors = self.model.encode(list(texts), prompt=prompt, task="query", show_progress_bar=False)
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def count_tokens(self, texts: Sequence[str], prompt_name: str | None = None) -> list[int]:
        """Return the tokens of each text, see `QueryEncoder`."""
        if not texts:
            return []
        prompt = find_prompt(self.prompts, prompt_name)
        if self._tokenizer is None:
            counts: list[int] = self._counts(texts)
            return counts
        with self._lock:
            tokenized = self._tokenizer([prompt + text for text in texts], verbose=False)
        return [len(ids) for ids in tokenized["input_ids"]]
