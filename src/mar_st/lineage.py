"""Digest of everything a stage of a recipe depends on: stages with equal digests train equal weights.

The digest of a stage covers its hyperparameters, the content of the data it uses, seed, precision and
prompts, the major versions of the training libraries, and the lineage of each encoder that goes into it: the
stages that trained it before, or the backbone it starts from. Names of recipes and stages, paths, and what
feeds other stages only are left out, so recipes that have a stage in common can share its result.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.card import data_digest
from mar_st.data.records import row_line
from mar_st.errors import MarError
from mar_st.names import model_folder
from mar_st.schema import AlignStage, DistillStage, JointStage, RetroMAEStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import BaseModel

    from mar_st.data import Source, Triple
    from mar_st.inputs import VocabularyCut
    from mar_st.schema import Backbone, Data, Recipe, Side, Stage

#: Raised when the same settings begin to train other weights.
FORMAT = 2
LIBRARIES = ("torch", "transformers", "sentence-transformers")

#: Head and decoder of a finished `retromae` stage, beside its model.
HEAD = "retromae.safetensors"
#: Settings of a data entry that decide what is read, which is what counts; the others act on it.
_READING = {"path", "form", "columns", "where", "limit", "group", "expected_rows"}
#: Settings that came later, with the defaults that train what was trained before them.
_LATER: dict[str, Any] = {
    "lora_merge_dtype": "stored", "dtype": None, "attn_implementation": None, "dropout": None,
    "start_share": 0.0, "mini_batch_tokens": None, "gradient_accumulation": 1,
    "missing_negatives": "refuse",
}  # fmt: skip
#: Settings of a backbone that its origin decides otherwise, see `_backbone`.
_ORIGIN = {
    "source", "revision", "vocabulary", "config", "tokenizer", "tokenizer_data", "layers_of_document",
    "projection",
}  # fmt: skip


def stage_digests(recipe: Recipe, data: Mapping[str, str]) -> list[str]:
    """Digest of every stage of a recipe, in order.

    Args:
        recipe: The recipe.
        data: Digest of the content of every data entry, by name, see `source_digest`.
    """
    trained: dict[Side, str] = {}
    digests = []
    for stage in recipe.stages:
        digest = _digest(_stage(recipe, stage, data, trained))
        digests.append(digest)
        for side in trained_sides(stage):
            trained[side] = digest
    return digests


def encoder_digest(recipe: Recipe, data: Mapping[str, str], side: Side) -> str:
    """Digest of what an encoder of the finished model depends on; equal ones have equal vectors.

    Args:
        recipe: The recipe.
        data: See `stage_digests`.
        side: The encoder.
    """
    trained: dict[Side, str] = {}
    for stage, digest in zip(recipe.stages, stage_digests(recipe, data), strict=True):
        trained |= dict.fromkeys(trained_sides(stage), digest)
    space = [recipe.prompts, recipe.normalise, recipe.storage_dtype]
    if recipe.asymmetric:
        space += [recipe.dim, recipe.renormalise]
    return _digest({"encoder": _encoder(recipe, side, data, trained), "space": space})


def trained_sides(stage: Stage) -> tuple[Side, ...]:
    """The encoders whose weights a stage changes."""
    if isinstance(stage, AlignStage):
        return ("query",)
    if isinstance(stage, JointStage):
        sides: tuple[Side, ...] = ("query", "document")
        return tuple(side for side in sides if side != stage.freeze)
    return (stage.side,)


def joins(stage: Stage) -> bool:
    """Return True if a stage works on both encoders in one space, so that its result is a MAR."""
    return isinstance(stage, AlignStage | JointStage)


def projects(recipe: Recipe, stage: Stage) -> bool:
    """Return True if a stage adds the backbone's projection to its encoder.

    The projection maps into the space of the other side, so the first stage that joins the two sides adds it;
    earlier stages train the encoder without one (HotelMatch and LEAF start from such encoders). In a recipe
    that never joins the sides, the first stage that trains vectors adds it.
    """
    if isinstance(stage, RetroMAEStage):
        return False
    return joins(stage) or not any(joins(other) for other in recipe.stages)


def reads_documents(stage: Stage, entries: Iterable[Data]) -> bool:
    """Return True if a joint stage reads the vectors of its frozen documents in the place of encoding them.

    It encodes them where another model teaches, whose vectors are then the labels, and where both columns of
    symmetric data go through the query encoder.
    """
    if not isinstance(stage, JointStage) or stage.freeze != "document" or stage.teacher_source is not None:
        return False
    return not any(entry.symmetric or entry.missing_negatives == "batch" for entry in entries)


def renormalises_prefixes(recipe: Recipe, stage: Stage) -> bool:
    """Return True if Matryoshka prefixes of one encoder are brought to length 1 before they are scored.

    They are, unless the model that the recipe makes cuts after its normalisation.
    """
    return recipe.renormalise or not getattr(stage, "dims", ())


def stage_entries(recipe: Recipe, stage: Stage) -> tuple[Data, ...]:
    """The data entries of a stage, with its number of negatives in the place of theirs."""
    entries = recipe.data_of(stage)
    negatives = getattr(stage, "negatives", None)
    if negatives is None:
        return entries
    return tuple(entry.model_copy(update={"negatives": negatives}) for entry in entries)


def stage_seed(recipe: Recipe, stage: Stage) -> int:
    """Return the seed of a stage: its own, or the recipe's."""
    return recipe.seed if stage.seed is None else stage.seed


