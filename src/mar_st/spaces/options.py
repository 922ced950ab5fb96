"""Options of an alignment to a document space."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mar_st.errors import MarError


@dataclass(frozen=True)
class AlignSettings:
    """Options of `align_space`.

    Attributes:
        dim: Number of the teacher's first dimensions to use; default all.
        epochs: Passes over the texts.
        batch_size: Texts per step.
        mini_batch_size: Texts encoded at a time (GradCache); default all texts of a step.
        learning_rate: Default 1e-3 for a new student and 1e-4 for a given one; for a ladder see `Ladder`.
        temperature: tau of the contrastive part.
        length_groups: Batches that are sorted by length together, which saves padding; 0: none.
        contrastive_weight: Weight of the contrastive part.
        mse_weight: Weight of the squared distance.
        cosine_weight: Weight of 1 - cosine.
        prompt: Prompt for queries, in training and in use; default the teacher's, if it is a model.
        document_prompt: Prompt for documents of an endpoint teacher; a model has its own.
        max_length: Tokens per text of the student.
        layers: Layers of a new student.
        dropout: Train a given student, or a rung made of the teacher's layers, with the dropout of its
            configuration. Default: without, because its targets are fixed vectors, one for each text.
        width: Hidden size of a new student.
        vocabulary: Maximum tokens of a new student's vocabulary.
        held_out: Number of queries, and of documents, held out for the report; at most a tenth of them.
        refine_epochs: Passes over the triples.
        refine_batch_size: Triples per step.
        refine_learning_rate: Default a fifth of `learning_rate`.
        refine_temperature: tau of the refinement.
        refine_start_share: Share of the aligned weights in the refined ones, see `mixed_with_start`.
        refine_negatives: Hard negatives per triple; default 1 if all have some, else 0.
        dtype: Dtype that student and teacher compute in; `bfloat16` uses autocast.
        seed: Seed.
        save_steps: Steps between checkpoints.
        query_only: Leave the teacher's modules out of the result.
    """

    dim: int | None = None
    epochs: float = 3.0
    batch_size: int = 64
    mini_batch_size: int | None = None
    learning_rate: float | None = None
    temperature: float = 0.1
    length_groups: int = 0
    contrastive_weight: float = 1.0
    mse_weight: float = 1.0
    cosine_weight: float = 0.0
    prompt: str | None = None
    document_prompt: str = ""
    max_length: int = 256
    layers: int = 4
    dropout: bool = False
    width: int = 256
    vocabulary: int = 16_000
    held_out: int = 200
    refine_epochs: float = 1.0
    refine_batch_size: int = 32
    refine_learning_rate: float | None = None
    refine_temperature: float = 0.05
    refine_start_share: float = 0.0
    refine_negatives: int | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    seed: int = 42
    save_steps: int = 200
    query_only: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 2 or self.refine_batch_size < 2:
            raise MarError(
                "A step compares texts with each other, so batch_size and refine_batch_size must be at least "
                f"2; got {self.batch_size} and {self.refine_batch_size}."
            )
        if not 0 <= self.refine_start_share < 1:
            raise MarError(
                f"refine_start_share must be at least 0 and below 1; got {self.refine_start_share}."
            )
        if self.dtype not in ("float32", "bfloat16"):
            raise MarError(f"dtype must be float32 or bfloat16; got {self.dtype!r}.")
        if self.learning_rate == 0:
            raise MarError("learning_rate must be above 0; got 0. Leave it out to use the default.")
        # The refinement comes last: its settings are checked before hours of alignment, not after them.
        for name in ("refine_epochs", "refine_temperature", "refine_learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise MarError(f"{name} must be above 0; got {value}.")
        for name in ("held_out", "refine_negatives"):
            number = getattr(self, name)
            if number is not None and number < 0:
                raise MarError(f"{name} must be at least 0; got {number}.")

    @property
    def autocast(self) -> bool:
        """Return True if student and teacher compute in bfloat16."""
        return self.dtype == "bfloat16"

    def to_json(self) -> dict[str, Any]:
        """Return the options that decide the result, under the names that manifests record."""
        content = asdict(self)
        del content["save_steps"]
        if not self.refine_start_share:
            del content["refine_start_share"]  # manifests that were written before the option existed
        content["precision"] = "bf16" if content.pop("dtype") == "bfloat16" else "fp32"
        return content
