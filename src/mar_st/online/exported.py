"""An exported query encoder, run without torch."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import numpy as np

from mar_st.online.front import TextPacker
from mar_st.online.listing import LISTING_FILE, Listing
from mar_st.online.protocol import EncoderError, find_prompt
from mar_st.online.runtime import open_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mar_st.online.listing import ExportVariant
    from mar_st.online.runtime import Runtime

_LOG = logging.getLogger(__name__)


def _opened(
    folder: Path, listing: Listing, backend: str, threads: int | None
) -> tuple[ExportVariant, Runtime]:
    """Open the variant of a back end; for `auto`, if it cannot run here, the fastest that can."""
    chosen = listing.choose(backend)
    try:
        return chosen, open_runtime(folder, chosen, threads)
    except EncoderError as error:
        others = [variant for variant in listing.variants.values() if variant != chosen]
        for other in sorted(others, key=lambda variant: variant.report.get("p50_ms", 0)):
            if backend != "auto":
                break
            with suppress(EncoderError):
                runtime = open_runtime(folder, other, threads)
                _LOG.warning("%s is used in place of %s: %s", other.name, chosen.name, error)
                return other, runtime
        raise


class ExportedEncoder:
    """The query encoder of an exported folder.

    Args:
        listing: Listing of the folder.
        variant: The variant to use.
        front: Turns texts into inputs of the graph.
        runtime: Runs the graph.
    """

    def __init__(self, listing: Listing, variant: ExportVariant, front: TextPacker, runtime: Runtime) -> None:
        self.listing, self.variant = listing, variant
        self._front, self._runtime = front, runtime
        self.dim, self.normalised, self.max_length = listing.dim, listing.normalised, listing.max_length
        self.space, self.query, self.origin = listing.space, listing.query, listing.model["identity"]
        self.prompts: Mapping[str, str] = listing.prompts
        self.truncation = listing.truncation
        self.identity = listing.identity(variant)
        self._lock = threading.Lock()  # the runtime has one set of buffers

    @classmethod
    def open(cls, folder: Path, *, backend: str = "auto", threads: int | None = None) -> Self:
        """Load an exported folder.

        If this machine cannot run the variant that was chosen at export, `auto` takes the fastest variant
        that it can run, and warns.

        Args:
            folder: Folder that `mar export` wrote.
            backend: See `load_query_encoder`.
            threads: Threads per call; default all processors of this process.

        Raises:
            EncoderError: The folder is broken, or has no such variant.
            PackageError: The runtime is not installed.
        """
        listing = Listing.read(folder)
        variant, runtime = _opened(folder, listing, backend, threads)
        return cls(listing, variant, TextPacker(folder, listing, variant.table), runtime)

    def encode(self, texts: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Return the vectors of queries, see `QueryEncoder`."""
        prompt = find_prompt(self.prompts, prompt_name)
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        start = 0
        if not len(texts):
            return vectors
        for pack in self._front.packs([prompt + text for text in texts], prompt):
            with self._lock:
                outputs = self._runtime.run(pack.inputs)
                if outputs.ndim != 2 or outputs.shape[1] != self.dim:
                    raise EncoderError(
                        f"{self.variant.name} gives vectors {outputs.shape}, {LISTING_FILE} says {self.dim} "
                        "numbers. Export the encoder again."
                    )
                vectors[start : start + pack.count] = outputs[: pack.count]
            start += pack.count
        return vectors

    def count_tokens(self, texts: Sequence[str], prompt_name: str | None = None) -> list[int]:
        """Return the tokens of each text, see `QueryEncoder`."""
        prompt = find_prompt(self.prompts, prompt_name)
        return self._front.tokenizer.counts([prompt + text for text in texts])

    def warm_up(self, tokens: Sequence[int] = (16, 32)) -> None:
        """Have the runtime prepare some sizes; the first use of a size costs some ten milliseconds."""
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
