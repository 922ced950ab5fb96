"""Schema of the stages of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from mar_st.options import Settings

Side: TypeAlias = Literal["query", "document"]
Precision: TypeAlias = Literal["fp32", "bf16"]

#: Seeds that all libraries take (numpy: 32 bits).
Seed: TypeAlias = Annotated[int, Field(ge=0, le=2**32 - 1)]

#: A later kind builds on what the earlier ones trained; kinds of one rank may follow each other in any order.
STAGE_RANKS = {"retromae": 0, "contrastive": 1, "align": 2, "distill": 2, "joint": 3}

#: Goes before the name of a cross-encoder in `teacher`.
CROSS_ENCODER_PREFIX = "cross-encoder:"


class Strict(Settings):
    """Immutable settings that forbid unknown keys and infinite numbers."""

    model_config = ConfigDict(allow_inf_nan=False)


def _different(dims: tuple[int, ...]) -> tuple[int, ...]:
    if any(dim < 1 for dim in dims) or len(set(dims)) < len(dims):
        raise ValueError(f"dims are different numbers above 0; got {list(dims)}")
    return dims


#: Matryoshka dimensions.
Dims: TypeAlias = Annotated[tuple[int, ...], AfterValidator(_different)]


class _Stage(Strict):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="name of the stage and its folder")
    data: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="names of the data entries to train on; default: all that fit"
    )
    epochs: float = Field(default=1.0, gt=0, description="passes over the data; fractions are allowed")
    max_steps: int | None = Field(default=None, gt=0, description="optimiser steps, instead of epochs")
    batch_size: int = Field(gt=1, description="texts or triples per optimiser step, over all devices")
    mini_batch_size: int | None = Field(
        default=None, gt=0, description="rows encoded at a time by GradCache; same gradients, less memory"
    )
    mini_batch_tokens: int | None = Field(
        default=None,
        ge=16,
        description="tokens, with padding, encoded at a time by GradCache: passes of short texts hold more",
    )
    gradient_accumulation: int = Field(
        default=1, gt=0, description="number of passes per optimiser step; rows are compared within a pass"
    )
    learning_rate: float = Field(gt=0, description="peak learning rate of AdamW")
    schedule: Literal["linear", "cosine", "constant"] = Field(
        default="linear", description="course of the learning rate after the warm-up"
    )
    warmup_ratio: float = Field(
        default=0.05, ge=0, lt=1, description="share of the steps in which the learning rate rises"
    )
    weight_decay: float = Field(default=0.0, ge=0, description="weight decay of AdamW")
    batches: Literal["one-source", "mixed"] = Field(
        default="one-source", description="origin of the rows of a batch: one data entry, or several"
    )
    length_groups: int = Field(
        default=0, ge=0, description="batches sorted by length together, which saves padding; 0: none"
    )
    gradient_checkpointing: bool = Field(
        default=False, description="recomputation of activations in the backward pass: less memory"
    )
    seed: Seed | None = Field(
        default=None,
        description="seed of the stage; default: that of the recipe. All seeds of a study share a stage that "
        "has its own",
    )

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if (self.mini_batch_size or 0) > self.batch_size:
            raise ValueError(f"stage {self.name}: mini_batch_size exceeds batch_size")
        if self.batch_size % self.gradient_accumulation:
            raise ValueError(f"stage {self.name}: batch_size is not a multiple of gradient_accumulation")
        return self


class RetroMAEStage(_Stage):
    """RetroMAE v1 with enhanced decoding on unlabelled texts (every text of the data it is given)."""

    stage: Literal["retromae"] = Field(description="type of the stage, which decides its other fields")
    side: Literal["query"] = Field(default="query", description="encoder that is pre-trained")
    encoder_mask: float = Field(default=0.3, gt=0, lt=1, description="share of words the encoder predicts")
    decoder_mask: float = Field(
        default=0.5, gt=0, lt=1, description="share of the tokens that each row of the decoder does not see"
    )

    @model_validator(mode="after")
    def _one_split(self) -> Self:
        if self.mini_batch_size is not None or self.mini_batch_tokens is not None:
            raise ValueError(
                "GradCache (mini_batch_size, mini_batch_tokens) is for stages that compare texts; give "
                "gradient_accumulation"
            )
        return self


class _TokenDropout(Strict):
    token_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="share of a text's tokens that are hidden, drawn again each time"
    )


class _Contrastive(_Stage, _TokenDropout):
    temperature: float = Field(gt=0, description="divisor of the scores before the softmax")
    negatives: int | None = Field(
        default=None, ge=0, description="hard negatives per row, in place of the number in the data entries"
    )
    false_negative_margin: float | None = Field(
        default=None,
        ge=0,
        description="margin by which a document may beat the row's positive; others are left out",
    )


class _Tuning(Strict):
    lora_r: int | None = Field(
        default=None, gt=0, description="rank of the LoRA adapter; without it all weights are trained"
    )
    lora_alpha: int = Field(default=64, gt=0, description="scale of the LoRA adapter, divided by its rank")
    lora_dropout: float = Field(default=0.1, ge=0, lt=1, description="dropout before the LoRA adapter")
    start_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the stage's initial weights in its final ones (WiSE-FT: 0.5)",
    )
    both_directions: bool = Field(
        default=False, description="contrastive loss that also ranks the queries for each document"
    )
    dims: Dims = Field(default=(), description="Matryoshka dimensions; empty: only the full width")


class Mining(Strict):
    """Hard negatives that the stage's encoder mines before the first step; filters as in `mar mine`.

    Ranks count from 1, over the documents of a data entry that are not a known positive of the query.
    """

    range_max: int = Field(default=100, gt=0, description="last rank of a candidate")
    relative_margin: float | None = Field(
        default=None,
        description="share of the positive's score by which a candidate scores below it, at least; 0.05 is "
        "NV-Retriever's TopK-PercPos 95 %",
    )


class ContrastiveStage(_Contrastive, _Tuning):
    """Independent initialisation: one encoder, symmetric, InfoNCE, optionally over Matryoshka dimensions."""

    stage: Literal["contrastive"] = Field(description="type of the stage, which decides its other fields")
    side: Side = Field(description="encoder that is trained: query or document")
    learnable_temperature: bool = Field(
        default=False, description="training of the temperature together with the weights"
    )
    mine: Mining | None = Field(
        default=None,
        description="mining of 'negatives' hard negatives per query, by the encoder as it enters the stage",
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.learnable_temperature and not 0.001 <= self.temperature <= 1:
            raise ValueError(f"a learnable temperature starts from 0.001 to 1; got {self.temperature}")
        if self.mine is None:
            return self
        if not self.negatives or self.mine.range_max < self.negatives:
            raise ValueError(
                "mine chooses 'negatives' hard negatives per query of the ranks up to range_max; got "
                f"{self.negatives} of {self.mine.range_max}"
            )
        return self


class AlignStage(_Stage, _TokenDropout):
    """Stage I: query encoder towards the frozen document encoder, every text paired with itself."""

    stage: Literal["align"] = Field(description="type of the stage, which decides its other fields")
    temperature: float = Field(default=0.1, gt=0, description="temperature of the contrastive loss")
    contrastive_weight: float = Field(default=1.0, ge=0, description="weight of Asym-InfoNCE")
    mse_weight: float = Field(
        default=1.0, ge=0, description="weight of the squared distance to the document encoder's vector"
    )
    cosine_weight: float = Field(default=0.0, ge=0, description="weight of the loss 1 - cosine (ScalingNote)")
    kl_weight: float = Field(
        default=0.0, ge=0, description="weight of the KL divergence over embedding dimensions (KALE)"
    )
    kl_temperature: float = Field(default=1.0, gt=0, description="temperature of that KL divergence")
    vectors: Literal["normalised", "raw"] = Field(
        default="normalised",
        description="vectors that the losses compare: 'normalised', those of the shared space (MAR, LEAF); "
        "'raw', those before the normalisation (KALE, ScalingNote)",
    )
    text_weights: tuple[float, ...] = Field(
        default=(1.0,),
        min_length=1,
        max_length=2,
        description="weight of the losses of a text, and of a second, unrelated one that is drawn beside it "
        "from the documents (KALE: 0.6 and 0.2)",
    )
    texts: Literal["all", "queries", "documents"] = Field(
        default="all", description="texts of pairs and triples that are aligned"
    )
    teacher_prompt: Literal["query", "document"] = Field(
        default="query",
        description="prompt of a query for the document encoder: 'query', the prompt of its data "
        "entry, which the encoder was initialised with; 'document', the prompt of documents, or none",
    )

    @model_validator(mode="after")
    def _some_loss(self) -> Self:
        if not self.contrastive_weight + self.mse_weight + self.cosine_weight + self.kl_weight:
            raise ValueError("all loss weights are zero; give at least one")
        if self.vectors == "raw" and self.contrastive_weight:
            raise ValueError(
                "vectors: raw has no scores to contrast; set contrastive_weight: 0, or vectors: normalised"
            )
        if min(self.text_weights) <= 0:
            raise ValueError("text_weights must be positive; one weight leaves the second text out")
        return self


class _Taught(Strict):
    """A stage that learns the scores of a teacher."""

    teacher: str = Field(
        default="document",
        description="model whose scores are learned: 'document', the document encoder as trained so far; "
        "else a folder or Hub name; 'cross-encoder:NAME' scores each query with its own documents",
    )
    kl_scope: Literal["group", "batch"] | None = Field(
        default=None,
        description="documents that the KL divergence compares for a query: 'group', its own positive and "
        "hard negatives (RocketQAv2, FlagEmbedding); 'batch', those of all queries. Default: 'group', or "
        "'batch' where some data have no hard negatives",
    )
    contrastive_weight: float = Field(default=1.0, ge=0, description="weight of InfoNCE on the labels")

    @property
    def cross_encoder(self) -> str | None:
        """Return the folder or Hub name of the cross-encoder that teaches, if there is one."""
        is_one = self.teacher.startswith(CROSS_ENCODER_PREFIX)
        return self.teacher.removeprefix(CROSS_ENCODER_PREFIX) if is_one else None

    @property
    def teacher_source(self) -> str | None:
        """Return the folder or Hub name of the teacher; `None` if it is a side of the recipe."""
        own = self.teacher in ("query", "document")
        return None if own else self.teacher.removeprefix(CROSS_ENCODER_PREFIX)

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if self.cross_encoder is not None and self.kl_scope == "batch":
            raise ValueError("a cross-encoder scores each query with its own documents; use kl_scope: group")
        return self


class DistillStage(_Contrastive, _Taught):
    """A symmetric student learns the scores of a teacher: KL + InfoNCE (RocketQAv2)."""

    stage: Literal["distill"] = Field(description="type of the stage, which decides its other fields")
    side: Side = Field(default="query", description="encoder that learns")
    kl_weight: float = Field(
        default=1.0, gt=0, description="weight of the KL divergence from the teacher's scores"
    )


class JointStage(_Contrastive, _Tuning, _Taught):
    """Stage II: both encoders on labelled triples; the document side through LoRA if `lora_r` is given.

    With `kl_weight` they also learn the scores of a teacher: of the document encoder at the start of the
    stage, at its full width, unless `teacher` names another.
    """

    stage: Literal["joint"] = Field(description="type of the stage, which decides its other fields")
    kl_weight: float = Field(
        default=0.0, ge=0, description="weight of the KL divergence from the teacher's scores; 0: no teacher"
    )
    freeze: Side | None = Field(default=None, description="side that is not trained")
    document_learning_rate: float | None = Field(
        default=None, gt=0, description="peak learning rate of the document encoder; default: learning_rate"
    )

    @model_validator(mode="after")
    def _frozen(self) -> Self:
        if self.freeze == "document" and (self.lora_r is not None or self.document_learning_rate is not None):
            raise ValueError("the documents are frozen; leave out lora_r and document_learning_rate")
        if self.teacher == "query":
            raise ValueError("teacher: the query encoder is the student; name 'document' or a model")
        if not self.kl_weight + self.contrastive_weight:
            raise ValueError("kl_weight and contrastive_weight are both zero; give at least one")
        return self


Stage: TypeAlias = Annotated[
    RetroMAEStage | ContrastiveStage | AlignStage | DistillStage | JointStage, Field(discriminator="stage")
]
