"""Rules that follow from a recipe: the encoders a stage trains, and the data it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.recipes.schema import AlignStage, Backbone, Data, JointStage, Recipe, RetroMAEStage, Side, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


#: Maximum texts over which hidden states are averaged, see `Backbone.context_means`.
CONTEXT_TEXTS = 32_768


def joins(stage: Stage) -> bool:
    """Return True if a stage works on both encoders in one space, so that its result is a MAR."""
    return isinstance(stage, AlignStage | JointStage)


def trained_sides(stage: Stage) -> tuple[Side, ...]:
    """Return the encoders whose weights a stage changes."""
    if isinstance(stage, AlignStage):
        return ("query",)
    if isinstance(stage, JointStage):
        sides: tuple[Side, ...] = ("query", "document")
        return tuple(side for side in sides if side != stage.freeze)
    return (stage.side,)


def used_sides(stage: Stage) -> tuple[Side, ...]:
    """Return the encoders of the recipe that a stage trains or learns from."""
    if joins(stage):
        return ("query", "document")
    sides: list[Side] = [stage.side]  # type: ignore[union-attr]
    if stage.stage == "distill" and stage.teacher_source is None:
        sides.append(stage.teacher)  # type: ignore[arg-type]
    return tuple(sides)


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
    """Return True if a joint stage reads the vectors of its frozen documents instead of encoding them.

    It encodes them if another model teaches, whose vectors are then the labels, or if both columns of
    symmetric data go through the query encoder.
    """
    if not isinstance(stage, JointStage) or stage.freeze != "document" or stage.teacher_source is not None:
        return False
    return not any(entry.symmetric for entry in entries)


def renormalises_prefixes(recipe: Recipe, stage: Stage) -> bool:
    """Return True if Matryoshka prefixes of one encoder are renormalised before they are scored.

    They are, unless the recipe's model cuts after its normalisation.
    """
    return recipe.renormalise or not getattr(stage, "dims", ())


def stage_entries(recipe: Recipe, stage: Stage) -> tuple[Data, ...]:
    """Return the data entries of a stage, with the stage's number of negatives instead of theirs."""
    entries = recipe.data_of(stage)
    negatives = getattr(stage, "negatives", None)
    if negatives is None:
        return entries
    return tuple(entry.model_copy(update={"negatives": negatives}) for entry in entries)


def stage_seed(recipe: Recipe, stage: Stage) -> int:
    """Return the seed of a stage: its own, or the recipe's."""
    return recipe.seed if stage.seed is None else stage.seed


def tokenizer_entries(recipe: Recipe, backbone: Backbone) -> tuple[Data, ...]:
    """Return the data entries whose texts the tokenizer of a random backbone is trained on."""
    named = backbone.tokenizer_data
    return tuple(entry for entry in recipe.data if named is None or entry.name in named)


def used_entries(recipe: Recipe) -> tuple[Data, ...]:
    """Return the data entries that a stage trains on or an encoder is made from."""
    names = {entry.name for stage in recipe.stages for entry in recipe.data_of(stage)}
    for backbone in recipe.backbones.values():
        if backbone.tokenizer is not None:
            names.update(entry.name for entry in tokenizer_entries(recipe, backbone))
        names.update(backbone.context_means or (), backbone.vocabulary.texts if backbone.vocabulary else ())
    return tuple(entry for entry in recipe.data if entry.name in names)


def check_widths(recipe: Recipe, widths: Mapping[Side, tuple[int, int]]) -> None:
    """Check that the dimensions of a recipe fit its encoders.

    Args:
        recipe: The recipe.
        widths: Per side, the width of the hidden states and that of the vectors.

    Raises:
        MarError: They do not fit.
    """
    if recipe.asymmetric and (widths["query"][1] != recipe.dim or widths["document"][1] < recipe.dim):
        raise MarError(
            f"dim is {recipe.dim}, but vectors of the query encoder have {widths['query'][1]} dimensions and "
            f"those of the document encoder {widths['document'][1]}. The query encoder needs as many as dim "
            "(or a projection), the document encoder at least as many."
        )
    for stage in recipe.stages:
        trained, dims = getattr(stage, "side", None), getattr(stage, "dims", ())
        width = recipe.dim if trained is None else widths[trained][projects(recipe, stage)]
        if dims and max(dims) > width:
            raise MarError(f"stage {stage.name}: dims {tuple(dims)} exceed the width {width}.")
