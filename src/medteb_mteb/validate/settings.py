"""Options of `medteb validate`, without the libraries that it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from mar_st.options import Argument, Settings, Switch

__all__ = ["BASELINES", "ValidateSettings"]

#: Lexical baselines that are run here.
BASELINES = ("bm25-char-bigram", "bm25-jieba")


class ValidateSettings(Settings):
    """Options of `medteb validate`."""

    edition: Annotated[str, Argument()] = Field(
        description="Task name, or retrieval or reranking folder in the Hub layout."
    )
    runs: Annotated[tuple[str, ...], Switch("--run")] = Field(
        BASELINES[:1],
        description="Run (TREC, JSON, mteb's predictions), bm25-char-bigram or bm25-jieba; may be repeated.",
    )
    build: Path | None = Field(
        None, description="Folder of the build that made the edition, with pools, judgements, training sets."
    )
    pools: Path | None = Field(None, description="Pools of 'medteb pool'; default: those of the build.")
    judgements: Path | None = Field(
        None, description="Judgements of 'medteb judge'; default: those of the build."
    )
    second: Path | None = Field(None, description="Judgements of the same judges, asked a second time.")
    review: Path | None = Field(None, description="Folder of 'medteb review' with answers of experts.")
    against: tuple[str, ...] = Field(
        (), description="Training set that must not contain test queries; may be repeated."
    )
    split: str = Field("test", description="Split to validate.")
