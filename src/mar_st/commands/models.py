"""`mar align`, `mine`, `trim` and `info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.commands.index import index_info
from mar_st.options import Argument, Settings, say

if TYPE_CHECKING:
    from mar_st.mining.rules import MineSettings
    from mar_st.spaces import AlignSettings


def align(settings: AlignSettings) -> dict[str, Any]:
    """Train small query encoders for an existing document space.

    The stored document vectors do not change. An interrupted run resumes where it stopped.
    """
    from mar_st.spaces.alignment import align as run  # lazy: torch

    return run(settings, say)


def mine(settings: MineSettings) -> dict[str, Any]:
    """Mine hard negatives for training pairs.

    Vectors are kept, so an interrupted run resumes.
    """
    from mar_st.mining.miner import mine_to  # lazy: torch

    return mine_to(settings, say)


class TrimSettings(Settings):
    """Settings of `mar trim`."""

    source: Annotated[str, Argument()] = Field(description="Encoder: folder or Hub name.")
    out: Annotated[Path, Argument()] = Field(description="Folder to write.")
    keep: int = Field(ge=1, description="Maximum number of tokens to keep, including special tokens.")
    texts: list[str] = Field(
        min_length=1, description="File or folder of texts whose tokens are kept first; may be repeated."
    )


def trim(settings: TrimSettings) -> Any:
    """Reduce a model's vocabulary to the tokens that texts use.

    Vectors of texts that need no other tokens do not change.
    """
    from mar_st.data.sequences import Texts  # lazy: pyarrow
    from mar_st.vocabulary.trim import file_texts  # lazy: torch
    from mar_st.vocabulary.trim import trim as run  # lazy: torch

    return run(
        settings.source,
        settings.out,
        keep=settings.keep,
        texts=Texts.joined([file_texts(name) for name in settings.texts]),
    )


class InfoSettings(Settings):
    """Settings of `mar info`."""

    path: Annotated[str, Argument()] = Field(
        description="Folder of a model, of vectors or an index; a name such as mar-mini; a milvus: address."
    )


def info(settings: InfoSettings) -> dict[str, Any]:
    """Show what a model, a folder of vectors or an index contains, without loading weights."""
    from mar_st.encode.folder import VectorFolder  # lazy: numpy
    from mar_st.files import read_record  # lazy: numpy
    from mar_st.model.describe import describe  # lazy: safetensors

    path = settings.path
    kind = (read_record(Path(path) / "manifest.json") or {}).get("format")
    if path.startswith("milvus:") or kind == "mar-index":
        return index_info(path)
    if kind == "mar-vectors":
        manifest = VectorFolder.open(path).manifest
        return {name: manifest[name] for name in ("count", "model", "space", "settings", "corpus")}
    return describe(path)
