"""The change of a stage's memory settings that makes it fit a device.

Settings that change no gradient are tried first, in the order of their cost: smaller mini-batches down to
`SMALL_MINI_BATCH` rows, then activation checkpointing, then still smaller mini-batches, then both. If none of
them helps, weights and optimiser state are too large. An adapter may fit instead, but it gives another model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.planning.launch import LaunchError, check_stage
from mar_st.recipes.schema import ContrastiveStage, JointStage, RetroMAEStage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mar_st.planning.launch import Launch
    from mar_st.recipes.schema import Stage

#: Rank of the adapter that is proposed if training all weights needs too much memory.
LORA_R = 32

#: Rows of a mini-batch below which a GPU is underused.
SMALL_MINI_BATCH = 8


def candidates(stage: Stage, world: int) -> Iterator[dict[str, Any]]:
    """Yield changes to try, in order: fields of the stage and their values.

    Args:
        stage: The stage.
        world: Number of devices.
    """
    key, values = _sizes(stage, stage.batch_size // world)
    large = [value for value, rows in values if rows >= SMALL_MINI_BATCH]
    small = [value for value, rows in values if rows < SMALL_MINI_BATCH]
    yield from ({key: value} for value in large)
    if not stage.gradient_checkpointing:
        yield {"gradient_checkpointing": True}
    yield from ({key: value} for value in small)
    if not stage.gradient_checkpointing:
        yield from ({"gradient_checkpointing": True, key: value} for value in (*large, *small))
    if isinstance(stage, ContrastiveStage | JointStage) and stage.lora_r is None and _may_adapt(stage):
        yield {"lora_r": LORA_R}
        yield from ({"lora_r": LORA_R, key: value} for value in (*large, *small))


def _may_adapt(stage: Stage) -> bool:
    return not (isinstance(stage, JointStage) and stage.freeze == "document")


def keeps_gradients(settings: Sequence[str]) -> bool:
    """Return True if settings change only memory; an adapter gives another model."""
    return not any(setting.partition("=")[0].endswith(".lora_r") for setting in settings)


def _sizes(stage: Stage, rows: int) -> tuple[str, list[tuple[int, int]]]:
    """Return the field that sets the rows of a pass, and values for smaller passes with their rows."""
    if isinstance(stage, RetroMAEStage) and stage.gradient_accumulation > 1:
        counts = [2**k for k in range(1, rows.bit_length() + 1) if stage.gradient_accumulation < 2**k <= rows]
        return "gradient_accumulation", [(count, -(-rows // count)) for count in counts]
    now = min(stage.mini_batch_size or rows, rows)
    return "mini_batch_size", [(2**k, 2**k) for k in range(now.bit_length(), -1, -1) if 2**k < now]


def search(
    stage: Stage, launch: Launch, memory_of: Callable[[Stage], float], usable: float
) -> dict[str, Any] | None:
    """Return the first of the candidates with which a stage fits; `None` if none does.

    Args:
        stage: A stage that does not fit unchanged.
        launch: How training is started.
        memory_of: Returns the bytes that a stage needs on a device.
        usable: Usable bytes of a device.
    """
    for change in candidates(stage, launch.world):
        changed = stage.model_copy(update=change)
        try:
            check_stage(changed, launch)
        except LaunchError:
            continue
        if memory_of(changed) <= usable:
            return change
    return None


def as_settings(stage: Stage, change: dict[str, Any]) -> list[str]:
    """Return a change as `--set` takes it."""
    return [f"stages.{stage.name}.{key}={str(value).lower()}" for key, value in change.items()]
