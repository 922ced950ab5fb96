"""Checkpoints from which a killed run resumes as if it had not been interrupted."""

from __future__ import annotations

import random
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from mar_st.errors import MarError
from mar_st.stages.deepspeed import LENT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn
    from transformers import TrainingArguments

TRAINED_NAME = "trained.safetensors"


class CheckpointError(MarError):
    """A checkpoint that does not belong to the current stage."""


class ResumableTrainer(SentenceTransformerTrainer):
    """sentence-transformers' trainer with checkpoints of the trained parameters only.

    Its own checkpoints are model folders. They leave out the parameters of the loss (a learnt temperature)
    and, for an encoder with LoRA, all but the adapter. A stage begins from a model that it can load again, so
    a checkpoint needs only the trained parameters, including those of the loss; frozen ones do not change.
    """

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters by name: those of the model, then those of the loss."""
        model: Any = getattr(self.model, "_orig_mod", self.model)
        own = [(name, p) for name, p in model.named_parameters() if not name.startswith(LENT_PREFIX)]
        trained = {f"model.{name}": p for name, p in own if p.requires_grad}
        of_model = {id(parameter) for _, parameter in own}
        losses: dict[str, Any] = self.loss if isinstance(self.loss, dict) else {"": self.loss}
        for key, loss in losses.items():
            for name, parameter in loss.named_parameters():
                if id(parameter) not in of_model:  # a loss holds the model
                    trained[f"loss.{key}.{name}"] = parameter
        return trained

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        del state_dict
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        trained = self.trained_parameters()
        tensors = {name: parameter.detach().contiguous() for name, parameter in trained.items()}
        save_file(tensors, str(folder / TRAINED_NAME))

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # The trainer's state is written next and completes the checkpoint; then older ones are deleted.
        if self.args.world_size > 1:
            torch.distributed.barrier()

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        better = super()._determine_best_metric(metrics, trial)
        if self.args.load_best_model_at_end and better:
            self.control.should_save = True
        elif self.control.should_training_stop and self.state.global_step < self.state.max_steps:
            # A run that is killed after this point evaluates this step again, and stops there again.
            self.control.should_save = False
        return better

    def _finalize_training(self, trial: Any, num_train_samples: int, start_time: float) -> Any:
        if self.args.load_best_model_at_end and self.state.best_global_step:
            # The saved path is wrong if the run folder was moved.
            name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
            self.state.best_model_checkpoint = str(Path(str(self.args.output_dir)) / name)
        return super()._finalize_training(trial, num_train_samples, start_time)  # type: ignore[no-untyped-call]

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(str(self.state.best_model_checkpoint))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        del model
        trained = self.trained_parameters()
        file = Path(resume_from_checkpoint) / TRAINED_NAME
        if not file.is_file():
            raise CheckpointError(
                f"{file} is missing, so the stage cannot resume; delete the stage's folder to start again."
            )
        tensors = load_file(file)
        if trained.keys() != tensors.keys():
            raise CheckpointError(
                f"{resume_from_checkpoint} holds other parameters than this stage trains; delete the folder."
            )
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(tensors[name])


def random_state_name(arguments: TrainingArguments) -> str:
    """Return the name of a checkpoint's file with the random state of this process."""
    return "rng_state.pth" if arguments.world_size <= 1 else f"rng_state_{arguments.process_index}.pth"


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Restore all random states afterwards, so that training does not depend on the block."""
    python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 -- the global stream is meant
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(of_numpy)  # noqa: NPY002
