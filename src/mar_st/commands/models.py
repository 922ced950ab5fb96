"""`mar align`, `mine`, `trim`, `info` and `push`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.options import Argument, Settings, say

if TYPE_CHECKING:
    from mar_st.mining.rules import MineSettings
    from mar_st.spaces.settings import AlignSettings


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


def show_mined(manifest: dict[str, Any]) -> str:
    """Return the counts of a mining as lines."""
    counts = manifest["counts"] | manifest["candidates"]
    return "\n".join(f"{number:>10,}  {name}" for name, number in counts.items() if number)


class TrimSettings(Settings):
    """Settings of `mar trim`."""

    source: Annotated[str, Argument()] = Field(description="Encoder: folder or Hub name.")
    out: Annotated[Path, Argument()] = Field(description="Folder to write.")
    keep: int = Field(ge=1, description="Maximum number of tokens to keep, including special tokens.")
    texts: list[str] = Field(
        min_length=1, description="File or folder of texts whose tokens are kept first; may be repeated."
    )
    revision: str | None = Field(None, description="Branch, tag or commit of a model on the Hub.")
    overwrite: bool = Field(False, description="Replace the model in the folder OUT.")


def trim(settings: TrimSettings) -> Any:
    """Reduce a model's vocabulary to the tokens that texts use.

    Vectors of texts that need no other tokens do not change.
    """
    from mar_st.data import Texts  # lazy: pyarrow
    from mar_st.vocabulary import file_texts  # lazy: torch
    from mar_st.vocabulary import trim as run  # lazy: torch

    return run(
        settings.source,
        settings.out,
        keep=settings.keep,
        texts=Texts.joined([file_texts(name) for name in settings.texts]),
        revision=settings.revision,
        overwrite=settings.overwrite,
        show_progress=True,
    )


def show_trimmed(done: Any) -> str:
    """Return the figures in one line."""
    return str(done.line())


class InfoSettings(Settings):
    """Settings of `mar info`."""

    model: Annotated[str, Argument()] = Field(
        description="Folder of a saved MAR, or a packaged name such as mar-mini."
    )


def info(settings: InfoSettings) -> dict[str, Any]:
    """Show the parts of a saved MAR without loading weights."""
    from mar_st.model.describe import describe  # lazy: safetensors

    return describe(settings.model)


def as_json(parts: dict[str, Any]) -> str:
    """Return the parts of a MAR as JSON, which is how they are shown."""
    return json.dumps(parts, ensure_ascii=False, indent=2)


class PushSettings(Settings):
    """Settings of `mar push`."""

    model: Annotated[Path, Argument()] = Field(description="Run folder, or model folder.")
    repository: Annotated[str, Argument()] = Field(description="Repository on the Hub, as ORG/NAME.")
    public: bool = Field(False, description="Make the repository public; default: private.")
    revision: str | None = Field(
        None, description="Branch to upload to; created if it does not exist; default: main."
    )


def push(settings: PushSettings) -> str:
    """Upload a finished model to the Hugging Face Hub."""
    from mar_st.model.hub import push as upload  # lazy: huggingface_hub

    return upload(settings.model, settings.repository, public=settings.public, revision=settings.revision)
