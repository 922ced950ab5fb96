"""Validation of a retrieval edition as a reviewer would do it: a verdict, number and reason per point."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from mar_st.options import Argument, Settings, Switch

__all__ = ["ValidateSettings"]


class ValidateSettings(Settings):
    """Options of `medteb validate`."""

    edition: Annotated[str, Argument()] = Field(
        description="Task name, or retrieval or reranking folder in the Hub layout."
    )
    runs: Annotated[tuple[str, ...], Switch("--run")] = Field(
        ("bm25-char-bigram",),
        description="Run (TREC, JSON, mteb's predictions), bm25-char-bigram or bm25-jieba; may be repeated.",
    )
    build: Path | None = Field(
        None, description="Folder of the build that made the edition, with pools, judgements, training sets."
    )
    review: Path | None = Field(None, description="Folder of 'medteb review' with answers of experts.")
    against: tuple[str, ...] = Field(
        (), description="Training set that must not contain test queries; may be repeated."
    )
