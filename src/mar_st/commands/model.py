"""`mar info` and `mar push`: show a saved MAR, and upload a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mar_st.options import Argument, Settings


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
