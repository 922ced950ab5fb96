"""What a DeepSpeed configuration cannot do together with a stage."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.stages.arguments import DEEPSPEED, ArgumentsError

if TYPE_CHECKING:
    from mar_st.schema import Stage
    from mar_st.stages.trainer import Settings


def check_deepspeed(stage: Stage, settings: Settings) -> None:
    """Refuse what DeepSpeed would refuse in the middle of a step, or get wrong without a word.

    A learnt temperature is a parameter of the loss, which DeepSpeed does not know: ZeRO 0 would not average
    its gradient over the processes, ZeRO 1 and 2 fail on it. GradCache goes backward once per mini-batch,
    where ZeRO 2 hands each gradient out at once and takes no second one.

    Args:
        stage: The stage.
        settings: Those of the run; a configuration may also be named in the environment (`MAR_DEEPSPEED`).

    Raises:
        ArgumentsError: The stage needs one of these.
    """
    path = settings.deepspeed or os.environ.get(DEEPSPEED)
    if not path:
        return
    if getattr(stage, "learnable_temperature", False):
        raise ArgumentsError(
            f"stage {stage.name}: DeepSpeed ({path}) cannot train a learnable temperature. Run this stage "
            "without a DeepSpeed configuration, or set learnable_temperature to false."
        )
    try:
        zero = json.loads(Path(path).read_text(encoding="utf-8")).get("zero_optimization", {}).get("stage", 0)
    except (OSError, ValueError, AttributeError):
        return  # `training_arguments` says what is wrong with it
    if zero == 2 and stage.gradcache:
        raise ArgumentsError(
            f"stage {stage.name}: ZeRO 2 ({path}) cannot be combined with mini_batch_size (GradCache). Use "
            "ZeRO 1, which splits the optimiser's state as well, or leave mini_batch_size out."
        )
