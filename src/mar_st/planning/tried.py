"""Measurements for a plan: the speed of a device, and the times and memory of a stage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """Measured times and memory of a stage.

    Attributes:
        step: Seconds of a typical step: the mean after the warm-up steps.
        once: Seconds that the first steps took beyond typical ones: compilation, first allocations.
        start: Seconds until the first step, without those for teacher vectors; for the first stage, since the
            call.
        teacher: Seconds per text for teacher vectors; 0 for a stage without a teacher.
        evaluation: Seconds of one evaluation on the development set; 0 without one.
        finish: Seconds from the last step to the saved model.
        memory: Peak bytes of a CUDA device, or of the process on a CPU, which returns memory only after it
            has grown by half (`mar_st.stages.memory`), so half is added to the peak of the trial.
    """

    step: float
    once: float
    start: float
    teacher: float
    evaluation: float
    finish: float
    memory: int

    def seconds(self, steps: int, texts: float, evaluations: int) -> float:
        """Return the estimated seconds of a whole stage.

        Args:
            steps: Number of optimiser steps.
            texts: Number of texts that the teacher encodes.
            evaluations: Number of evaluations.
        """
        return (
            self.start + self.once + steps * self.step + texts * self.teacher
            + evaluations * self.evaluation + self.finish
        )  # fmt: skip


@dataclass(frozen=True)
class TrainingSpeed:
    """Measured training speed of this machine.

    Attributes:
        flops: Operations per second (as `training_flops` counts them) of forward and backward passes.
        optimizer: Seconds of an AdamW step per trained parameter.
    """

    flops: float
    optimizer: float
