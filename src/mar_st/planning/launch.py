"""The launch of a training: its processes, its DeepSpeed configuration, and the stages that it supports."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mar_st.errors import MarError

if TYPE_CHECKING:
    from mar_st.recipes.schema import Stage

#: Environment variable with the path of a DeepSpeed configuration.
DEEPSPEED_VARIABLE = "MAR_DEEPSPEED"

#: Highest ZeRO stage; from 3 on parameters are sharded, but checkpoints hold whole parameters.
MAX_ZERO = 2


@dataclass(frozen=True)
class Launch:
    """Launch settings of training.

    Attributes:
        world: Number of processes, one per device.
        deepspeed: Path of a DeepSpeed configuration.
    """

    world: int = 1
    deepspeed: Path | None = None

    @classmethod
    def here(cls) -> Self:
        """Return the launch of this process, as `torchrun`, `accelerate launch` or `deepspeed` started it."""
        path = os.environ.get(DEEPSPEED_VARIABLE)
        return cls(int(os.environ.get("WORLD_SIZE", "1")), Path(path) if path else None)

    @property
    def zero(self) -> int | None:
        """Return the ZeRO stage; `None` without DeepSpeed.

        Raises:
            MarError: The configuration cannot be read, or asks for unsupported features.
        """
        if self.deepspeed is None:
            return None
        path = self.deepspeed
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            zero = int(content.get("zero_optimization", {}).get("stage", 0))
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise MarError(f"{path} is not a readable DeepSpeed configuration ({error}).") from error
        if zero > MAX_ZERO:
            raise MarError(
                f"{path} asks for ZeRO stage {zero}; stages 0 to {MAX_ZERO} are supported, as checkpoints "
                "hold whole parameters."
            )
        sections = [name for name in ("optimizer", "scheduler") if name in content]
        if sections:
            raise MarError(f"{path} has the section {sections[0]!r}, which the recipe decides; delete it.")
        if find_spec("deepspeed") is None:
            raise MarError(f"{path} needs DeepSpeed, which is not installed: pip install deepspeed")
        return zero

    def check(self, stage: Stage) -> None:
        """Refuse a stage that cannot be trained by this launch.

        GradCache runs backward once per mini-batch inside one backward pass, and a step of several passes
        once per pass. ZeRO 2 reduces each gradient as soon as it is computed and accepts no second one.

        Raises:
            MarError: The stage cannot be trained.
        """
        parts = self.world * stage.gradient_accumulation
        if stage.batch_size % parts:
            raise MarError(
                f"stage {stage.name}: batch_size {stage.batch_size} is over all devices, and {self.world} "
                f"devices with gradient_accumulation {stage.gradient_accumulation} cannot share it evenly. "
                f"Choose a multiple of {parts}."
            )
        cached = stage.mini_batch_size is not None or stage.mini_batch_tokens is not None
        if (cached or stage.gradient_accumulation > 1) and self.zero == 2:
            raise MarError(
                f"stage {stage.name}: ZeRO 2 ({self.deepspeed}) cannot be combined with mini_batch_size "
                "(GradCache) or gradient_accumulation. Use ZeRO 1, which splits the optimiser's state too."
            )
