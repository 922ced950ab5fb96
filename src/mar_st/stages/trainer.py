"""Training run shared by all stages: sentence-transformers' Trainer, made resumable for every loss."""

from __future__ import annotations

import json
import math
import os
import random
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.base.modules import Router
from sentence_transformers.base.modules.module import Module
from torch.utils.data import DataLoader

from mar_st.errors import MarError
from mar_st.stages.collate import COUNTS_KEY
from mar_st.teachers.store import TeacherStore, store_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sentence_transformers import SentenceTransformer
    from torch import nn

    from mar_st.recipes.schema import Evaluation
    from mar_st.stages.samplers import TrainBatches, TrainRows

#: All log records of a stage, beside its folder of checkpoints.
METRICS_FILE = "metrics.jsonl"

#: Trained parameters, in a checkpoint; prefix of the loss's parameters while DeepSpeed holds them.
TRAINED_NAME, LENT_PREFIX = "trained.safetensors", "loss__"


@dataclass(frozen=True)
class StageSettings:
    """Settings that a stage receives from the run it belongs to.

    Attributes:
        folder: Folder of checkpoints and metrics.
        seed: Seed of the stage, see `mar_st.recipes.rules.stage_seed`.
        precision: `fp32`, or `bf16` for autocast.
        save_steps: Steps between checkpoints.
        evaluation: Retrieval on a development set while training.
        compile: Compile the encoders with `torch.compile`.
        report_to: Trackers that transformers reports to (`wandb`, `tensorboard`, ...).
        store: Folder of teacher vectors; default `$MAR_STORE`, else `teacher-store` beside the run folder.
    """

    folder: Path
    seed: int
    precision: str = "fp32"
    save_steps: int = 200
    evaluation: Evaluation | None = None
    compile: bool = False
    report_to: tuple[str, ...] = ()
    store: Path | None = None

    def teacher_store(self) -> TeacherStore:
        """Return the store of teacher vectors."""
        return TeacherStore(self.store or store_root(self.folder.resolve().parent))


