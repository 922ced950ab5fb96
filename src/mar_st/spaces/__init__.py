"""Existing document spaces, and small query encoders for them.

The vectors of the documents do not change, so an existing index can be used unchanged. A query encoder is
trained to reproduce the teacher's own vectors (LEAF; Stage I of MAR with any teacher).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mar_st.options import Settings, Switch

__all__ = ["AlignSettings"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class AlignSettings(Settings):
    """Settings of `mar align`."""

    teacher: str = Field(
        description="Teacher: a model (folder or Hub name), a folder of vectors, or openai:MODEL@BASE_URL."
    )
    out: Path = Field(description="Folder to write the result to.")
    queries: Path | None = Field(
        None, description="Queries: rows with 'text' or 'query', or a .txt file with one query per line."
    )
    texts: Path | None = Field(
        None,
        description="Documents: rows with 'text' and maybe 'title'; a file, or a folder with corpus.jsonl.",
    )
    pairs: Path | None = Field(
        None,
        description="Labelled pairs ('query', 'positive'): after the alignment each query learns, in two "
        "passes, to find its document among all of these and --texts.",
    )
    student: str | None = Field(
        None, description="Query encoder to train (folder or Hub name); default: a new small one."
    )
    ladder: str | None = Field(
        None, description="Train several query encoders into one folder, e.g. lookup,1,2,4,full."
    )
    default_rung: str | None = Field(
        None, description="Rung that becomes the default route 'query'; default: 2, otherwise the largest."
    )
    evaluate: Annotated[tuple[str, ...], Switch("--eval")] = Field(
        (), description="Task folder (Hub layout) to measure search on; may be repeated."
    )
    dim: int | None = Field(
        None, ge=1, description="Number of leading dimensions of the space to use; default: all."
    )
    epochs: Positive = Field(3.0, description="Number of passes over the texts.")
    batch_size: int = Field(64, ge=2, description="Number of texts per step; it compares them.")
    learning_rate: Positive | None = Field(
        None,
        description="Learning rate of the alignment; default: 1e-3; 1e-4 for a given student "
        "without --ladder.",
    )
    temperature: Positive = Field(0.1, description="Temperature (tau) of the alignment's contrastive loss.")
    prompt: str | None = Field(None, description="Prompt put before queries; default: the teacher's.")
    document_prompt: str = Field("", description="Prompt that an endpoint puts before documents.")
    max_length: int = Field(256, ge=8, description="Maximum number of tokens per text of the student.")
    layers: int = Field(4, ge=1, description="Number of layers of a new student.")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Dtype that student and teacher compute in; bfloat16 uses autocast."
    )
    seed: int = Field(42, description="Random seed.")
    query_only: bool = Field(False, description="Leave the teacher's document encoder out of the result.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.ladder is None and self.default_rung:
            raise ValueError("--default-rung belongs to --ladder")
        if not (self.queries or self.texts):
            raise ValueError("there is nothing to align on: give --queries, --texts, or both")
        return self

    @property
    def autocast(self) -> bool:
        """Return True if student and teacher compute in bfloat16."""
        return self.dtype == "bfloat16"
