"""Loading a query encoder: an exported folder without torch, anything else through sentence-transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.names import model_folder
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.online.protocol import QueryEncoder

#: The file that makes a folder an exported encoder.
LISTING = "export.json"


def load_query_encoder(
    source: str | Path, *, backend: str = "auto", threads: int | None = None, query: str | None = None
) -> QueryEncoder:
    """Load what encodes queries; document weights are never opened.

    Args:
        source: A folder that `mar export` wrote (loaded without torch), any sentence-transformers folder, a
            saved MAR, a Hub name, or `mar-mini`.
        backend: Of an exported folder `auto` (the variant that the export chose, or where this machine cannot
            run it the fastest that it can), `native`, `onnx` or `openvino` (the chosen or fastest of that
            runtime) or the name of a variant such as `openvino-int8`; of an exported lookup encoder `auto` or
            `numpy`; of other sources `auto` or `torch`.
        threads: Threads that one call computes with; default all processors of this process.
        query: Which query encoder of a MAR that holds several; default `query`.

    Raises:
        EncoderError: There is no such variant or back end, or a package is missing.
        MarError: There is no such model, or one without a query side, or a broken one.
    """
    folder = model_folder(source)
    if folder is not None and (folder / LISTING).is_file():
        from mar_st.online.exported import ExportedEncoder
        from mar_st.online.listing import format_of
        from mar_st.online.lookup import FORMAT, NumpyLookupEncoder

        if query is not None:
            raise EncoderError(
                f"{source} is an exported encoder and holds one query encoder; query={query!r} is chosen "
                "when it is exported."
            )
        if format_of(folder) == FORMAT:
            if backend not in ("auto", "numpy"):
                raise EncoderError(
                    f"{source} is an exported lookup encoder; its backend is 'numpy', not {backend!r}."
                )
            return NumpyLookupEncoder.open(folder)
        return ExportedEncoder.open(folder, backend=backend, threads=threads)
    if backend not in ("auto", "torch"):
        raise EncoderError(
            f"{source} is not an exported encoder, so backend={backend!r} cannot load it. Write one with "
            f"`mar export {source} OUT` and give OUT."
        )
    from mar_st.online.torch_encoder import TorchEncoder

    return TorchEncoder.open(str(folder or source), threads=threads, query=query)