class StageTrainer(SentenceTransformerTrainer):
    """The trainer of a stage: its batches, its gradients over processes, its records and checkpoints.

    A batch of the loader is one optimiser step, or one pass of it (`gradient_accumulation`); processes split
    it. Gradients are averaged over the processes here, once per step, including those of the loss's
    parameters. DistributedDataParallel would leave those out, and it cannot handle a loss that runs the model
    several times per step (routes, GradCache).

    sentence-transformers' checkpoints are model folders. They leave out the parameters of the loss (a learnt
    temperature) and, for an encoder with LoRA, all but the adapter. A stage begins from a model that it can
    load again, so a checkpoint holds only the trained parameters, including those of the loss.

    A loss may set `last_parts`, a dict of name to detached tensor; their means are logged as `loss_<name>`.

    Args:
        rows: The training data.
        batches: Which rows make up a batch.
        stage: Name of the stage, for messages.
        **kwargs: Arguments of the trainer.
    """

    def __init__(self, rows: TrainRows, batches: TrainBatches, stage: str, **kwargs: Any) -> None:
        self.rows, self.batches, self.stage = rows, batches, stage
        super().__init__(**kwargs)
        self._frozen = _frozen_modules(self.model)
        self._averaged: list[nn.Parameter] = []
        self._recorded = 0
        self._restart_counts()
        if self.args.world_size > 1 and not self.is_deepspeed_enabled:
            self._averaged = list(self.trained_parameters().values())
            # Mixed precision without DistributedDataParallel.
            prepare: Any = partial(self.accelerator.prepare_model, evaluation_mode=True)
            self.accelerator.prepare_model = prepare
            for parameter in self._averaged:
                torch.distributed.broadcast(parameter.data, 0)

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters by name: those of the model, then those of the loss."""
        model: Any = getattr(self.model, "_orig_mod", self.model)
        own = [(name, p) for name, p in model.named_parameters() if not name.startswith(LENT_PREFIX)]
        trained = {f"model.{name}": p for name, p in own if p.requires_grad}
        of_model = {id(parameter) for _, parameter in own}
        for name, parameter in self.loss.named_parameters():  # type: ignore[attr-defined]
            if id(parameter) not in of_model:  # a loss holds the model
                trained[f"loss.{name}"] = parameter
        return trained

    # -- data and optimiser --

    def preprocess_dataset(self, dataset: Any = None, dataset_name: str | None = None) -> Any:
        """Return the data unchanged; `TrainRows` names the dataset of each row."""
        self.validate_column_names(dataset, dataset_name=dataset_name)
        return dataset

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Exclude scalars, such as a learnt temperature, from weight decay: zero is not neutral for them."""
        names = super().get_decay_parameter_names(model)
        scalars = {name for name, parameter in model.named_parameters() if parameter.ndim == 0}
        return [name for name in names if name not in scalars]

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add no automatic model card; `mar_st.runs.card` writes one."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of `self.batches`, split over the processes.

        Workers are forked: they share the mapped data and need no copy of the model. They start with every
        epoch and draw nothing at random, so batches do not depend on their number.
        """
        self.accelerator.even_batches = False
        workers = self.args.dataloader_num_workers
        options = {"multiprocessing_context": "fork", "worker_init_fn": _start_worker} if workers else {}
        loader = DataLoader(
            self.rows,
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
            num_workers=workers,
            **options,  # type: ignore[arg-type]
        )
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def create_optimizer(self, model: Any = None) -> Any:
        """Create the optimizer; register the loss's parameters with the model for DeepSpeed.

        DeepSpeed's engine knows only the model's parameters: it would not average the gradients of others
        over the processes (ZeRO 0), or would fail on them (ZeRO 1 and 2). It accepts no scalar parameters, so
        these get one dimension of length 1 meanwhile.
        """
        optimizer = super().create_optimizer(model)
        if self.is_deepspeed_enabled:
            for name, parameter in self.trained_parameters().items():
                if name.startswith("loss."):
                    if not parameter.ndim:
                        parameter.data = parameter.data.reshape(1)
                    self.model.register_parameter(LENT_PREFIX + name.replace(".", "__"), parameter)
        return optimizer

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The trainer sets the epoch of the sampler, unless the wrapper of a resumed epoch hides it.
        self.batches.set_epoch(kwargs["epoch"])
        super()._run_epoch(*args, **kwargs)  # type: ignore[no-untyped-call]

    # -- one step --

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """Run forward and backward, and average the gradients over the processes."""
        texts, tokens = inputs.pop(COUNTS_KEY)
        self._texts, self._tokens = self._texts + texts, self._tokens + tokens  # type: ignore[has-type]
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            self._average_gradients()
        return loss

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a batch; frozen encoders run in evaluation mode, without dropout."""
        for module in self._frozen:
            module.eval()
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        for name, value in getattr(self.loss, "last_parts", {}).items():
            total, number = self._parts.get(name, (0.0, 0))
            self._parts[name] = (total + value.detach(), number + 1)
        return loss

    def _average_gradients(self) -> None:
        for parameter in self._averaged:
            if parameter.grad is not None:
                message = parameter.grad.float()
                torch.distributed.all_reduce(message)
                parameter.grad.copy_(message / self.args.world_size)

    # -- records and evaluations --

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Add the parts of the loss and the throughput of all processes to a record; write `metrics.jsonl`.

        The trainer's mean loss over all steps is left out, because it is wrong after a resume.

        Raises:
            MarError: The loss or the norm of the gradients is not finite.
        """
        logs.pop("train_loss", None)
        if "loss" in logs:
            self._check_finite(logs)
            logs = {
                **logs,
                **{f"loss_{n}": float(total) / count for n, (total, count) in self._parts.items()},
            }
            if getattr(self.loss, "learnable_temperature", False):
                logs["temperature"] = float(self.loss.temperature)  # type: ignore[attr-defined]
            seconds = max(time.perf_counter() - self._since, 1e-9) / self.args.world_size
            logs |= {
                "texts_per_second": round(self._texts / seconds, 2),
                "tokens_per_second": round(self._tokens / seconds, 1),
            }
            if self.args.device.type == "cuda":
                logs["peak_memory_gb"] = round(torch.cuda.max_memory_allocated(self.args.device) / 1e9, 3)
            self._restart_counts()
        super().log(logs, start_time)
        if self.is_world_process_zero():
            # The first record of a process writes those before a resume again.
            path, records = Path(str(self.args.output_dir)).with_name(METRICS_FILE), self.state.log_history
            with path.open("a" if self._recorded else "w", encoding="utf-8") as stream:
                stream.writelines(json.dumps(record) + "\n" for record in records[self._recorded :])
            self._recorded = len(records)

    def _restart_counts(self) -> None:
        self._texts = self._tokens = 0
        self._parts: dict[str, tuple[Any, int]] = {}
        self._since = time.perf_counter()

    def _check_finite(self, logs: dict[str, Any]) -> None:
        bad = {name: logs[name] for name in ("loss", "grad_norm") if not math.isfinite(logs.get(name) or 0.0)}
        if bad:
            raise MarError(
                f"Stage {self.stage} stopped by step {self.state.global_step}: {bad}. The last good "
                f"checkpoint stays in {self.args.output_dir}. Look for broken texts or labels, lower "
                "learning_rate, raise warmup_ratio or temperature, or use precision fp32; then start the "
                "same command again."
            )

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate without an effect on the random numbers or the throughput of training."""
        start = time.perf_counter()
        with _kept_random_state():
            scores: dict[str, float] = super().evaluate(*args, **kwargs)
        self._since += time.perf_counter() - start
        return scores

    # -- checkpoints --

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

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(str(self.state.best_model_checkpoint))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        del model
        trained = self.trained_parameters()
        tensors = load_file(Path(resume_from_checkpoint) / TRAINED_NAME)
        if trained.keys() != tensors.keys():
            raise MarError(
                f"{resume_from_checkpoint} holds other parameters than this stage trains; delete the folder."
            )
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(tensors[name])


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the records of a `metrics.jsonl`, none if there is no such file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _frozen_modules(model: SentenceTransformer) -> list[nn.Module]:
    """Return the modules of a model that have parameters and train none of them."""
    frozen: list[nn.Module] = []
    for module in model.modules():
        if isinstance(module, Module) and not isinstance(module, Router):
            parameters = list(module.parameters())
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                frozen.append(module)
    return frozen


def _start_worker(worker: int) -> None:
    del worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads of a tokenizer do not survive a fork


@contextmanager
def _kept_random_state() -> Iterator[None]:
    """Restore all random states afterwards, so that training does not depend on the block."""
    python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 -- the global stream is meant
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(of_numpy)  # noqa: NPY002
