"""Launch settings of training, and checks, before any weights are loaded, that a recipe can run with them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mar_st.errors import MarError
from mar_st.recipes.schema import RetroMAEStage

if TYPE_CHECKING:
    from collections.abc import Collection

    from mar_st.recipes.schema import Recipe, Stage

#: Environment variable with the path of a DeepSpeed configuration.
DEEPSPEED_VARIABLE = "MAR_DEEPSPEED"

#: Highest ZeRO stage; from 3 on parameters are sharded, but checkpoints hold whole parameters.
MAX_ZERO = 2

#: Sections that a DeepSpeed configuration leaves to the recipe.
RECIPE_SECTIONS = ("optimizer", "scheduler")


class LaunchError(MarError):
    """Stages that cannot be trained the way training was started; the message says what to change."""


@dataclass(frozen=True)
class Launch:
    """Launch settings of training.

    Attributes:
        world: Number of processes, one per device.
        deepspeed: Path of a DeepSpeed configuration.
        installed: True if DeepSpeed is installed.
        bf16: True if the devices support bfloat16.
    """

    world: int = 1
    deepspeed: Path | None = None
    installed: bool = True
    bf16: bool = True

    @classmethod
    def here(cls, deepspeed: str | Path | None = None) -> Self:
        """Return the launch of this process.

        Args:
            deepspeed: Path of a DeepSpeed configuration; default `$MAR_DEEPSPEED`.
        """
        import torch  # lazy: torch

        path = deepspeed or os.environ.get(DEEPSPEED_VARIABLE)
        return cls(
            world_size(),
            Path(path) if path else None,
            installed=find_spec("deepspeed") is not None,
            bf16=not torch.cuda.is_available() or torch.cuda.is_bf16_supported(including_emulation=False),
        )

    @property
    def zero(self) -> int | None:
        """Return the ZeRO stage; `None` without DeepSpeed.

        Raises:
            LaunchError: The configuration cannot be read, or asks for unsupported features.
        """
        if self.deepspeed is None:
            return None
        path = self.deepspeed
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            zero = int(content.get("zero_optimization", {}).get("stage", 0))
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise LaunchError(f"{path} is not a readable DeepSpeed configuration ({error}).") from error
        if zero > MAX_ZERO:
            raise LaunchError(
                f"{path} asks for ZeRO stage {zero}; stages 0 to {MAX_ZERO} are supported, as checkpoints "
                "hold whole parameters."
            )
        for name in RECIPE_SECTIONS:
            if name in content:
                raise LaunchError(
                    f"{path} has the section {name!r}, which would replace the recipe's learning rates and "
                    "weight decay. Delete the section."
                )
        if not self.installed:
            raise LaunchError(f"{path} needs DeepSpeed, which is not installed: pip install deepspeed")
        return zero


def world_size() -> int:
    """Return the number of processes that `torchrun`, `accelerate launch` or `deepspeed` started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rows_per_device(stage: Stage, world: int) -> int:
    """Return the number of rows that each process takes of a batch.

    Raises:
        LaunchError: The processes cannot share the batch evenly.
    """
    if stage.batch_size % world:
        raise LaunchError(
            f"stage {stage.name}: batch_size {stage.batch_size} is over all devices, and {world} devices "
            f"cannot share it evenly. Choose a multiple of {world}, for instance "
            f"{max(1, round(stage.batch_size / world)) * world}, or another number of devices."
        )
    return stage.batch_size // world


def pass_sizes(stage: Stage, rows: int) -> list[int]:
    """Return the rows of each pass of a device in an optimiser step, see `mar_st.stages.accumulation`.

    Args:
        stage: The stage.
        rows: Rows per device.
    """
    if isinstance(stage, RetroMAEStage) and stage.mini_batch_size is not None:
        whole, rest = divmod(rows, stage.mini_batch_size)
        return [stage.mini_batch_size] * whole + ([rest] if rest else [])
    least, more = divmod(rows, stage.gradient_accumulation)
    sizes = [least + 1] * more + [least] * (stage.gradient_accumulation - more)
    return [size for size in sizes if size]


def check_stage(stage: Stage, launch: Launch) -> None:
    """Refuse a stage that cannot be trained by this launch.

    GradCache runs backward once per mini-batch inside one backward pass, and a step of several passes once
    per pass. ZeRO 2 reduces each gradient as soon as it is computed and accepts no second one.

    Raises:
        LaunchError: The stage cannot be trained.
    """
    rows = rows_per_device(stage, launch.world)
    compares = not isinstance(stage, RetroMAEStage)
    if rows // stage.gradient_accumulation < (2 if compares and stage.gradient_accumulation > 1 else 1):
        raise LaunchError(
            f"stage {stage.name}: {rows} rows per device cannot be split into gradient_accumulation "
            f"{stage.gradient_accumulation} parts. Choose a larger batch_size or fewer parts or devices."
        )
    several = stage.gradcache or len(pass_sizes(stage, rows)) > 1
    if launch.zero == 2 and several:
        raise LaunchError(
            f"stage {stage.name}: ZeRO 2 ({launch.deepspeed}) cannot be combined with mini_batch_size "
            "(GradCache) or gradient_accumulation. Use ZeRO 1, which splits the optimiser's state as well, "
            "or leave them out."
        )


def check_launch(recipe: Recipe, launch: Launch, names: Collection[str] | None = None) -> None:
    """Check all stages of a recipe against a launch.

    Args:
        recipe: The recipe.
        launch: How training is started.
        names: Stages that still have to be trained; default all.

    Raises:
        LaunchError: Stages cannot be trained; the message names each of them and the reason.
    """
    _ = launch.zero  # an invalid configuration affects all stages
    if recipe.precision == "bf16" and not launch.bf16:
        raise LaunchError(
            f"{recipe.name} trains in bf16, which this GPU does not compute in. Add --set precision=fp32."
        )
    problems = []
    for stage in recipe.stages:
        if names is not None and stage.name not in names:
            continue
        try:
            check_stage(stage, launch)
        except LaunchError as error:
            problems.append(str(error))
    if problems:
        raise LaunchError(" ".join(problems))
