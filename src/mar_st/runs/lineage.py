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

from mar_st.data import data_digest, vocabulary_cut
from mar_st.model.digest import model_digest
from mar_st.recipes.rules import (
    head_file,
    joins,
    projects,
    reads_documents,
    renormalises_prefixes,
    stage_entries,
    stage_seed,
    tokenizer_entries,
    trained_sides,
)
from mar_st.recipes.schema import DistillStage, JointStage, RetroMAEStage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from mar_st.recipes.schema import Backbone, Recipe, Side, Stage

#: Incremented when a change of the code makes the same settings train other weights.
FORMAT = 2
LIBRARIES = ("torch", "transformers", "sentence-transformers")

#: Settings of a data entry that decide which rows are read. The digest covers the content instead of these.
_READING_SETTINGS = {"path", "form", "columns", "where", "limit", "group", "expected_rows"}
#: Settings that were added later, with the defaults that train the same weights as before.
_LATER_SETTINGS: dict[str, Any] = {
    "lora_merge_dtype": "stored", "dtype": None, "attn_implementation": None, "dropout": None,
    "start_share": 0.0, "mini_batch_tokens": None, "gradient_accumulation": 1,
    "missing_negatives": "refuse", "mine": None,
}  # fmt: skip
#: Settings of a backbone that are part of its origin instead, see `_backbone`.
_ORIGIN_SETTINGS = {
    "source", "revision", "vocabulary", "config", "tokenizer", "tokenizer_data", "layers_of_document",
    "context_means", "bigrams", "projection",
}  # fmt: skip


def stage_digests(recipe: Recipe, data: Mapping[str, str]) -> list[str]:
    """Return the digest of every stage of a recipe, in order.

    Args:
        recipe: The recipe.
        data: Content digest of every data entry, by name, see `data.content.source_digest`.
    """
    trained: dict[Side, str] = {}
    digests = []
    for stage in recipe.stages:
        digest = _digest(_stage(recipe, stage, data, trained))
        digests.append(digest)
        for side in trained_sides(stage):
            trained[side] = digest
    return digests


def encoder_digest(recipe: Recipe, data: Mapping[str, str], side: Side, *, whole: bool = False) -> str:
    """Return the digest of all that a finished encoder depends on; equal digests mean equal vectors.

    Args:
        recipe: The recipe.
        data: See `stage_digests`.
        side: The encoder.
        whole: The encoder's vectors have the width of its hidden states. Then a MAR and a symmetric model
            that share the encoder have the same digest.
    """
    trained: dict[Side, str] = {}
    for stage, digest in zip(recipe.stages, stage_digests(recipe, data), strict=True):
        trained |= dict.fromkeys(trained_sides(stage), digest)
    space = [recipe.prompts, recipe.normalise, recipe.storage_dtype]
    if recipe.asymmetric and not whole:
        space += [recipe.dim, recipe.renormalise]
    return _digest({"encoder": _encoder(recipe, side, data, trained), "space": space})


def _stage(
    recipe: Recipe, stage: Stage, data: Mapping[str, str], trained: Mapping[Side, str]
) -> dict[str, Any]:
    """Return everything that a stage depends on."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "libraries": {name: version(name).partition(".")[0] for name in LIBRARIES},
        "stage": _settings(stage, {"name", "data", "negatives", "resume_head"}),
        "data": [
            {**_settings(entry, _READING_SETTINGS), "content": data[entry.name]}
            for entry in stage_entries(recipe, stage)
        ],
        "prompts": recipe.prompts,
        "seed": stage_seed(recipe, stage),
        "precision": recipe.precision,
        "compile": recipe.compile,
    }
    if recipe.evaluation is not None and recipe.evaluation.decides:
        content["evaluation"] = recipe.evaluation.model_dump(mode="json", exclude={"path"})
        if recipe.evaluation.path is not None:
            content["evaluation"]["content"] = data_digest(recipe.evaluation.path)
    if isinstance(stage, RetroMAEStage):
        if stage.resume_head is None:
            content["head"] = "of the backbone" if getattr(recipe.query, "source", None) else "random"
        else:
            with head_file(stage.resume_head).open("rb") as stream:
                content["head"] = hashlib.file_digest(stream, "sha256").hexdigest()
    if isinstance(stage, DistillStage | JointStage) and stage.taught and stage.teacher_source:
        content["teacher"] = model_digest(stage.teacher_source)
    if reads_documents(stage, stage_entries(recipe, stage)):
        content["documents"] = "read"
    if not renormalises_prefixes(recipe, stage):
        content["renormalise"] = False
    sides: dict[str, Side] = {"query": "query", "document": "document"}
    if joins(stage):
        content |= {"dim": recipe.dim, "renormalise": recipe.renormalise}
    else:
        content["normalise"] = recipe.normalise
        used = {getattr(stage, "side", None)}
        if isinstance(stage, DistillStage):
            used.add(stage.teacher)
        sides = {name: side for name, side in sides.items() if name in used}
    for name, side in sides.items():
        content[name] = _encoder(recipe, side, data, trained)
        projection = getattr(recipe, name).projection
        if projection is not None and projects(recipe, stage):
            content[name]["projection"] = projection
    return content


def _settings(part: BaseModel, left_out: set[str]) -> dict[str, Any]:
    """Return settings of a part of a recipe; a stage that does not use a later setting keeps its digest."""
    content = part.model_dump(mode="json", exclude=left_out)
    return {
        name: value
        for name, value in content.items()
        if name not in _LATER_SETTINGS or value != _LATER_SETTINGS[name]
    }


def _encoder(
    recipe: Recipe, side: Side, data: Mapping[str, str], trained: Mapping[Side, str]
) -> dict[str, Any]:
    """Return the origin of an encoder: its backbone, and the stage that trained it last."""
    backbone: Backbone = getattr(recipe, side)
    content = _settings(backbone, _ORIGIN_SETTINGS)
    if side in trained:
        return {**content, "trained": trained[side]}
    if backbone.source is not None:
        content["source"] = model_digest(backbone.source, backbone.revision)
        cut = backbone.vocabulary
        return content if cut is None else {**content, "vocabulary": vocabulary_cut(cut, data)}
    if backbone.layers_of_document is not None:
        content |= {"layers": backbone.layers_of_document, "of": _encoder(recipe, "document", data, trained)}
        if backbone.context_means is not None:
            content["context_means"] = [recipe.seed, *(data[name] for name in backbone.context_means)]
        if backbone.bigrams is not None:
            content["bigrams"] = backbone.bigrams
        return content
    assert backbone.tokenizer is not None  # noqa: S101 -- the recipe's validator saw to it
    return {
        **content,
        "side": side,
        "config": backbone.config,
        "tokenizer": backbone.tokenizer.model_dump(mode="json"),
        "texts": [data[entry.name] for entry in tokenizer_entries(recipe, backbone)],
    }


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
