"""Loading a query encoder: an exported folder without torch, anything else through sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from mar_st.online.protocol import QueryEncoder

#: Names of the packaged model; never asked of the Hub, where anyone could take them.
PACKAGED = ("mar-mini", "medteb/mar-mini")

#: The file that makes a folder an exported encoder.
LISTING = "export.json"


def model_folder(source: str | Path) -> Path | None:
    """The folder of a model on this machine: the one given, or that of the packaged `mar-mini`.

    A folder in the working directory wins over the packaged model of the same name.

    Returns:
        The folder; `None` for what can only be a Hub name.

    Raises:
        EncoderError: A path to a folder that is not there.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if str(source) in PACKAGED:
        return Path(__file__).parents[1] / "models" / "mar-mini"
    name = str(source)
    if isinstance(source, Path) or folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise EncoderError(
            f"There is no folder {source}. Give the folder of a model, a Hub name or mar-mini."
        )
    return None


def load_query_encoder(
    source: str | Path, *, backend: str = "auto", threads: int | None = None, query: str | None = None
) -> QueryEncoder:
    """Load what encodes queries; document weights are never opened.

    Args:
        source: A folder that `mar export` wrote (loaded without torch), any sentence-transformers folder, a
            saved MAR, a Hub name, or `mar-mini`.
        backend: Of an exported folder `auto` (the variant that the export chose, or where this machine cannot
            run it the fastest that it can), `native`, `onnx` or `openvino` (the chosen or fastest of that
            runtime) or the name of a variant such as `openvino-int8`; of other sources `auto` or `torch`.
        threads: Threads that one call computes with; default all processors of this process.
        query: Which query encoder of a MAR that holds several; default `query`.

    Raises:
        EncoderError: There is no such model, variant or back end, or a package is missing.
        MarError: The folder holds a model without a query side, or a broken one.
    """
    folder = model_folder(source)
    if folder is not None and (folder / LISTING).is_file():
        from mar_st.online.exported import ExportedEncoder

        if query is not None:
            raise EncoderError(
                f"{source} is an exported encoder and holds one query encoder; query={query!r} is chosen "
                "when it is exported."
            )
        return ExportedEncoder.open(folder, backend=backend, threads=threads)
    if backend not in ("auto", "torch"):
        raise EncoderError(
            f"{source} is not an exported encoder, so backend={backend!r} cannot load it. Write one with "
            f"`mar export {source} OUT` and give OUT."
        )
    from mar_st.online.torch_encoder import TorchEncoder

    return TorchEncoder.open(str(folder or source), threads=threads, query=query)
