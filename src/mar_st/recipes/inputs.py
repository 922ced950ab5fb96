"""Inputs of a recipe: backbones, data, a development set."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from mar_st.options import Settings

Side: TypeAlias = Literal["query", "document"]
Precision: TypeAlias = Literal["fp32", "bf16"]

#: Seeds that all libraries take (numpy: 32 bits).
Seed: TypeAlias = Annotated[int, Field(ge=0, le=2**32 - 1)]


class Strict(Settings):
    """Immutable settings that forbid unknown keys and infinite numbers."""

    model_config = ConfigDict(allow_inf_nan=False)


def _different(dims: tuple[int, ...]) -> tuple[int, ...]:
    if any(dim < 1 for dim in dims) or len(set(dims)) < len(dims):
        raise ValueError(f"dims are different numbers above 0; got {list(dims)}")
    return dims


#: Matryoshka dimensions.
Dims: TypeAlias = Annotated[tuple[int, ...], AfterValidator(_different)]


class TokenizerConfig(Strict):
    """A tokenizer trained on the texts of the recipe: byte-pair encoding that starts from characters."""

    vocab_size: int = Field(gt=16, description="number of pieces, special tokens included")
    max_token_length: int = Field(default=4, ge=2, description="maximum number of characters per token")


class VocabularyCut(Strict):
    """The pieces of a `source`'s vocabulary that are kept."""

    keep: int = Field(gt=0, description="maximum number of pieces, special tokens included")
    texts: tuple[str, ...] = Field(
        min_length=1, description="data entries, or files of texts, whose pieces are kept first"
    )


class Backbone(Strict):
    """One encoder: pre-trained (`source`), random (`config` and `tokenizer`), or layers of the other side."""

    source: str | None = Field(default=None, description="folder or Hub name of a pre-trained encoder")
    revision: str | None = Field(default=None, description="commit, tag or branch of a Hub name")
    vocabulary: VocabularyCut | None = Field(
        default=None, description="pieces of the source's vocabulary that are kept"
    )
    config: dict[str, Any] | None = Field(
        default=None, description="configuration of an encoder with random weights: model_type, ..."
    )
    tokenizer: TokenizerConfig | None = Field(
        default=None, description="settings of a tokenizer trained for the encoder of 'config'"
    )
    tokenizer_data: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="data entries the tokenizer is trained on; default: all"
    )
    layers_of_document: tuple[int, ...] | None = Field(
        default=None, description="layers that are kept in a copy of the document encoder (KALE, Wang & Lyu)"
    )
    context_means: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="data entries over whose queries the hidden states of each token are averaged; the means "
        "become the token embeddings. Only with 'layers_of_document'",
    )
    bigrams: int | None = Field(
        default=None,
        ge=1,
        description="maximum number of pairs of adjacent tokens that get vectors of their own, averaged over "
        "the texts of 'context_means'; only with these",
    )
    pooling: Literal["cls", "lasttoken", "mean"] | None = Field(
        default=None,
        description="pooling of token vectors; default: that of a sentence-transformers 'source', else cls "
        "for queries, lasttoken for documents",
    )
    projection: int | None = Field(
        default=None, gt=0, description="width of a linear layer after pooling (HotelMatch, LEAF)"
    )
    max_length: int = Field(default=512, ge=8, description="maximum number of tokens per text")
    dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="probability of every dropout of the encoder while it trains; default: as it is stored",
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
            raise ValueError("'tokenizer' goes together with 'config'; a 'source' has its own")
        if self.tokenizer_data is not None and self.tokenizer is None:
            raise ValueError("'tokenizer_data' needs 'tokenizer'")
        if self.context_means is not None and not (self.layers_of_document or (0,))[0]:
            raise ValueError(
                "'context_means' replace the embeddings below 'layers_of_document', whose first layer must "
                "be 1 or higher"
            )
        if self.bigrams is not None and self.context_means is None:
            raise ValueError("'bigrams' are averaged over the texts of 'context_means'; name these")
        if self.vocabulary is not None and self.source is None:
            raise ValueError("'vocabulary' cuts that of a 'source'; give it there")
        if self.config is not None and "model_type" not in self.config:
            raise ValueError("'config' needs 'model_type', for instance gte or qwen3")
        size = (self.config or {}).get("hidden_size", 1)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"'hidden_size' of 'config' is a whole number above 0; got {size!r}")
        layers = self.layers_of_document
        if layers is not None and (not layers or min(layers) < 0 or len(set(layers)) < len(layers)):
            raise ValueError(f"'layers_of_document' names layers from 0, each once; got {list(layers)}")
        return self

    @property
    def width(self) -> int | None:
        """Return the width of its vectors, if the recipe sets it; `None` for a `source`."""
        return self.projection or (self.config or {}).get("hidden_size")


class Data(Strict):
    """One source of training texts and how its columns are encoded."""

    name: str = Field(description="name by which stages refer to the entry")
    path: str = Field(
        description="JSONL, CSV, TSV or Parquet file, folder, 'package:NAME/FOLDER' or 'hub:ORG/NAME'"
    )
    form: Literal["auto", "triples", "pairs", "nli", "texts"] = Field(
        default="auto", description="form of the rows; 'auto': recognised by the columns"
    )
    columns: dict[str, str] = Field(
        default_factory=dict, description="columns of the file by our names; one of them may be given twice"
    )
    where: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="values by column; only rows with one of them are kept"
    )
    limit: int | None = Field(default=None, gt=0, description="maximum number of rows, drawn with the seed")
    expected_rows: int | None = Field(
        default=None, gt=0, description="number of rows that --dry-run assumes if the data are missing"
    )
    weight: float = Field(default=1.0, gt=0, description="share in a mixture, relative to the number of rows")
    negatives: int = Field(
        default=1, ge=0, description="number of hard negatives per row; rows without any are left out"
    )
    positives: Literal["one", "all"] = Field(
        default="all", description="rows per query: one for each positive, or one for a drawn positive"
    )
    symmetric: bool = Field(default=False, description="both columns are queries (STS)")
    prompt: str = Field(default="query", description="name of the prompt put before a query")
    role: Literal["query", "document"] | None = Field(
        default=None, description="side that the texts belong to; only for form 'texts'"
    )
    instruction: str | None = Field(
        default=None,
        description="template that puts a row's own 'instruction' before its query, in place of a prompt, "
        "for instance '{instruction}\nQuery: '; '' leaves it out",
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.form == "texts") != (self.role is not None):
            raise ValueError("form 'texts' needs a 'role' (query or document), and other forms have none")
        if not self.instruction:
            return self
        if self.form == "texts":
            raise ValueError("'instruction' is for pairs, not for form 'texts'; leave it out")
        if "{instruction}" not in self.instruction:
            raise ValueError("'instruction' says where the text goes, for instance '{instruction}\\nQuery: '")
        if self.prompt:
            raise ValueError("a row's instruction takes the place of the prompt; write prompt: '' as well")
        return self


class Evaluation(Strict):
    """Scores on a development set while a stage trains."""

    path: str = Field(description="development set: folder in the Hub layout, or package: name")
    split: str = Field(default="test", description="split of the development set in 'path'")
    every: int = Field(default=500, gt=0, description="optimiser steps between two evaluations")
    metric: str = Field(default="ndcg@10", description="metric on the development set in 'path'")
    keep: Literal["last", "best"] = Field(
        default="last", description="weights that a stage leaves: the last, or those with the best score"
    )
