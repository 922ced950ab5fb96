"""Loading a query encoder: exported folders (native, ONNX, OpenVINO) and lookup encoders without torch."""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from mar_st.errors import MarError
from mar_st.files import load_package, one_line
from mar_st.kernels.build import processors
from mar_st.model.names import model_folder
from mar_st.online.front import TextPacker
from mar_st.online.listing import LISTING_FILE, ExportVariant, Listing
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.online.native import NativeRuntime
from mar_st.online.protocol import EncoderError, QueryEncoder, find_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


#: Computes a pack: from the graph's inputs by name to vectors, float32 `(texts or more, dim)`, valid until
#: the next call; one call at a time.
Run: TypeAlias = "Callable[[dict[str, np.ndarray]], np.ndarray]"


def optional(name: str, extra: str = "online") -> Any:
    """Import a package that an extra of this distribution installs.

    OpenVINO's packages send telemetry as soon as they are imported, unless the telemetry package cannot be
    imported. A process that sees medical queries must not send any.

    Raises:
        MarError: The package is not installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return load_package(name, extra=extra)


def _onnx(path: Path, precision: str, threads: int) -> Run:
    """Open a graph in ONNX Runtime; its external weights are mapped into memory."""
    del precision
    ort = optional("onnxruntime")
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)[0]


@cache
def _core() -> Any:
    """Return OpenVINO's core, one per process.

    OpenVINO 2026.4 gives the thread that creates a core a stack for signal handlers. When the second of two
    cores is deleted, the thread gets back the stack of the first, which has been freed: the next signal
    kills the process.
    """
    return optional("openvino").Core()


def _openvino(path: Path, precision: str, threads: int) -> Run:
    """Open a graph in OpenVINO; its weights are mapped into memory.

    With int8, 128 columns of a weight matrix share the scale of their activations.
    """
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(threads),
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_MMAP": "YES",
    }
    if precision == "int8":
        settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "128"
    request = _core().compile_model(str(path), "CPU", settings).create_infer_request()
    return lambda inputs: request.infer(inputs, share_inputs=True, share_outputs=True)[0]


def _native(path: Path, precision: str, threads: int) -> Run:
    del precision
    return NativeRuntime(path, threads).run


_RUNTIMES = {"native": _native, "onnx": _onnx, "openvino": _openvino}


def open_runtime(folder: Path, variant: ExportVariant, threads: int | None) -> Run:
    """Load the graph of a variant.

    Raises:
        EncoderError: The runtime is not known, or cannot load the graph.
        MarError: The runtime is not installed.
    """
    if variant.runtime not in _RUNTIMES:
        raise EncoderError(f"{variant.graph} is for {variant.runtime!r}; known are {', '.join(_RUNTIMES)}.")
    path = folder / variant.graph
    try:
        return _RUNTIMES[variant.runtime](path, variant.precision, threads or processors())
    except MarError:
        raise
    except Exception as error:  # the runtimes have exceptions of their own for damaged and unsupported graphs
        raise EncoderError(
            f"{variant.runtime} cannot load {path} ({type(error).__name__}: {one_line(error)}). Export the "
            "encoder again, or choose another variant."
        ) from error


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
        run: Runs the graph.
    """

    def __init__(self, listing: Listing, variant: ExportVariant, front: TextPacker, run: Run) -> None:
        self.listing, self.variant = listing, variant
        self._front, self._run = front, run
        self.dim, self.normalised, self.max_length = listing.dim, listing.normalised, listing.max_length
        self.space, self.query, self.origin = listing.space, listing.query, listing.model["identity"]
        self.prompts: Mapping[str, str | None] = listing.prompts
        self.truncation = listing.truncation
        self.identity = listing.identity(variant)
        self._lock = threading.Lock()  # a runtime has one set of buffers

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
        variant, run = _opened(folder, listing, backend, threads)
        return cls(listing, variant, TextPacker(folder, listing), run)

    def encode(self, texts: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Return the vectors of queries, see `QueryEncoder`."""
        prompt = find_prompt(self.prompts, prompt_name)
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        start = 0
        if not len(texts):
            return vectors
        for pack in self._front.packs([prompt + text for text in texts]):
            with self._lock:
                outputs = self._run(pack.inputs)
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


def _opened(folder: Path, listing: Listing, backend: str, threads: int | None) -> tuple[ExportVariant, Run]:
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
                run = open_runtime(folder, other, threads)
                _LOG.warning("%s is used in place of %s: %s", other.name, chosen.name, error)
                return other, run
        raise
