"""A query encoder that `mar export` wrote, computed without torch."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import numpy as np

from mar_st.online.front import Front
from mar_st.online.listing import Listing
from mar_st.online.protocol import find_prompt
from mar_st.online.runtimes import open_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mar_st.online.listing import Variant
    from mar_st.online.runtimes import Runtime


class ExportedEncoder:
    """The query encoder of an exported folder.

    Args:
        listing: What the folder holds.
        variant: The form that is used.
        front: Makes inputs of texts.
        runtime: Computes the graph.
    """

    def __init__(self, listing: Listing, variant: Variant, front: Front, runtime: Runtime) -> None:
        self.listing, self.variant = listing, variant
        self._front, self._runtime = front, runtime
        self.dim, self.normalised, self.max_length = listing.dim, listing.normalised, listing.max_length
        self.space = listing.space
        self.prompts: Mapping[str, str] = listing.prompts
        self.identity = listing.identity(variant)
        self._lock = threading.Lock()  # the runtime has one set of buffers

    @classmethod
    def open(cls, folder: Path, *, backend: str = "auto", threads: int | None = None) -> Self:
        """Load an exported folder.

        Args:
            folder: What `mar export` wrote.
            backend: See `load_query_encoder`.
            threads: Threads of a call; default all processors of this process.

        Raises:
            EncoderError: The folder is broken, has no such variant, or the runtime is not installed.
        """
        listing = Listing.read(folder)
        variant = listing.choose(backend)
        front = Front(folder, listing, variant.table)
        return cls(listing, variant, front, open_runtime(folder, variant, threads))

    def encode(self, texts: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Vectors of queries, see `QueryEncoder`."""
        prompt = find_prompt(self.prompts, prompt_name)
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        start = 0
        if not len(texts):
            return vectors
        for pack in self._front.packs([prompt + text for text in texts], prompt):
            with self._lock:
                vectors[start : start + pack.count] = self._runtime.run(pack.inputs)[: pack.count]
            start += pack.count
        return vectors

    def count_tokens(self, texts: Sequence[str], prompt_name: str | None = None) -> list[int]:
        """Tokens of each text, see `QueryEncoder`."""
        prompt = find_prompt(self.prompts, prompt_name)
        return [self._front.tokenizer.count(prompt + text) for text in texts]

    def warm_up(self, tokens: Sequence[int] = (16, 32)) -> None:
        """Have the runtime prepare some sizes; any size costs some ten milliseconds when it first comes."""
        for size in tokens:
            self._run_empty(size)

    def _run_empty(self, size: int) -> None:
        pool = np.zeros(1, dtype=np.int64) if self._front.single else np.zeros((1, size), dtype=np.float32)
        inputs: dict[str, np.ndarray] = {
            "embeddings": np.zeros((size, self._front.table.width), dtype=np.float32),
            "positions": np.full(size, self.listing.positions, dtype=np.int64),
            "segments": np.zeros(size, dtype=np.int32),
            "pool": pool,
        }
        with self._lock:
            self._runtime.run(inputs)