def source_digest(source: Source) -> str:
    """sha256 of what was read for a data entry: its triples and texts."""
    if source.digest is not None:
        return source.digest
    digest = hashlib.sha256()
    rows: Iterable[Triple | str] = itertools.chain(source.triples, source.texts)
    for row in rows:
        digest.update(row_line(row))
    return digest.hexdigest()


def model_digest(source: str, revision: str | None = None) -> str:
    """Identity of a folder (its files) or of a Hub name (its commit, where the local cache knows it)."""
    folder = model_folder(source)
    if folder is not None:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md")
        stamps = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
        return _files_digest(str(folder), stamps)
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(source, "config.json", revision=revision)
    commit = Path(cached).parent.name if isinstance(cached, str) else None
    return f"hub:{source}@{commit or revision or 'main'}"


@lru_cache(maxsize=64)
def _files_digest(folder: str, stamps: Sequence[tuple[str, int, int]]) -> str:
    digest = hashlib.sha256()
    for name, _, _ in stamps:
        digest.update(f"{Path(name).relative_to(folder).as_posix()}\0".encode())
        with Path(name).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def head_file(path: str | Path) -> Path:
    """`retromae.safetensors` that `resume_head` names.

    Raises:
        MarError: There is none.
    """
    file = Path(path).expanduser()
    file = file / HEAD if file.is_dir() else file
    if not file.is_file():
        raise MarError(
            f"resume_head {path}: there is no {file}. Give the folder of a finished retromae stage, for "
            "instance runs/NAME/01-retromae."
        )
    return file


def _stage(
    recipe: Recipe, stage: Stage, data: Mapping[str, str], trained: Mapping[Side, str]
) -> dict[str, Any]:
    """Return everything that a stage depends on."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "libraries": {name: version(name).partition(".")[0] for name in LIBRARIES},
        "stage": _settings(stage, {"name", "data", "negatives", "resume_head"}),
        "data": [
            {**_settings(entry, _READING), "content": data[entry.name]}
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
    """Settings of a part of a recipe; a stage that does not use a later setting keeps its digest."""
    content = part.model_dump(mode="json", exclude=left_out)
    return {name: value for name, value in content.items() if name not in _LATER or value != _LATER[name]}


def _encoder(
    recipe: Recipe, side: Side, data: Mapping[str, str], trained: Mapping[Side, str]
) -> dict[str, Any]:
    """Return the origin of an encoder: its backbone, and the stage that trained it last."""
    backbone: Backbone = getattr(recipe, side)
    content = _settings(backbone, _ORIGIN)
    if side in trained:
        return {**content, "trained": trained[side]}
    if backbone.source is not None:
        content["source"] = model_digest(backbone.source, backbone.revision)
        cut = backbone.vocabulary
        return content if cut is None else {**content, "vocabulary": vocabulary_cut(cut, data)}
    if backbone.layers_of_document is not None:
        return {
            **content,
            "layers": backbone.layers_of_document,
            "of": _encoder(recipe, "document", data, trained),
        }
    assert backbone.tokenizer is not None  # noqa: S101 -- the recipe's validator saw to it
    return {
        **content,
        "side": side,
        "config": backbone.config,
        "tokenizer": backbone.tokenizer.model_dump(mode="json"),
        "texts": [data[entry.name] for entry in tokenizer_entries(recipe, backbone)],
    }


def vocabulary_cut(cut: VocabularyCut, data: Mapping[str, str]) -> dict[str, Any]:
    """Say what decides which pieces of a vocabulary are kept.

    Args:
        cut: The setting of a backbone.
        data: Digest of the content of every data entry, by name.
    """
    return {"keep": cut.keep, "texts": [data.get(name) or data_digest(name) for name in cut.texts]}


def tokenizer_entries(recipe: Recipe, backbone: Backbone) -> tuple[Data, ...]:
    """The data entries whose texts the tokenizer of a random backbone is trained on."""
    named = backbone.tokenizer_data
    return tuple(entry for entry in recipe.data if named is None or entry.name in named)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
