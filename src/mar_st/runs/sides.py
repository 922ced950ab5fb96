"""The models that the stages of a recipe train, assembled from earlier stages."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from transformers import AutoConfig, AutoModel

from mar_st.data import Texts, Triples, distinct, distinct_texts
from mar_st.errors import MarError
from mar_st.files import one_line
from mar_st.model.context_means import HiddenMeans, sample
from mar_st.model.encoders import (
    check_pooling,
    check_source,
    linear_projection,
    load_encoder,
    write_encoder,
)
from mar_st.model.layers import keep_layers, set_dropout
from mar_st.model.mar import MAR
from mar_st.model.opening import open_model
from mar_st.model.reranker import load_cross_encoder
from mar_st.model.tokenizers import train_tokenizer
from mar_st.modules import is_truncation
from mar_st.modules.bigrams import BigramTransformer
from mar_st.planning.backbones import check_attention, count, shape_of, source_shape
from mar_st.recipes.rules import (
    head_file,
    joins,
    projects,
    renormalises_prefixes,
    tokenizer_entries,
    trained_sides,
)
from mar_st.recipes.schema import DistillStage, JointStage, RetroMAEStage
from mar_st.runs.widths import check_widths, saved_projection
from mar_st.vocabulary.backbones import check_cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules.module import Module

    from mar_st.data import Source
    from mar_st.model.encoders import EncoderSource, Role
    from mar_st.recipes.schema import Backbone, Precision, Recipe, Stage

#: Added to the seed of a recipe to draw random weights, so that no two parts share their random numbers.
_SEED_OFFSETS = {("encoder", "query"): 0, ("encoder", "document"): 1,
          ("projection", "query"): 2, ("projection", "document"): 3}  # fmt: skip


def check_models(recipe: Recipe) -> None:
    """Check that all models a recipe starts from or learns from exist, before anything is trained.

    Raises:
        MarError: A backbone or a teacher is neither a model folder with whole weights nor a model on the
            Hub, the configuration of a backbone makes no encoder, a backbone has unsupported modules or
            lacks the requested attention implementation or the token at which it is pooled, a vocabulary
            cannot be cut as requested, the width of an encoder does not fit the dimensions of the recipe,
            or a `resume_head` is not a file.
    """
    sides: tuple[Role, ...] = ("query", "document")
    for name in sides:
        backbone: Backbone | None = getattr(recipe, name)
        if backbone is None:
            continue
        if backbone.source is not None:
            check_source(backbone.source, backbone.revision, what=f"{name} backbone")
            check_pooling(backbone.source, name, revision=backbone.revision, pooling=backbone.pooling)
            _check_architecture(name, backbone.source, backbone.revision)
            check_cut(recipe, name)
        if backbone.config is not None:
            _check_config(name, backbone.config)
        if backbone.attn_implementation is not None:
            check_attention(shape_of(backbone, recipe.document), backbone.attn_implementation)
    check_widths(recipe)
    for stage in recipe.stages:
        if isinstance(stage, DistillStage | JointStage) and stage.taught and stage.teacher_source:
            check_source(stage.teacher_source, what=f"teacher of stage {stage.name}")
        if isinstance(stage, RetroMAEStage) and stage.resume_head is not None:
            head_file(stage.resume_head)


def _check_architecture(name: Role, source: str, revision: str | None) -> None:
    """Raise an error if transformers has no encoder of texts for the configuration of a source."""
    try:
        count(source_shape(source, revision))
    except Exception as error:
        raise MarError(
            f"{name} backbone: {source} is not an encoder of texts that transformers can build "
            f"({one_line(error, 200)}). Give a model such as gte, bert or qwen3."
        ) from error


def _check_config(name: Role, settings: dict[str, Any]) -> None:
    """Raise an error if transformers cannot build an encoder from a configuration."""
    try:
        config = AutoConfig.for_model(**settings)
        with torch.device("meta"):  # without weights
            AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    except Exception as error:
        reason = one_line(error, 120)
        raise MarError(
            f"{name} backbone: transformers cannot build an encoder from 'config': {reason}"
        ) from error
    width, heads = (getattr(config, key, None) for key in ("hidden_size", "num_attention_heads"))
    own_width = any(getattr(config, key, None) for key in ("head_dim", "d_kv"))
    if width and heads and width % heads and not own_width:
        raise MarError(
            f"{name} backbone: hidden_size {width} of 'config' is not a multiple of its {heads} attention "
            "heads. Change one of the two."
        )


@dataclass
class Sides:
    """Both encoders of a recipe as trained so far.

    Attributes:
        recipe: The recipe.
        sources: Data of the recipe; a tokenizer may be trained on their texts.
        folders: Model folder of the stage that trained a side last.
        cut: Folder of a side's source model after its vocabulary was cut, see `mar_st.vocabulary.backbones`.
        precision: Precision of the computation; default the recipe's.
    """

    recipe: Recipe
    sources: Sequence[Source]
    folders: dict[Role, Path] = field(default_factory=dict)
    cut: dict[Role, Path] = field(default_factory=dict)
    precision: Precision | None = None

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
        own: dict[str, Role] = {"query": "query", "document": "document"}
        if stage.cross_encoder is not None:
            return load_cross_encoder(stage.cross_encoder, what=f"teacher of stage {stage.name}")
        if stage.teacher not in own:
            return open_model(stage.teacher)
        return None if isinstance(stage, JointStage) else self._symmetric(own[stage.teacher], stage)

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
        projection = getattr(self.recipe, role).projection
        if projects(self.recipe, stage) and projection is not None and not _has_projection(modules):
            torch.manual_seed(self.recipe.seed + _SEED_OFFSETS["projection", role])
            modules.append(linear_projection(modules[-1].get_embedding_dimension(), projection))
        lora = getattr(stage, "lora_r", None) is not None and not (joins(stage) and role == "query")
        if (self.precision or self.recipe.precision) == "fp32" or (role in trained_sides(stage) and not lora):
            for module in modules:
                module.float()
        return modules

    def modules(self, role: Role) -> list[Module]:
        """Return `[Transformer, Pooling]` of one side as trained so far, and its projection if it has one."""
        backbone: Backbone = getattr(self.recipe, role)
        modules: list[Any] = self._modules(role, backbone)
        if backbone.dropout is not None:
            set_dropout(modules[0].model, backbone.dropout)
        return modules

    def _modules(self, role: Role, backbone: Backbone) -> list[Module]:
        if role in self.folders:
            return _saved(self.folders[role], role, backbone)
        if backbone.layers_of_document is not None:
            return self._layers_of_document(backbone)
        origin = self.origin(role)
        source, revision = origin if origin is not None else (self._random(backbone, role), None)
        return load_encoder(
            source,
            role,
            max_length=backbone.max_length,
            revision=revision,
            pooling=backbone.pooling,
            projection=saved_projection(backbone),
            model_kwargs=_first_loading(backbone),
        )

    def _layers_of_document(self, backbone: Backbone) -> list[Module]:
        """Return a copy of the document encoder as trained so far, with some of its layers.

        It pools as the document encoder does, because its layers were trained so, unless the recipe sets
        another pooling.
        """
        assert backbone.layers_of_document is not None  # noqa: S101 -- the caller saw to it
        modules: list[Any] = self.modules("document")
        first, means = backbone.layers_of_document[0], None
        if backbone.context_means is not None:
            texts = self._queries(backbone.context_means)
            means = HiddenMeans.of(
                modules[0], [first], texts, pairs=backbone.bigrams or 0, max_length=backbone.max_length
            )
        keep_layers(modules, backbone.layers_of_document)
        if means is not None:
            modules[0] = means.write(modules[0], first)
        with tempfile.TemporaryDirectory() as folder:
            write_encoder(modules[0].model, modules[0].tokenizer, Path(folder))
            loaded: list[Any] = load_encoder(
                folder,
                "query",
                max_length=backbone.max_length,
                pooling=backbone.pooling or modules[1].pooling_mode,
                model_kwargs=_first_loading(backbone),
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
            raise MarError(
                f"context_means: the data entries {', '.join(names)} contain no queries to average over."
            )
        sampled = []
        for row in sample(int(ends[-1]), self.recipe.seed):
            number = int(np.searchsorted(ends, row, side="right"))
            prompt, texts = groups[number]
            sampled.append(prompt + texts[row - int(ends[number])])
        return sampled

    def origin(self, role: Role) -> tuple[str, str | None] | None:
        """Return folder or Hub name, and revision, of the pre-trained weights of a side, if any."""
        backbone: Backbone | None = getattr(self.recipe, role)
        if role in self.cut:
            return str(self.cut[role]), None
        if backbone is None or backbone.source is None:
            return None
        return backbone.source, backbone.revision

    def _random(self, backbone: Backbone, role: Role) -> EncoderSource:
        assert backbone.config is not None  # noqa: S101 -- the recipe's validator saw to it
        assert backbone.tokenizer is not None  # noqa: S101
        used = {entry.name for entry in tokenizer_entries(self.recipe, backbone)}
        texts = distinct(
            *(part for source in self.sources if source.entry.name in used for part in _texts(source))
        )
        # The tokenizer adds the special token at which the encoder is pooled.
        style: Role = {"cls": "query", "lasttoken": "document"}.get(backbone.pooling or "", role)  # type: ignore[assignment]
        tokenizer = train_tokenizer(
            texts, style, max_length=backbone.max_length, **backbone.tokenizer.model_dump()
        )
        settings = {**backbone.config, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        for name in ("bos_token_id", "eos_token_id"):
            settings.setdefault(name, getattr(tokenizer, name))
        config = AutoConfig.for_model(**settings)
        # The sides must not share a stream of random numbers, nor depend on the order of the stages.
        torch.manual_seed(self.recipe.seed + _SEED_OFFSETS["encoder", role])
        return config, tokenizer


def _texts(source: Source) -> list[Sequence[str]]:
    return [Triples.of(source.triples).texts, source.texts]


def _saved(folder: Path, role: Role, backbone: Backbone) -> list[Module]:
    """Return one side of the model that a stage saved."""
    types = [entry["type"] for entry in json.loads((folder / "modules.json").read_text(encoding="utf-8"))]
    if types[0].endswith(".Router"):
        mar = MAR.from_pretrained(folder, routes=role, model_kwargs=_loading(backbone))
        return [
            module
            for module in mar.route_modules(role)
            if not isinstance(module, Normalize) and not is_truncation(module)
        ]
    has_projection = any(kind.endswith(".Dense") for kind in types)
    return load_encoder(
        folder,
        role,
        max_length=backbone.max_length,
        pooling=backbone.pooling,
        projection=backbone.projection if has_projection else None,
        model_kwargs=_loading(backbone),
    )


def _loading(backbone: Backbone) -> dict[str, Any]:
    """Return the arguments for transformers whenever an encoder is loaded."""
    attention = backbone.attn_implementation
    return {} if attention is None else {"attn_implementation": attention}


def _first_loading(backbone: Backbone) -> dict[str, Any]:
    """Return the arguments for a backbone's first load; stages keep the dtype they trained in."""
    return _loading(backbone) | ({} if backbone.dtype is None else {"dtype": backbone.dtype})


def _has_projection(modules: Sequence[Module]) -> bool:
    return any(isinstance(module, Dense) for module in modules)
