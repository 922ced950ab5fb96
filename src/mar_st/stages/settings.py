"""Settings that a stage receives from its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mar_st.stages.reports import RunCallback
from mar_st.teachers.store import TeacherStore, store_root

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.recipes.schema import Evaluation


@dataclass(frozen=True)
class StageSettings:
    """Settings that a stage receives from the run it belongs to.

    Attributes:
        folder: Folder of checkpoints, metrics and plots.
        seed: Seed of the stage, see `mar_st.recipes.rules.stage_seed`.
        precision: `fp32`, or `bf16` for autocast.
        save_steps: Steps between checkpoints.
        evaluation: Retrieval on a development set while training.
        deepspeed: Path of a DeepSpeed configuration (ZeRO 0 to 2); default `$MAR_DEEPSPEED`.
        workers: Processes that read and tokenise ahead; 0 does it between the steps, `None` is automatic.
        compile: Compile the encoders with `torch.compile`.
        callbacks: transformers callbacks of the caller, for every stage.
        report_to: Trackers that transformers reports to (`wandb`, `mlflow`, ...).
        store: Folder of teacher vectors; default `$MAR_STORE`, else `teacher-store` beside the run folder.
    """

    folder: Path
    seed: int
    precision: str = "fp32"
    save_steps: int = 200
    evaluation: Evaluation | None = None
    deepspeed: str | Path | None = None
    workers: int | None = None
    compile: bool = False
    callbacks: tuple[Any, ...] = ()
    report_to: tuple[str, ...] = ()
    store: Path | None = None

    @property
    def run_callbacks(self) -> tuple[RunCallback, ...]:
        """Return the callbacks that receive events outside the trainers."""
        return tuple(callback for callback in self.callbacks if isinstance(callback, RunCallback))

    def teacher_store(self) -> TeacherStore:
        """Return the store of teacher vectors, which reports encoded texts to the callbacks."""

        def encoded(texts: int, seconds: float) -> None:
            for callback in self.run_callbacks:
                callback.on_teacher_encode(texts, seconds)

        return TeacherStore(self.store or store_root(self.folder.resolve().parent), on_encode=encoded)
