"""Loading a query encoder: exported folders and lookup encoders without torch, others with it."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import numpy as np

from mar_st.model.names import model_folder
from mar_st.online.front import TextPacker
from mar_st.online.listing import LISTING_FILE, Listing
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.online.protocol import EncoderError, find_prompt
from mar_st.online.runtimes import open_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mar_st.online.listing import ExportVariant
    from mar_st.online.protocol import QueryEncoder
    from mar_st.online.runtimes import Runtime

_LOG = logging.getLogger(__name__)


def load_query_encoder(
    source: str | Path, *, backend: str = "auto", threads: int | None = None, query: str | None = None
) -> QueryEncoder:
    """Load a query encoder; document weights are never opened.

    Args:
        source: A folder that `mar export` wrote (loaded without torch), any sentence-transformers folder, a
            saved MAR, a Hub name, or `mar-mini`.
        backend: `auto`; or for an exported folder the name of a variant such as `openvino-int8` (`auto`: the
            one that the export chose, or the fastest one that runs on this machine if that one does not);
            for others `torch` (`auto`: numpy for lookup encoders).
        threads: Threads per call; default all processors of this process.
        query: Name of the query encoder, for a MAR with several; default `query`. An exported folder holds
            only one.

    Raises:
        EncoderError: The variant or back end does not exist, or a package is missing.
        MarError: The model does not exist, has no query side, or is broken.
    """
    folder = model_folder(source)
    if folder is not None and (folder / LISTING_FILE).is_file():
        exported = ExportedEncoder.open(folder, backend=backend, threads=threads)
        if query is not None and query != exported.query:
            raise EncoderError(
                f"{source} is an exported encoder and holds only {exported.query or 'one'}, not {query!r}; "
                f"export that one with `mar export MODEL OUT --query-encoder {query}`."
            )
        return exported
    if folder is not None and backend == "auto":
        saved = NumpyLookupEncoder.open(folder, query)
        if saved is not None:
            return saved
    if backend not in ("auto", "torch"):
        raise EncoderError(
            f"{source} is not an exported encoder, so backend={backend!r} cannot load it. Write one with "
            f"`mar export {source} OUT` and give OUT."
        )
    from mar_st.online.torch_encoder import TorchEncoder  # lazy: torch

    return TorchEncoder.open(str(folder or source), threads=threads, query=query)


class ExportedEncoder:
    """The query encoder of an exported folder, run without torch.

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
        self.prompts: Mapping[str, str | None] = listing.prompts
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
            MarError: The runtime is not installed.
        """
        listing = Listing.read(folder)
        variant, runtime = _opened(folder, listing, backend, threads)
        return cls(listing, variant, TextPacker(folder, listing), runtime)

    def encode(self, texts: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Return the vectors of queries, see `QueryEncoder`."""
        prompt = find_prompt(self.prompts, prompt_name)
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        start = 0
        if not len(texts):
            return vectors
        for pack in self._front.packs([prompt + text for text in texts]):
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


def _opened(
    folder: Path, listing: Listing, backend: str, threads: int | None
) -> tuple[ExportVariant, Runtime]:
    """Open the variant of a back end; for `auto`, if it cannot run here, the fastest that can."""
    chosen = listing.choose(backend)
    try:
        return chosen, open_runtime(folder, chosen, threads)
    except EncoderError as error:
        others = [variant for variant in listing.variants.values() if variant != chosen]
        if backend != "auto":
            raise
        for other in sorted(others, key=lambda variant: variant.milliseconds):
            with suppress(EncoderError):
                runtime = open_runtime(folder, other, threads)
                _LOG.warning("%s is used in place of %s: %s", other.name, chosen.name, error)
                return other, runtime
        raise
