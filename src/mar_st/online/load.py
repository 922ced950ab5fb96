"""Loading a query encoder: exported folders and lookup encoders without torch, others with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.model.names import model_folder
from mar_st.online.exported import ExportedEncoder
from mar_st.online.listing import LISTING_FILE, format_of
from mar_st.online.lookup import LookupListing, NumpyLookupEncoder
from mar_st.online.protocol import EncoderError, encoder_name
from mar_st.online.torch_encoder import TorchEncoder

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.online.protocol import QueryEncoder


def load_query_encoder(
    source: str | Path, *, backend: str = "auto", threads: int | None = None, query: str | None = None
) -> QueryEncoder:
    """Load a query encoder; document weights are never opened.

    Args:
        source: A folder that `mar export` wrote (loaded without torch), any sentence-transformers folder, a
            saved MAR, a Hub name, or `mar-mini`.
        backend: For an exported folder: `auto` (the variant that the export chose, or the fastest one that
            runs on this machine if that one does not), `native`, `onnx` or `openvino` (the chosen or fastest
            variant of that runtime), or the name of a variant such as `openvino-int8`. For a lookup encoder:
            `auto` or `numpy`, and `torch` if it was not exported. For other sources: `auto` or `torch`.
        threads: Threads per call; default all processors of this process.
        query: Name of the query encoder, for a MAR with several; default `query`. An exported folder holds
            only one.

    Raises:
        EncoderError: The variant or back end does not exist, or a package is missing.
        MarError: The model does not exist, has no query side, or is broken.
    """
    folder = model_folder(source)
    if folder is not None and (folder / LISTING_FILE).is_file():
        exported = _exported(folder, backend, threads)
        if query is not None and query != encoder_name(exported):
            name = encoder_name(exported) or "one query encoder"
            raise EncoderError(
                f"{source} is an exported encoder and holds only {name}, "
                f"not {query!r}; export that one with `mar export MODEL OUT --query-encoder {query}`."
            )
        return exported
    if folder is not None and backend in ("auto", "numpy"):
        from mar_st.online.lookup_folder import open_lookup  # lazy: safetensors

        lookup = open_lookup(folder, query)
        if lookup is not None:
            return lookup
    if backend not in ("auto", "torch"):
        raise EncoderError(
            f"{source} is not an exported encoder, so backend={backend!r} cannot load it. Write one with "
            f"`mar export {source} OUT` and give OUT."
        )

    return TorchEncoder.open(str(folder or source), threads=threads, query=query)


def _exported(folder: Path, backend: str, threads: int | None) -> QueryEncoder:
    if format_of(folder) != LookupListing.form:
        return ExportedEncoder.open(folder, backend=backend, threads=threads)
    if backend not in ("auto", "numpy"):
        raise EncoderError(
            f"{folder} is an exported lookup encoder; its backend is 'numpy', not {backend!r}."
        )
    return NumpyLookupEncoder.open(folder)
