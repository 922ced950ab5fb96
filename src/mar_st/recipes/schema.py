"""Schema of a recipe: backbones, data, stages (`mar_st.recipes.stage_schema`), evaluation.

Unknown keys and impossible combinations fail before anything is loaded.
"""

from __future__ import annotations

from datetime import date  # noqa: TC003 -- pydantic reads the annotation
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mar_st.recipes.stage_schema import (
    STAGE_RANKS,
    AlignStage,
    ContrastiveStage,
    DistillStage,
    JointStage,
    Precision,
    RetroMAEStage,
    Seed,
    Side,
    Stage,
    Strict,
)

__all__ = [
    "AlignStage", "Backbone", "ContrastiveStage", "Data", "DistillStage", "Evaluation", "JointStage",
    "Precision", "Recipe", "RetroMAEStage", "Side", "Stage", "TokenizerConfig", "VocabularyCut",
]  # fmt: skip


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


class Recipe(Strict):
    """A model: its backbones, the data, the stages in order.

    A recipe that ends with `align` or `joint` gives a MAR; any other gives the symmetric model of its last
    stage.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", description="name of the recipe and its run folder")
    description: str = Field(min_length=1, description="one line for `mar recipes` and the model card")
    licence: str | None = Field(default=None, min_length=1, description="licence as the Hub spells it")
    languages: tuple[str, ...] = Field(default=(), description="languages as the Hub spells them: zh, en")
    released: date | None = Field(default=None, description="day on which the weights were published")
    seed: Seed = Field(default=42, description="seed of random weights, of the order of rows and of dropout")
    dim: int = Field(
        gt=0, description="width of the vectors of a MAR; a symmetric model has that of its encoder"
    )
    renormalise: bool = Field(
        default=True,
        description="normalisation of document vectors after truncation, so that scores are cosines; False: "
        "before truncation, as in the authors' released code",
    )
    normalise: bool = Field(
        default=True,
        description="normalisation of all vectors; False: raw dot products (BMRetriever), for symmetric "
        "recipes only",
    )
    precision: Precision = Field(
        default="fp32",
        description="precision of the computation; bf16: autocast over float32 weights. A CPU without "
        "instructions for bfloat16 computes in float32",
    )
    compile: bool = Field(default=False, description="training with torch.compile")
    storage_dtype: Literal["float32", "float16", "bfloat16"] | None = Field(
        default=None, description="dtype of the finished model's weights; default: as they were trained"
    )
    prompts: dict[str, str] = Field(
        default_factory=dict,
        description="texts put before queries and documents, by name; they are saved with the model",
    )
    query: Backbone | None = Field(default=None, description="encoder of queries, or the only one")
    document: Backbone | None = Field(default=None, description="encoder of documents")
    data: tuple[Data, ...] = Field(min_length=1, description="training data, as named entries")
    stages: tuple[Stage, ...] = Field(
        min_length=1, description="training stages in order: retromae, contrastive, align or distill, joint"
    )
    evaluation: Evaluation | None = Field(default=None, description="scores while a stage trains")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for what, names in (("stage", [s.name for s in self.stages]), ("data", [d.name for d in self.data])):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"two {what} entries are called {twice[0]!r}; names must differ")
        self._check_sides()
        self._check_names()
        self._check_forms()
        kinds = [stage.stage for stage in self.stages]
        ranks = [STAGE_RANKS[kind] for kind in kinds]
        if ranks != sorted(ranks):
            order = ", ".join(sorted(STAGE_RANKS, key=STAGE_RANKS.__getitem__))
            raise ValueError(f"stages come in the order {order}; got {', '.join(kinds)}")
        return self

    @property
    def asymmetric(self) -> bool:
        """Return True if the result is a MAR, with two encoders."""
        return self.stages[-1].stage in ("align", "joint")

    @property
    def backbones(self) -> dict[Side, Backbone]:
        """Return the backbones that the recipe has, by side."""
        sides: dict[Side, Backbone | None] = {"query": self.query, "document": self.document}
        return {side: backbone for side, backbone in sides.items() if backbone is not None}

    def _check_sides(self) -> None:
        present = set(self.backbones)
        if not present:
            raise ValueError("give a 'query' backbone, a 'document' backbone, or both")
        for stage in self.stages:
            joins = isinstance(stage, AlignStage | JointStage)
            needed = {"query", "document"} if joins else {stage.side}  # type: ignore[union-attr]
            if isinstance(stage, DistillStage) and stage.teacher_source is None:
                if stage.teacher == stage.side:
                    raise ValueError(f"stage {stage.name}: the teacher is the student itself")
                needed.add(stage.teacher)
            if needed - present:
                raise ValueError(f"stage {stage.name} needs a {sorted(needed - present)[0]!r} backbone")
        if self.document is not None and self.document.layers_of_document is not None:
            raise ValueError("document: 'layers_of_document' is for the query side")
        if self.query is not None and self.query.layers_of_document is not None and self.document is None:
            raise ValueError("query: 'layers_of_document' needs a 'document' backbone")
        if not self.normalise and self.asymmetric:
            raise ValueError("normalise: false is for symmetric recipes; a MAR's vectors are normalised")

    def _check_names(self) -> None:
        """Refuse names of prompts and data entries that do not exist."""
        missing = sorted({d.prompt for d in self.data if d.prompt and d.form != "texts"} - set(self.prompts))
        # A source may have its own prompts; a run checks them before it starts.
        if missing and not any(backbone.source for backbone in self.backbones.values()):
            raise ValueError(f"data uses the prompt {missing[0]!r}, which 'prompts' does not define")
        entries = [entry.name for entry in self.data]
        named = {f"stage {stage.name}": stage.data for stage in self.stages}
        for side, backbone in self.backbones.items():
            named |= {f"{side}: tokenizer_data": backbone.tokenizer_data}
            named |= {f"{side}: context_means": backbone.context_means}
        for where, names in named.items():
            unknown = sorted(set(names or ()) - set(entries))
            if unknown:
                raise ValueError(
                    f"{where}: {unknown[0]!r} is not a data entry; choose from {', '.join(entries)}"
                )

    def _check_forms(self) -> None:
        """Refuse data that a stage cannot use."""
        for stage in self.stages:
            if isinstance(stage, RetroMAEStage) and self.query is not None and self.query.bigrams:
                raise ValueError(f"stage {stage.name}: RetroMAE does not read the 'bigrams' of the encoder")
            if isinstance(stage, RetroMAEStage | AlignStage):
                continue
            entries = self.data_of(stage)
            texts = [entry.name for entry in entries if entry.form == "texts"]
            if texts or not entries:
                which = f"the data {texts[0]!r}" if texts else "all data"
                raise ValueError(f"stage {stage.name} needs pairs; {which} are single texts")
            if isinstance(stage, ContrastiveStage) and stage.mine is not None:
                other = next((entry for entry in entries if entry.form not in ("auto", "triples")), None)
                if other is not None:
                    raise ValueError(
                        f"stage {stage.name}: 'mine' needs triples; the data {other.name!r} are {other.form}"
                    )
            if isinstance(stage, DistillStage | JointStage) and stage.kl_weight:
                self._check_groups(stage)

    def _check_groups(self, stage: DistillStage | JointStage) -> None:
        if stage.kl_scope != "group" and stage.cross_encoder is None:
            return
        what = "kl_scope: group" if stage.cross_encoder is None else "a cross-encoder"
        for entry in self.data_of(stage):
            if not (entry.negatives if stage.negatives is None else stage.negatives):
                raise ValueError(
                    f"stage {stage.name}: {what} compares a query's own documents, but {entry.name!r} has "
                    "only one document per query (negatives: 0). Give negatives, or kl_scope: batch."
                )

    def data_of(self, stage: Stage) -> tuple[Data, ...]:
        """Return the data entries that a stage uses: those it names, else all that it can use."""
        if stage.data is not None:
            return tuple(entry for entry in self.data if entry.name in stage.data)
        if isinstance(stage, RetroMAEStage | AlignStage):
            return self.data
        return tuple(entry for entry in self.data if entry.form != "texts")
