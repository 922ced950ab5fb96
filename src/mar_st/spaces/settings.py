"""Settings of an alignment: `mar align`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mar_st.options import Settings, Switch

__all__ = ["AlignSettings"]

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
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
    student: str | None = Field(
        None, description="Query encoder to train (folder or Hub name); default: a new small one."
    )
    refine: str | None = Field(
        None, description="Labelled triples for contrastive refinement with frozen document vectors."
    )
    store: Path | None = Field(
        None, description="Folder that keeps vectors; default: $MAR_STORE or OUT/../teacher-store."
    )
    dim: int | None = Field(
        None, ge=1, description="Number of leading dimensions of the space to use; default: all."
    )
    epochs: Positive = Field(3.0, description="Number of passes over the texts.")
    batch_size: int = Field(64, ge=2, description="Number of texts per step; it compares them.")
    mini_batch_size: int | None = Field(
        None, ge=1, description="Number of texts encoded at a time (GradCache); default: the whole step."
    )
    learning_rate: Positive | None = Field(
        None,
        description="Learning rate; default: 1e-3; 1e-4 for a given student without --ladder.",
    )
    temperature: Positive = Field(0.1, description="Temperature (tau) of the contrastive loss.")
    length_groups: int = Field(
        0,
        ge=0,
        description="Number of batches whose texts are sorted by length together to save padding; 0: none.",
    )
    contrastive_weight: Weight = Field(1.0, description="Weight of the contrastive loss.")
    mse_weight: Weight = Field(1.0, description="Weight of the squared distance (MSE).")
    cosine_weight: Weight = Field(0.0, description="Weight of the cosine loss (1 - cosine).")
    prompt: str | None = Field(None, description="Prompt put before queries; default: the teacher's.")
    document_prompt: str = Field("", description="Prompt that an endpoint puts before documents.")
    max_length: int = Field(256, ge=8, description="Maximum number of tokens per text of the student.")
    layers: int = Field(4, ge=1, description="Number of layers of a new student.")
    width: int = Field(256, ge=2, description="Hidden size of a new student.")
    vocabulary: int = Field(16_000, ge=32, description="Maximum vocabulary size of a new student.")
    refine_epochs: Positive = Field(1.0, description="Number of passes over the triples.")
    refine_batch_size: int = Field(32, ge=2, description="Number of triples per step of the refinement.")
    refine_learning_rate: Positive | None = Field(
        None, description="Learning rate of the refinement; default: a fifth of --learning-rate."
    )
    refine_temperature: Positive = Field(0.05, description="Temperature (tau) of the refinement.")
    refine_start_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the weights before the refinement in the final ones (WiSE-FT: 0.5).",
    )
    held_out: int = Field(
        200, ge=0, description="Number of queries and of documents held out for the report; a tenth at most."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Dtype that student and teacher compute in; bfloat16 uses autocast."
    )
    seed: int = Field(42, description="Random seed.")
    save_steps: int = Field(200, ge=1, description="Number of steps between checkpoints.")
    query_only: bool = Field(False, description="Leave the teacher's document encoder out of the result.")
    ladder: str | None = Field(
        None, description="Train several query encoders into one folder, e.g. lookup,1,2,4,full."
    )
    ladder_bigrams: int = Field(
        0,
        ge=0,
        description="Maximum number of pairs of adjacent tokens that get vectors of their own in a rung.",
    )
    default_rung: str | None = Field(
        None, description="Rung that becomes the default route 'query'; default: 2, otherwise the largest."
    )
    evaluate: Annotated[tuple[str, ...], Switch("--eval")] = Field(
        (), description="Task folder (Hub layout) to measure the rungs on; may be repeated."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.ladder is None and (self.default_rung or self.evaluate or self.ladder_bigrams):
            raise ValueError("--ladder-bigrams, --default-rung and --eval belong to --ladder")
        if not (self.queries or self.texts):
            raise ValueError("there is nothing to align on: give --queries, --texts, or both")
        if not (self.contrastive_weight or self.mse_weight or self.cosine_weight):
            raise ValueError("all loss weights are zero")
        return self

    @property
    def autocast(self) -> bool:
        """Return True if student and teacher compute in bfloat16."""
        return self.dtype == "bfloat16"
