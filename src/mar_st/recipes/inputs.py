"""Inputs of a recipe: backbones, data, a development set."""

from __future__ import annotations

from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

Side: TypeAlias = Literal["query", "document"]
Attention: TypeAlias = Literal["eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]


class Strict(BaseModel):
    """Immutable settings that forbid unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TokenizerConfig(Strict):
    """A tokenizer trained on the texts of the recipe: byte-pair encoding that starts from characters."""

    vocab_size: int = Field(gt=16, description="pieces, special tokens included")
    max_token_length: int = Field(
        default=4, ge=1, description="characters per token at most; 1 is character-level"
    )


class VocabularyCut(Strict):
    """The pieces of a `source`'s vocabulary that are kept."""

    keep: int = Field(gt=0, description="pieces at most, special tokens included")
    texts: tuple[str, ...] = Field(
        min_length=1, description="data entries, or files of texts, whose pieces are kept first"
    )


class Backbone(Strict):
    """One encoder: pre-trained (`source`), random (`config` and `tokenizer`), or layers of the other side."""

    source: str | None = Field(default=None, description="folder or Hub name")
    revision: str | None = Field(default=None, description="commit, tag or branch of a Hub name")
    vocabulary: VocabularyCut | None = Field(
        default=None, description="cut the vocabulary of the source before anything is trained"
    )
    config: dict[str, Any] | None = Field(
        default=None, description="of an encoder with random weights: model_type, hidden_size, ..."
    )
    tokenizer: TokenizerConfig | None = Field(default=None, description="a tokenizer that is trained for it")
    tokenizer_data: tuple[str, ...] | None = Field(
        default=None, description="data entries whose texts the tokenizer is trained on; default: all"
    )
    layers_of_document: tuple[int, ...] | None = Field(
        default=None, description="a copy of the document encoder that keeps these layers (KALE, Wang & Lyu)"
    )
    context_means: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="with 'layers_of_document': data entries over whose queries the hidden states of each "
        "token are averaged; the means become the token embeddings",
    )
    bigrams: int | None = Field(
        default=None,
        ge=1,
        description="with 'context_means': maximum number of pairs of adjacent tokens that get vectors of "
        "their own, averaged over the same texts",
    )
    pooling: Literal["cls", "lasttoken", "mean"] | None = Field(
        default=None,
        description="default: that of a sentence-transformers 'source', else cls for queries, lasttoken for "
        "documents",
    )
    projection: int | None = Field(
        default=None,
        gt=0,
        description="width of a linear layer after pooling (HotelMatch, LEAF); MAR has none",
    )
    max_length: int = Field(default=512, ge=8, description="tokens per text; longer texts are cut")
    dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="probability of every dropout of the encoder while it trains; default: as it is stored. "
        "0 suits encoders that learn fixed vectors, and saves a CPU a quarter of the time",
    )
    dtype: Literal["float32", "float16", "bfloat16"] | None = Field(
        default=None,
        description="dtype of the weights while they are frozen or carry LoRA; default: as stored. "
        "Weights that are trained themselves are float32",
    )
    attn_implementation: Attention | None = Field(
        default=None, description="of transformers; default: its own choice (sdpa where the model has it)"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        origins = [self.source, self.config, self.layers_of_document]
        if sum(origin is not None for origin in origins) != 1:
            raise ValueError(
                "give one of 'source' (folder or Hub name), 'config' (random weights) and "
                "'layers_of_document' (layers of the other side)"
            )
        if (self.config is None) != (self.tokenizer is None):
            raise ValueError("'tokenizer' goes with 'config'; a 'source' brings its own")
        if self.tokenizer_data is not None and self.tokenizer is None:
            raise ValueError("'tokenizer_data' goes with 'tokenizer'")
        if self.context_means is not None and not (self.layers_of_document or (0,))[0]:
            raise ValueError(
                "'context_means' replace the embeddings below 'layers_of_document', whose first layer must "
                "be 1 or higher"
            )
        if self.bigrams is not None and self.context_means is None:
            raise ValueError(
                "'bigrams' are averaged over the texts of 'context_means'; name its data entries"
            )
        if self.vocabulary is not None and self.source is None:
            raise ValueError("'vocabulary' cuts that of a 'source'; give it there")
        if self.config is not None and "model_type" not in self.config:
            raise ValueError("'config' needs 'model_type', for instance gte or qwen3")
        return self

    @property
    def width(self) -> int | None:
        """Return the width of its vectors, if the recipe sets it; `None` for a `source`."""
        return self.projection or (self.config or {}).get("hidden_size")


class Data(Strict):
    """One source of training texts and how its columns are encoded."""

    name: str = Field(description="what stages call it")
    path: str = Field(
        description="JSONL, CSV, TSV or Parquet file, folder, 'package:NAME/FOLDER' or 'hub:ORG/NAME'"
    )
    form: Literal["auto", "triples", "scored-pairs", "labelled-pairs", "nli", "texts"] = Field(
        default="auto", description="'texts': a column 'text', for stages that need no pairs"
    )
    columns: dict[str, str] = Field(
        default_factory=dict, description="our column name: the name in the file, which may be given twice"
    )
    where: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="keep rows whose column has one of these values"
    )
    limit: int | None = Field(default=None, gt=0, description="rows at most, drawn with the seed")
    expected_rows: int | None = Field(
        default=None, gt=0, description="rows that 'mar plan' assumes if the data are not available"
    )
    weight: float = Field(default=1.0, gt=0, description="share in a mixture, relative to the number of rows")
    negatives: int = Field(default=1, ge=0, description="hard negatives per row that are read")
    missing_negatives: Literal["refuse", "batch"] = Field(
        default="refuse",
        description="rows without a hard negative: an error, or filled from the other rows of the batch",
    )
    positives: Literal["one", "all", "one-per-epoch"] = Field(
        default="all",
        description="a row for each positive of a query, or for one that is drawn: once, or for every epoch, "
        "and the hard negatives with it",
    )
    symmetric: bool = Field(default=False, description="both columns are queries (STS)")
    prompt: str = Field(default="query", description="name of the prompt put before a query")
    role: Literal["query", "document"] | None = Field(
        default=None, description="form 'texts' only: which side its texts belong to"
    )
    instruction: str | None = Field(
        default=None,
        description="how a row's own 'instruction' is put before its query, in the place of a prompt, for "
        "instance '{instruction}\nQuery: '; '' leaves it out",
    )

    @model_validator(mode="after")
    def _role(self) -> Self:
        if (self.form == "texts") != (self.role is not None):
            raise ValueError("'role' (query or document) goes with form 'texts', and with no other")
        return self

    @model_validator(mode="after")
    def _instruction(self) -> Self:
        if self.instruction and self.form == "texts":
            raise ValueError("'instruction' is for pairs, not for form 'texts'")
        if self.instruction and "{instruction}" not in self.instruction:
            raise ValueError("'instruction' says where the text goes, for instance '{instruction}\\nQuery: '")
        if self.instruction and self.prompt:
            raise ValueError("a row's instruction takes the place of the prompt; write prompt: '' as well")
        return self


class Evaluation(Strict):
    """Scores while a stage trains: on a development set, or on tasks of mteb."""

    path: str | None = Field(
        default=None, description="folder with corpus.jsonl, queries.jsonl and qrels, or 'package:'"
    )
    tasks: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="names of mteb tasks, each with its own main score"
    )
    split: str = Field(default="test", description="of 'path'")
    every: int = Field(default=500, gt=0, description="optimiser steps between two evaluations")
    metric: str = Field(default="ndcg@10", description="of 'path'")
    patience: int | None = Field(
        default=None, gt=0, description="end a stage after so many evaluations without a new best score"
    )
    keep: Literal["last", "best"] = Field(
        default="last", description="which weights a stage leaves: the last, or those with the best score"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.path is None) == (self.tasks is None):
            raise ValueError("give 'path' (a development set) or 'tasks' (names of mteb tasks), one of them")
        return self

    @property
    def decides(self) -> bool:
        """Return True if the scores decide which weights a stage leaves."""
        return self.patience is not None or self.keep == "best"

    @property
    def label(self) -> str:
        """Return a readable name of the evaluation."""
        return (
            f"`{self.path}` ({self.split})"
            if self.path is not None
            else f"mteb: {', '.join(self.tasks or ())}"
        )
