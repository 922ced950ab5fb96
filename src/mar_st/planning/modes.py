"""Training modes of a recipe's encoders in its stages: full, LoRA, or frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mar_st.planning.costs import Training
from mar_st.recipes.rules import trained_sides
from mar_st.recipes.schema import AlignStage, ContrastiveStage, DistillStage, JointStage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mar_st.planning.backbones import Shape
    from mar_st.recipes.schema import Recipe, Side, Stage


def training_of(stage: Stage, side: Side, shape: Shape, precision: str) -> Training:
    """Return the training settings of a side in a stage."""
    mode: Literal["full", "lora", "frozen"] = "full"
    if (
        (isinstance(stage, AlignStage) and side == "document")
        or (isinstance(stage, DistillStage) and side != stage.side)
        or (isinstance(stage, JointStage) and stage.freeze == side)
    ):
        mode = "frozen"
    lora = isinstance(stage, ContrastiveStage) or (isinstance(stage, JointStage) and side == "document")
    r, targets = (stage.lora_r, stage.lora_targets) if lora else (None, None)  # type: ignore[union-attr]
    if r is not None and mode == "full":
        mode = "lora"
    return Training(
        mode=mode,
        lora_r=r or 0,
        lora_targets=targets,
        checkpointing=stage.gradient_checkpointing and mode != "frozen",
        gradcache=stage.gradcache and mode != "frozen" and stage.stage != "retromae",
        bf16=precision == "bf16",
        dtype="float32" if mode == "full" or precision == "fp32" else shape.dtype,
    )


def held_dtypes(recipe: Recipe, shapes: Mapping[Side, Shape]) -> dict[tuple[str, Side], str]:
    """Return the dtype of a side where a stage does not train its weights, by name of the stage and side.

    It is the dtype the backbone is loaded in, until a stage trains the side in full or merges LoRA into
    float32.
    """
    held = {side: shape.dtype for side, shape in shapes.items()}
    dtypes: dict[tuple[str, Side], str] = {}
    for stage in recipe.stages:
        dtypes |= {(stage.name, side): dtype for side, dtype in held.items()}
        for side in shapes:
            mode = training_of(stage, side, shapes[side], recipe.precision).mode
            trained = side in trained_sides(stage) and mode != "frozen"
            whole = mode == "full" or getattr(stage, "lora_merge_dtype", "stored") == "float32"
            if trained and whole:
                held[side] = "float32"
    return dtypes
