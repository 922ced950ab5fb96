"""Checkpoints from which a killed run goes on as if nothing had happened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from transformers.trainer import TRAINER_STATE_NAME

if TYPE_CHECKING:
    from torch import nn

TRAINED_NAME = "trained.safetensors"


class ResumableTrainer(SentenceTransformerTrainer):
    """sentence-transformers' trainer with checkpoints of what is trained, and of nothing else.

    Its own checkpoints are model folders, which leave out the parameters of the loss (a learnt temperature)
    and, of an encoder with LoRA, all but the adapter. A stage begins from a model that it can load again, so
    a checkpoint needs the trained parameters alone, those of the loss included; frozen ones stay as they are.
    """

    def _trained(self) -> dict[str, nn.Parameter]:
        model: Any = getattr(self.model, "_orig_mod", self.model)
        found = {f"model.{name}": p for name, p in model.named_parameters() if p.requires_grad}
        of_model = {id(parameter) for parameter in model.parameters()}
        losses: dict[str, Any] = self.loss if isinstance(self.loss, dict) else {"": self.loss}
        for key, loss in losses.items():
            for name, parameter in loss.named_parameters():
                if id(parameter) not in of_model:  # a loss holds the model
                    found[f"loss.{key}.{name}"] = parameter
        return found

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        del state_dict
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: parameter.detach().contiguous() for name, parameter in self._trained().items()}
        save_file(tensors, str(folder / TRAINED_NAME))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        del model
        trained, tensors = self._trained(), load_file(Path(resume_from_checkpoint) / TRAINED_NAME)
        if trained.keys() != tensors.keys():
            raise ValueError(
                f"{resume_from_checkpoint} holds other parameters than this stage trains; delete the folder."
            )
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(tensors[name])


def last_checkpoint(folder: Path) -> str | None:
    """The newest complete checkpoint below `folder`; those cut off while they were written are deleted."""
    numbered = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    for _, path in sorted(numbered.items(), reverse=True):
        try:
            # The last file to be written.
            json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(path)
        else:
            return str(path)
    return None
