"""Schema of a recipe: backbones, data, stages (`mar_st.recipes.stage_schema`), evaluation.

Unknown keys and impossible combinations fail before anything is loaded.
"""

from __future__ import annotations

from datetime import date  # noqa: TC003 -- pydantic reads the annotation
from typing import Literal, Self

from pydantic import Field, model_validator

from mar_st.recipes.inputs import Backbone, Data, Evaluation, Precision, Seed, Side, Strict, TokenizerConfig
from mar_st.recipes.stage_schema import (
    CROSS_ENCODER_PREFIX,
    STAGE_RANKS,
    AlignStage,
    ContrastiveStage,
    DistillStage,
    JointStage,
    RetroMAEStage,
    Stage,
)

__all__ = [
    "CROSS_ENCODER_PREFIX",
    "STAGE_RANKS",
    "AlignStage",
    "Backbone",
    "ContrastiveStage",
    "Data",
    "DistillStage",
    "Evaluation",
    "JointStage",
    "Precision",
    "Recipe",
    "RetroMAEStage",
    "Side",
    "Stage",
    "TokenizerConfig",
]


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
    dim: int = Field(gt=0, description="width of the finished model's vectors")
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
        self._check_widths()
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

    def _check_widths(self) -> None:
        widths = {side: backbone.width for side, backbone in self.backbones.items()}
        if widths.get("query") not in (None, self.dim):
            raise ValueError(
                f"dim is {self.dim} but the query encoder has width {widths['query']}; they must be equal"
            )
        full = widths.get("document")
        if full is not None and full < self.dim:
            raise ValueError(f"dim is {self.dim} but the document encoder has only width {full}")
        for stage in self.stages:
            dims = getattr(stage, "dims", ())
            limit = widths.get(stage.side) if isinstance(stage, ContrastiveStage) else self.dim
            if dims and limit is not None and max(dims) > limit:
                raise ValueError(f"stage {stage.name}: dims {dims} exceed the width {limit}")

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
