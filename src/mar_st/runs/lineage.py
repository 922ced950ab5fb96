"""Digest of everything a stage of a recipe depends on: stages with equal digests train equal weights.

The digest of a stage covers its hyperparameters, the content of the data it uses, seed, precision and
prompts, the major versions of the training libraries, and the lineage of each of its encoders: the stages
that trained it before, or the backbone it starts from. Names of recipes and stages, paths, and inputs of
other stages are left out, so recipes that have a stage in common can share its result.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from mar_st.data.training import data_digest, vocabulary_cut
from mar_st.model.digest import model_digest
from mar_st.recipes.rules import (
    joins,
    projects,
    renormalises_prefixes,
    stage_entries,
    stage_seed,
    tokenizer_entries,
    trained_sides,
    used_sides,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mar_st.recipes.schema import Recipe, Side, Stage

#: Incremented when a change of the code makes the same settings train other weights.
FORMAT = 4
LIBRARIES = ("torch", "transformers", "sentence-transformers")

#: Settings of a data entry that decide which rows are read. The digest covers the content instead of these.
_READING_SETTINGS = {"path", "form", "columns", "where", "limit", "expected_rows"}
#: Settings of a backbone that are part of its origin instead, see `_encoder`.
_ORIGIN_SETTINGS = {
    "source", "revision", "vocabulary", "config", "tokenizer", "tokenizer_data", "layers_of_document",
    "context_means", "bigrams", "projection",
}  # fmt: skip


def stage_digests(recipe: Recipe, data: Mapping[str, str]) -> list[str]:
    """Return the digest of every stage of a recipe, in order.

    Args:
        recipe: The recipe.
        data: Content digest of every data entry, by name, see `mar_st.data.data_digest`.
    """
    drawn = {entry.name for entry in recipe.data if entry.limit is not None}  # with the seed of the recipe
    data = {name: f"{digest} {recipe.seed}" if name in drawn else digest for name, digest in data.items()}
    trained: dict[Side, str] = {}
    digests = []
    for stage in recipe.stages:
        content = json.dumps(_stage(recipe, stage, data, trained), sort_keys=True, ensure_ascii=False)
        digests.append(hashlib.sha256(content.encode()).hexdigest())
        trained |= dict.fromkeys(trained_sides(stage), digests[-1])
    return digests


def _stage(
    recipe: Recipe, stage: Stage, data: Mapping[str, str], trained: Mapping[Side, str]
) -> dict[str, Any]:
    """Return everything that a stage depends on."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "libraries": {name: version(name).partition(".")[0] for name in LIBRARIES},
        "stage": stage.model_dump(mode="json", exclude={"name", "data", "negatives", "seed"}),
        "data": [
            {**entry.model_dump(mode="json", exclude=_READING_SETTINGS), "content": data[entry.name]}
            for entry in stage_entries(recipe, stage)
        ],
        "seed": stage_seed(recipe, stage),
        "recipe": recipe.model_dump(mode="json", include={"prompts", "precision", "compile", "normalise"}),
        "renormalise": recipe.renormalise if joins(stage) else renormalises_prefixes(recipe, stage),
        "dim": recipe.dim if joins(stage) else None,
    }
    if recipe.evaluation is not None and recipe.evaluation.keep == "best":
        content["evaluation"] = recipe.evaluation.model_dump(mode="json", exclude={"path"})
        content["evaluation"]["content"] = data_digest(recipe.evaluation.path)
    if getattr(stage, "kl_weight", 0.0) and getattr(stage, "teacher_source", None):
        content["teacher"] = model_digest(stage.teacher_source)  # type: ignore[union-attr,arg-type]
    for side in used_sides(stage):
        content[side] = _encoder(recipe, side, data, trained)
        projection = recipe.backbones[side].projection
        if projection is not None and projects(recipe, stage):
            content[side]["projection"] = [projection, recipe.seed]
    return content


def _encoder(
    recipe: Recipe, side: Side, data: Mapping[str, str], trained: Mapping[Side, str]
) -> dict[str, Any]:
    """Return the origin of an encoder: its backbone, and the stage that trained it last."""
    backbone = recipe.backbones[side]
    content = backbone.model_dump(mode="json", exclude=_ORIGIN_SETTINGS)
    if side in trained:
        content["trained"] = trained[side]
    elif backbone.source is not None:
        content["source"] = model_digest(backbone.source, backbone.revision)
        if backbone.vocabulary is not None:
            content["vocabulary"] = vocabulary_cut(backbone.vocabulary, data)
    elif backbone.layers_of_document is not None:
        content |= {"layers": backbone.layers_of_document, "of": _encoder(recipe, "document", data, trained)}
        if backbone.context_means is not None:
            means = [recipe.seed, *(data[name] for name in backbone.context_means)]
            content |= {"context_means": means, "bigrams": backbone.bigrams}
    else:
        content |= {
            "side": side,
            "config": backbone.config,
            "tokenizer": backbone.model_dump(mode="json", include={"tokenizer"}),
            "texts": [data[entry.name] for entry in tokenizer_entries(recipe, backbone)],
        }
    if side not in trained and backbone.source is None:
        content["seed"] = recipe.seed
    return content
