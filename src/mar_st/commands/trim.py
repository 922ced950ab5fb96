"""`mar trim`: cut the vocabulary of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mar_st.options import Argument, Settings


class TrimSettings(Settings):
    """Settings of `mar trim`."""

    source: Annotated[str, Argument()] = Field(description="Encoder or MAR: folder or Hub name.")
    out: Annotated[Path, Argument()] = Field(description="Folder to write.")
    keep: int = Field(ge=1, description="Maximum number of tokens to keep, including special tokens.")
    texts: list[str] = Field(
        min_length=1, description="File or folder of texts whose tokens are kept first; may be repeated."
    )
    route: list[str] = Field(
        [], description="Encoder of a MAR to trim; may be repeated; default: all with larger vocabularies."
    )
    revision: str | None = Field(None, description="Branch, tag or commit of a model on the Hub.")
    overwrite: bool = Field(False, description="Replace the model in the folder OUT.")


def trim(settings: TrimSettings) -> list[Any]:
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
        routes=settings.route,
        revision=settings.revision,
        overwrite=settings.overwrite,
        show_progress=True,
    )


def as_text(parts: list[Any]) -> str:
    """Return one line for each encoder."""
    return "\n".join(f"{part.folder or 'the encoder'}: {part.line()}" for part in parts)
