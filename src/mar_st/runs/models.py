"""The models that the stages of a recipe train, assembled from earlier stages."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from transformers import AutoConfig

from mar_st.data.sequences import Texts, Triples, distinct, distinct_texts
from mar_st.errors import MarError
from mar_st.files import one_line, read_record
from mar_st.model.context_means import cut_encoder, sample
from mar_st.model.encoders import (
    EncoderSource,
    Role,
    check_source,
    linear_projection,
    load_encoder,
    write_encoder,
)
from mar_st.model.layers import set_dropout
from mar_st.model.loading import has_routes
from mar_st.model.mar import MAR, open_model
from mar_st.model.native_gte import fetch
from mar_st.model.reranker import load_cross_encoder
from mar_st.model.tokenizers import train_tokenizer
from mar_st.modules.arrangement import is_truncation, route
from mar_st.modules.bigrams import BigramTransformer
from mar_st.modules.layout import saved_modules
from mar_st.planning.backbones import count, shape_of
from mar_st.recipes.rules import (
    check_widths,
    joins,
    projects,
    renormalises_prefixes,
    tokenizer_entries,
    trained_sides,
)
from mar_st.recipes.schema import Backbone, DistillStage, JointStage, Precision, Recipe, Side, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules.module import Module

    from mar_st.data.training import Source

#: Added to the seed of a recipe to draw random weights, so that no two parts share their random numbers.
_SEED_OFFSETS = {("encoder", "query"): 0, ("encoder", "document"): 1,
          ("projection", "query"): 2, ("projection", "document"): 3}  # fmt: skip


def check_models(recipe: Recipe) -> None:
    """Check that all models a recipe starts from or learns from exist and fit, before anything is trained.

    Raises:
        MarError: A backbone or a teacher is neither a model folder with whole weights nor a model on the
            Hub, transformers builds no encoder of its configuration, the tokenizer lacks the token at which
            it is pooled, a vocabulary cannot be cut as requested, or widths do not fit the dimensions of the
            recipe.
    """
    widths: dict[Side, tuple[int, int]] = {}
    for side, backbone in recipe.backbones.items():
        if backbone.source is not None:
            check_source(backbone.source, backbone.revision, what=f"{side} backbone")
        shape = shape_of(backbone, recipe.document)
        try:
            count(shape)
            if shape.width % shape.heads and not shape.config.get("head_dim"):
                raise ValueError(f"hidden_size {shape.width} is not a multiple of {shape.heads} heads")
        except Exception as error:
            raise MarError(
                f"{side} backbone: {shape.name} is not an encoder of texts that transformers can build "
                f"({one_line(error, 200)}). Give a model such as gte, bert or qwen3."
            ) from error
        layer = _saved_projection(backbone)
        if layer is not None and layer != backbone.projection:
            raise MarError(
                f"{side} backbone: {backbone.source} ends in a linear layer of width {layer}. Set "
                f"projection: {layer}, or give an encoder without such a layer."
            )
        widths[side] = (layer or shape.width, backbone.projection or shape.width)
    check_widths(recipe, widths)
    for stage in recipe.stages:
        if isinstance(stage, DistillStage | JointStage) and stage.kl_weight and stage.teacher_source:
            check_source(stage.teacher_source, what=f"teacher of stage {stage.name}")


def _saved_projection(backbone: Backbone) -> int | None:
    """Return the width of the linear layer that the source of a backbone ends in, `None` without one."""
    saved = None if backbone.source is None else saved_modules(fetch(backbone.source, backbone.revision))
    if saved is None or saved.dense is None:
        return None
    return int(Dense.load_config(str(saved.dense))["out_features"])


@dataclass
class Sides:
    """Both encoders of a recipe as trained so far.

    Attributes:
        recipe: The recipe.
        sources: Data of the recipe; a tokenizer may be trained on their texts.
        precision: Precision of the computation.
        folders: Model folder of the stage that trained a side last.
        cut: Folder of a side's source model after its vocabulary was cut, see `cut_backbones`.
    """

    recipe: Recipe
    sources: Sequence[Source]
    precision: Precision = "fp32"
    folders: dict[Role, Path] = field(default_factory=dict)
    cut: dict[Role, Path] = field(default_factory=dict)

    def for_stage(self, stage: Stage) -> SentenceTransformer:
        """Return the model that a stage trains: a MAR if it uses both sides, else one encoder."""
        if joins(stage):
            return MAR.from_modules(
                self._encoder("query", stage),
                self._encoder("document", stage),
                dim=self.recipe.dim,
                renormalise=self.recipe.renormalise,
                prompts=self.recipe.prompts,
            )
        return self._symmetric(stage.side, stage)  # type: ignore[union-attr]

    def teacher(self, stage: DistillStage | JointStage) -> SentenceTransformer | CrossEncoder | None:
        """Return the model that a stage learns from: the other side, or a separate model.

        Returns `None` for a joint stage that learns from its own document encoder, which teaches before it is
        trained.
        """
        if stage.cross_encoder is not None:
            return load_cross_encoder(stage.cross_encoder, what=f"teacher of stage {stage.name}")
        if stage.teacher_source is not None:
            return open_model(stage.teacher_source)
        return None if isinstance(stage, JointStage) else self._symmetric(stage.teacher, stage)  # type: ignore[arg-type]

    def _symmetric(self, role: Role, stage: Stage) -> SentenceTransformer:
        modules: list[Any] = self._encoder(role, stage)
        prompts = {"document": "", **self.recipe.prompts}
        if not self.recipe.normalise:
            return SentenceTransformer(modules=modules, prompts=prompts, similarity_fn_name="dot")
        # If a MAR cuts vectors after the normalisation, its encoders are trained on such prefixes, too:
        # scores are then dot products of vectors of length 1, and of prefixes of these.
        similarity: Literal["cosine", "dot"] = (
            "cosine" if renormalises_prefixes(self.recipe, stage) else "dot"
        )
        return SentenceTransformer(
            modules=[*modules, Normalize()], prompts=prompts, similarity_fn_name=similarity
        )

    def _encoder(self, role: Role, stage: Stage) -> list[Module]:
        """Return one side for a stage, in the dtype that it is trained in.

        Weights that an optimiser changes are float32; frozen ones, the base of a LoRA adapter included, stay
        as they are stored, unless the run computes in float32.
        """
        modules = self.modules(role)
        projection = self.recipe.backbones[role].projection
        projected = any(isinstance(module, Dense) for module in modules)
        if projects(self.recipe, stage) and projection is not None and not projected:
            torch.manual_seed(self.recipe.seed + _SEED_OFFSETS["projection", role])
            modules.append(linear_projection(modules[-1].get_embedding_dimension(), projection))
        lora = getattr(stage, "lora_r", None) is not None and not (joins(stage) and role == "query")
        if self.precision == "fp32" or (role in trained_sides(stage) and not lora):
            for module in modules:
                module.float()
        return modules

    def modules(self, role: Role) -> list[Module]:
        """Return `[Transformer, Pooling]` of one side as trained so far, and its projection if it has one."""
        backbone = self.recipe.backbones[role]
        modules: list[Any]
        if role in self.folders:
            modules = _saved(self.folders[role], role)
        elif backbone.layers_of_document is not None:
            modules = self._layers_of_document(backbone)
        else:
            source, revision = self.origin(role) or (self._random(backbone, role), None)
            modules = load_encoder(
                source,
                role,
                max_length=backbone.max_length,
                revision=revision,
                pooling=backbone.pooling,
                projection=_saved_projection(backbone),
            )
        if backbone.dropout is not None:
            set_dropout(modules[0].model, backbone.dropout)
        return modules

    def _layers_of_document(self, backbone: Backbone) -> list[Module]:
        """Return a copy of the document encoder as trained so far, with some of its layers.

        It pools as the document encoder does, because its layers were trained so, unless the recipe sets
        another pooling.
        """
        layers = backbone.layers_of_document or ()
        modules: list[Any] = self.modules("document")
        texts = None if backbone.context_means is None else self._queries(backbone.context_means)
        cut_encoder(modules, layers, texts, pairs=backbone.bigrams or 0, max_length=backbone.max_length)
        with tempfile.TemporaryDirectory() as folder:
            write_encoder(modules[0].model, modules[0].tokenizer, Path(folder))
            loaded: list[Any] = load_encoder(
                folder,
                "query",
                max_length=backbone.max_length,
                pooling=backbone.pooling or modules[1].pooling_mode,
            )
        if isinstance(modules[0], BigramTransformer):
            loaded[0] = BigramTransformer.of(loaded[0], modules[0].bigrams)
        return loaded

    def _queries(self, names: Sequence[str]) -> list[str]:
        """Return queries of data entries with their prompts; a sample if there are many."""
        groups = []
        for source in self.sources:
            entry = source.entry
            if entry.name not in names:
                continue
            queries, documents = distinct_texts(source.triples)
            own = distinct(source.texts) if entry.role == "query" else Texts([])
            entry_texts = distinct(queries, own, documents if entry.symmetric else Texts([]))
            groups.append((self.recipe.prompts.get(entry.prompt, ""), entry_texts))
        ends = np.cumsum([len(texts) for _, texts in groups])
        if not ends[-1]:
            raise MarError(f"context_means: {', '.join(names)} contain no queries to average over.")
        sampled = []
        for row in sample(int(ends[-1]), self.recipe.seed):
            number = int(np.searchsorted(ends, row, side="right"))
            prompt, texts = groups[number]
            sampled.append(prompt + texts[row - int(ends[number])])
        return sampled

    def origin(self, role: Role) -> tuple[str, str | None] | None:
        """Return folder or Hub name, and revision, of the pre-trained weights of a side, if any."""
        if role in self.cut:
            return str(self.cut[role]), None
        backbone = self.recipe.backbones.get(role)
        if backbone is None or backbone.source is None:
            return None
        return backbone.source, backbone.revision

    def _random(self, backbone: Backbone, role: Role) -> EncoderSource:
        settings: Any = backbone.tokenizer
        used = {entry.name for entry in tokenizer_entries(self.recipe, backbone)}
        sources = [source for source in self.sources if source.entry.name in used]
        texts = distinct(*(part for one in sources for part in (Triples.of(one.triples).texts, one.texts)))
        # The tokenizer adds the special token at which the encoder is pooled.
        style: Role = {"cls": "query", "lasttoken": "document"}.get(backbone.pooling or "", role)  # type: ignore[assignment]
        tokenizer = train_tokenizer(texts, style, max_length=backbone.max_length, **settings.model_dump())
        own = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        content: dict[str, Any] = {**(backbone.config or {}), **own}
        for name in ("bos_token_id", "eos_token_id"):
            content.setdefault(name, getattr(tokenizer, name))
        config = AutoConfig.for_model(**content)
        # The sides must not share a stream of random numbers, nor depend on the order of the stages.
        torch.manual_seed(self.recipe.seed + _SEED_OFFSETS["encoder", role])
        return config, tokenizer


def _saved(folder: Path, role: Role) -> list[Module]:
    """Return one side of the model that a stage saved."""
    modules: list[Any] = route(open_model(folder, routes=role), role)
    return [module for module in modules if not isinstance(module, Normalize) and not is_truncation(module)]


def write_sides(model: str | Path, out: str | Path) -> tuple[dict[Side, dict[str, Any]], dict[str, str]]:
    """Write the encoders of a model as sources of a recipe's backbones, to train it further.

    Args:
        model: A saved MAR, whose encoders are written to folders of their own; or another model, which is
            the source of either side.
        out: Folder for the encoders of a MAR.

    Returns:
        `source` and, for an encoder that ends in a linear layer, `projection` by side; and the model's
        prompts.

    Raises:
        MarError: The model does not exist.
    """
    folder = fetch(model)
    saved = read_record(folder / "config_sentence_transformers.json") or {}
    prompts = {name: text for name, text in (saved.get("prompts") or {}).items() if text}
    roles: tuple[Side, Side] = ("query", "document")
    if not has_routes(str(folder)):
        return {role: {"source": str(folder)} for role in roles}, prompts
    mar = MAR.from_pretrained(folder)
    sides: dict[Side, dict[str, Any]] = {}
    for role in roles:
        encoder: Any = mar.encoder(role)
        place = Path(out, role)
        encoder.save_pretrained(str(place), create_model_card=False)
        sides[role] = {"source": str(place)}
        if isinstance(encoder[-2], Dense):
            sides[role]["projection"] = encoder[-2].out_features
    return sides, prompts
