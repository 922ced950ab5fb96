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
    description: str = Field(
        min_length=1, description="one-line summary for `mar recipes` and the model card"
    )
    licence: str | None = Field(
        default=None,
        min_length=1,
        description="licence of the trained weights, as the Hub spells it: apache-2.0",
    )
    languages: tuple[str, ...] = Field(
        default=(), description="languages of the texts, as the Hub spells them: zh, en"
    )
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
    compile: bool = Field(
        default=False, description="compilation of the encoders with torch.compile while they are trained"
    )
    workers: int | None = Field(
        default=None,
        ge=0,
        description="processes per device that read and tokenise batches ahead; the batches are the same. "
        "Default: up to 4 on a GPU, 0 on a CPU",
    )
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
    evaluation: Evaluation | None = Field(
        default=None, description="scores on a development set or on mteb tasks while a stage trains"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for what, names in (("stage", [s.name for s in self.stages]), ("data", [d.name for d in self.data])):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"two {what} entries are called {twice[0]!r}; names must differ")
        self._check_sides()
        self._check_widths()
        self._check_dtypes()
        self._check_data()
        self._check_bigrams()
        self._check_mining()
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

    def _check_sides(self) -> None:
        sides = {"query": self.query, "document": self.document}
        present = {side for side, backbone in sides.items() if backbone is not None}
        if not present:
            raise ValueError("give a 'query' backbone, a 'document' backbone, or both")
        for stage in self.stages:
            if isinstance(stage, AlignStage | JointStage):
                needed = {"query", "document"}
            elif isinstance(stage, DistillStage) and stage.teacher in sides:
                needed = {stage.side, stage.teacher}
                if len(needed) == 1:
                    raise ValueError(f"stage {stage.name}: the teacher is the student itself")
            else:
                needed = {stage.side}
            if needed - present:
                raise ValueError(f"stage {stage.name} needs a {sorted(needed - present)[0]!r} backbone")
        if self.document is not None and self.document.layers_of_document is not None:
            raise ValueError("document: 'layers_of_document' is for the query side")
        if self.query is not None and self.query.layers_of_document is not None and self.document is None:
            raise ValueError("query: 'layers_of_document' needs a 'document' backbone")
        if not self.normalise and self.asymmetric:
            raise ValueError("normalise: false is for symmetric recipes; a MAR's vectors are normalised")

    def _check_widths(self) -> None:
        widths = {
            side: backbone.width
            for side, backbone in (("query", self.query), ("document", self.document))
            if backbone is not None
        }
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

    def _check_dtypes(self) -> None:
        for side, backbone in (("query", self.query), ("document", self.document)):
            dtype = backbone.dtype if backbone is not None else None
            if self.precision == "fp32" and dtype not in (None, "float32"):
                raise ValueError(
                    f"{side}: dtype {dtype} loses precision without any gain, because precision fp32 "
                    "computes in float32; set precision: bf16, or leave dtype out"
                )

    def _check_data(self) -> None:
        missing = sorted({d.prompt for d in self.data if d.prompt and d.form != "texts"} - set(self.prompts))
        # A source may have its own prompts; a run checks them before it starts.
        sources = any(backbone is not None and backbone.source for backbone in (self.query, self.document))
        if missing and not sources:
            raise ValueError(f"data uses the prompt {missing[0]!r}, which 'prompts' does not define")
        forms = {entry.name: entry.form for entry in self.data}
        for side, backbone in (("query", self.query), ("document", self.document)):
            for field in ("tokenizer_data", "context_means"):
                unknown = sorted(set(getattr(backbone, field, None) or ()) - set(forms))
                if unknown:
                    raise ValueError(
                        f"{side}: {field}: {unknown[0]!r} is not a data entry; choose from {', '.join(forms)}"
                    )
        for stage in self.stages:
            unknown = sorted(set(stage.data or ()) - set(forms))
            if unknown:
                raise ValueError(
                    f"stage {stage.name}: {unknown[0]!r} is not a data entry; choose from {', '.join(forms)}"
                )
            if stage.mini_batch_size is not None and stage.mini_batch_size > stage.batch_size:
                raise ValueError(f"stage {stage.name}: mini_batch_size exceeds batch_size")
            if isinstance(stage, DistillStage | JointStage) and stage.taught:
                self._check_groups(stage)
            if not isinstance(stage, RetroMAEStage | AlignStage):
                texts = [name for name in stage.data or () if forms[name] == "texts"]
                if texts:
                    raise ValueError(
                        f"stage {stage.name} needs pairs; the data {texts[0]!r} are single texts"
                    )
                if all(form == "texts" for form in forms.values()):
                    raise ValueError(f"stage {stage.name} needs pairs; all data are single texts")

    def _check_mining(self) -> None:
        for stage in self.stages:
            if not isinstance(stage, ContrastiveStage) or stage.mine is None:
                continue
            other = next((e for e in self.data_of(stage) if e.form not in ("auto", "triples")), None)
            if other is not None:
                raise ValueError(
                    f"stage {stage.name}: 'mine' needs triples; the data {other.name!r} are {other.form}"
                )

    def _check_bigrams(self) -> None:
        if self.query is None or self.query.bigrams is None:
            return
        for stage in self.stages:
            if isinstance(stage, RetroMAEStage):
                raise ValueError(
                    f"stage {stage.name}: RetroMAE reads only token embeddings, without the query encoder's "
                    "'bigrams'; leave out one of the two"
                )

    def _check_groups(self, stage: DistillStage | JointStage) -> None:
        if stage.kl_scope != "group" and stage.cross_encoder is None:
            return
        what = "kl_scope: group" if stage.cross_encoder is None else "a cross-encoder"
        advice = "" if stage.cross_encoder else ", or kl_scope: batch"
        for entry in self.data_of(stage):
            if not (entry.negatives if stage.negatives is None else stage.negatives):
                raise ValueError(
                    f"stage {stage.name}: {what} compares a query's own documents, but {entry.name!r} has "
                    f"only one document per query (negatives: 0). Give negatives{advice}."
                )

    def data_of(self, stage: Stage) -> tuple[Data, ...]:
        """Return the data entries that a stage uses: those it names, else all that it can use."""
        if stage.data is not None:
            return tuple(entry for entry in self.data if entry.name in stage.data)
        if isinstance(stage, RetroMAEStage | AlignStage):
            return self.data
        return tuple(entry for entry in self.data if entry.form != "texts")
