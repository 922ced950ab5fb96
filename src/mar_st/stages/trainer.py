"""Training run shared by all stages: sentence-transformers' Trainer, made resumable and monitored."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.modules import Router
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback
from transformers.trainer_callback import ProgressCallback
from transformers.utils import logging

from mar_st.errors import MarError
from mar_st.files.checkpoints import last_checkpoint
from mar_st.kernels.cpu_attention import float32_attention
from mar_st.planning.launch import pass_sizes
from mar_st.stages.accumulation import PASSES_KEY, WEIGHT_KEY, AccumulatingTrainer
from mar_st.stages.arguments import training_arguments
from mar_st.stages.batches import RECORD_KEY, RecordingCollator, check_mixture
from mar_st.stages.checkpointing import gradient_checkpointing
from mar_st.stages.checkpoints import kept_random_state, random_state_name
from mar_st.stages.columns import document_columns
from mar_st.stages.compiling import compiled, transformers_of
from mar_st.stages.deepspeed import lend, take_back
from mar_st.stages.loading import worker_options
from mar_st.stages.memory import ReturnMemory
from mar_st.stages.meter import Meter, own_modules
from mar_st.stages.monitor import (
    METRICS_FILE,
    TIMING_FIELDS,
    LastStep,
    MetricsFile,
    ProgressBar,
    TensorBoard,
    plot_run,
)
from mar_st.stages.reports import end_reports
from mar_st.stages.samplers import TrainRows, train_batches
from mar_st.stages.token_dropout import TokenDropout
from mar_st.stages.watch import NonFiniteWatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from mar_st.recipes.schema import Evaluation, Stage
    from mar_st.stages.samplers import TrainBatches
    from mar_st.stages.settings import StageSettings

logger = logging.get_logger(__name__)

#: Elements of the gradients that are averaged over the processes in one message.
MESSAGE_ELEMENTS = 2**26


class StageTrainer(AccumulatingTrainer):
    """The trainer of a stage: its batches, its gradients over processes, its meters and its watch.

    Gradients are averaged over the processes here, once per step, including those of the loss's parameters.
    DistributedDataParallel would leave those out, and it cannot handle a loss that runs the model several
    times per step (routes, GradCache).

    Args:
        rows: The training data.
        batches: Which rows make up a batch.
        watch: Stops the run at a bad loss or gradient.
        **kwargs: Arguments of the trainer.
    """

    def __init__(self, rows: TrainRows, batches: TrainBatches, watch: NonFiniteWatch, **kwargs: Any) -> None:
        self.rows, self.batches, self.watch = rows, batches, watch
        super().__init__(**kwargs)
        self.meter = Meter(self.model, self.args.device, bf16=self.args.bf16, world=self.args.world_size)
        self._step: tuple[Any, Any, dict[str, Any]] | None = None
        self._frozen = _frozen_modules(self.model)
        losses: dict[str, Any] = self.loss if isinstance(self.loss, dict) else {"": self.loss}
        self._losses = {name: own_modules(loss) for name, loss in losses.items()}
        self._averaged: list[nn.Parameter] = []
        if self.args.world_size > 1 and not self.is_deepspeed_enabled:
            self._averaged = list(self.trained_parameters().values())
            # Mixed precision without DistributedDataParallel.
            prepare: Any = partial(self.accelerator.prepare_model, evaluation_mode=True)
            self.accelerator.prepare_model = prepare
            for parameter in self._averaged:
                torch.distributed.broadcast(parameter.data, 0)

    # -- hooks of the trainer --

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
        """Return a loader of `self.batches`, split over the processes."""
        self.accelerator.even_batches = False
        loader = DataLoader(
            self.rows,
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
            **worker_options(self.args.dataloader_num_workers),
        )
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def create_optimizer(self, model: Any = None) -> Any:
        """Create the optimizer; register the loss's parameters with the model for DeepSpeed."""
        optimizer = super().create_optimizer(model)
        if self.is_deepspeed_enabled:
            trained = self.trained_parameters().items()
            lend(self.model, {name: p for name, p in trained if name.startswith("loss.")})
        return optimizer

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The trainer sets the epoch of the sampler, unless the wrapper of a resumed epoch hides it.
        self.batches.set_epoch(kwargs["epoch"])
        self.rows.set_epoch(kwargs["epoch"])
        super()._run_epoch(*args, **kwargs)  # type: ignore[no-untyped-call]

    # -- one step --

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """Run forward and backward, and average the gradients over the processes."""
        record = inputs.pop(RECORD_KEY, None)
        if record is not None:
            self.meter.batch(record)
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._step = (loss, record, inputs)
        self._average_gradients()
        return loss

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a batch; frozen encoders run in evaluation mode, without dropout."""
        for module in self._frozen:
            module.eval()
        name = inputs.get("dataset_name") if isinstance(self.loss, dict) else ""
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        # With this scale, the mean over the passes of a step is the total of the step.
        self.meter.parts(self._losses[name or ""], inputs.get(WEIGHT_KEY, 1.0) * inputs.get(PASSES_KEY, 1))
        return loss

    def _average_gradients(self) -> None:
        gradients = [p.grad for p in self._averaged if p.grad is not None]
        while gradients:
            bucket: list[torch.Tensor] = []
            size = 0
            while gradients and (not bucket or size + gradients[-1].numel() <= MESSAGE_ELEMENTS):
                size += gradients[-1].numel()
                bucket.append(gradients.pop())
            message = torch.cat([gradient.reshape(-1).float() for gradient in bucket])
            torch.distributed.all_reduce(message)
            message /= self.args.world_size
            start = 0
            for gradient in bucket:
                end = start + gradient.numel()
                gradient.copy_(message[start:end].view_as(gradient))
                start = end

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[no-untyped-call]
        if self._step is not None:
            loss, record, inputs = self._step
            self._step = None
            self.watch.add(self.state.global_step + 1, loss, norm, record, inputs)
        return norm

    # -- records, evaluations, checkpoints --

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Add the meter's fields to a record of the loss."""
        if "loss" in logs:
            self.watch.settle()
            logs = {**logs, **self.meter.record()}
        super().log({key: value for key, value in logs.items() if key not in TIMING_FIELDS[1:]}, start_time)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate without an effect on the random numbers or the throughput of training."""
        with self.meter.paused(), kept_random_state():
            return super().evaluate(*args, **kwargs)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self.watch.settle()
        with self.meter.paused():
            super()._save_checkpoint(model, trial)


def fit(
    model: SentenceTransformer,
    data: dict[str, Dataset],
    loss: nn.Module | dict[str, nn.Module],
    stage: Stage,
    settings: StageSettings,
    *,
    prompts: dict[str, dict[str, str]] | None = None,
    router_mapping: dict[str, dict[str, str]] | None = None,
    no_duplicates: bool = True,
    learning_rate_mapping: dict[str, float] | None = None,
) -> None:
    """Train `model` in place; a run that was killed resumes from its last checkpoint.

    Under `torchrun`, `accelerate launch` or `deepspeed` every process calls it; a batch is shared by all.

    Args:
        model: The model, on its device.
        data: Datasets by name.
        loss: One loss for all datasets, or one for each. It may report its parts, see `mar_st.stages.meter`.
        stage: Optimisation settings; the loss handles `mini_batch_size`.
        settings: Settings of the run.
        prompts: Dataset name -> column -> prompt text.
        router_mapping: Dataset name -> column -> route.
        no_duplicates: Never put equal texts into the same batch, where they would be false negatives.
        learning_rate_mapping: Regular expression of parameter names, as `loss.named_parameters()` gives them
            (`model.0...`) -> learning rate, instead of the stage's.

    Raises:
        BatchError: The data cannot form the batches that the stage requires.
        LaunchError: The devices or the DeepSpeed configuration do not support the stage.
        NonFiniteError: A loss or gradient was NaN or infinite.
        CheckpointError: The folder holds a checkpoint with other parameters.
    """
    prompts = {name: (prompts or {}).get(name, {}) for name in data}
    router_mapping = {name: (router_mapping or {}).get(name, {}) for name in data}
    mixed = stage.batches == "mixed" and len(data) > 1
    if mixed:
        _check_mixed(model, data, loss, stage, prompts, router_mapping)
    evaluator = _evaluator(settings.evaluation)
    arguments = training_arguments(
        stage,
        settings,
        model.device,
        evaluate=evaluator is not None,
        metric=None if evaluator is None else evaluator.primary_metric,
        prompts=prompts,
        router_mapping=router_mapping,
        learning_rate_mapping=learning_rate_mapping or {},
    )
    batches = train_batches(
        data,
        stage.batch_size,
        mixed=mixed,
        no_duplicates=no_duplicates,
        groups=stage.length_groups,
        document_columns=document_columns(data, router_mapping),
        seed=arguments.seed,
        world=arguments.world_size,
    )
    settings.folder.mkdir(parents=True, exist_ok=True)
    checkpoints = settings.folder / "checkpoints"
    suffix = f".{arguments.process_index}" if arguments.process_index else ""
    trainer = StageTrainer(
        rows=TrainRows(data),
        batches=batches,
        watch=NonFiniteWatch(settings.folder / f"bad_batch{suffix}.json", stage.name, checkpoints),
        model=model,
        args=arguments,
        train_dataset=dict(data),
        loss=loss,
        evaluator=evaluator,
        data_collator=_collator(
            model, stage, batches, prompts, router_mapping, seed=arguments.seed, mixed=mixed
        ),
        callbacks=_callbacks(settings),
        sizes=pass_sizes(stage, arguments.per_device_train_batch_size),
    )
    _train(trainer, stage, settings)


def _check_mixed(
    model: SentenceTransformer,
    data: Mapping[str, Dataset],
    loss: nn.Module | dict[str, nn.Module],
    stage: Stage,
    prompts: dict[str, dict[str, str]],
    router_mapping: dict[str, dict[str, str]],
) -> None:
    """Check that rows of several datasets can share a batch."""
    if isinstance(loss, dict):
        raise MarError(f"stage {stage.name}: 'batches: mixed' needs one loss for all data, not one for each.")
    pooled = all(module.include_prompt for module in model.modules() if isinstance(module, Pooling))
    columns = {name: dataset.column_names for name, dataset in data.items()}
    check_mixture(columns, router_mapping, stage=stage.name, pooled_prompts=pooled, prompts=prompts)


def _collator(
    model: SentenceTransformer,
    stage: Stage,
    batches: TrainBatches,
    prompts: dict[str, dict[str, str]],
    router_mapping: dict[str, dict[str, str]],
    *,
    seed: int,
    mixed: bool,
) -> RecordingCollator:
    share = getattr(stage, "token_dropout", 0.0)
    return RecordingCollator(
        preprocess_fn=model.preprocess,
        router_mapping=router_mapping,
        prompts=prompts,
        mixed=mixed,
        dropout=TokenDropout(model, share, seed=seed, epoch=lambda: batches.epoch) if share else None,
    )


def _train(trainer: StageTrainer, stage: Stage, settings: StageSettings) -> None:
    folder = settings.folder
    arguments, model = trainer.args, trainer.model
    if trainer.pop_callback(ProgressCallback) is not None:
        trainer.add_callback(ProgressBar(stage.name))
    checkpoint = last_checkpoint(folder / "checkpoints", delete=arguments.process_index == 0)
    if arguments.world_size > 1:
        torch.distributed.barrier()
    if checkpoint is not None and not (Path(checkpoint) / random_state_name(arguments)).is_file():
        logger.warning("%s is from another number of processes; dropout begins again.", checkpoint)
    arguments.eval_on_start = arguments.eval_strategy != "no" and checkpoint is None
    try:
        with (
            gradient_checkpointing(model, enabled=stage.gradient_checkpointing, stage=stage.name),
            float32_attention(transformers_of(model) if arguments.bf16 and arguments.use_cpu else []),
            compiled(model, enabled=settings.compile),
        ):
            trainer.train(resume_from_checkpoint=checkpoint)
    finally:
        _unwrap(trainer)
        end_reports(settings.report_to)
    if arguments.process_index == 0:
        plot_run(folder)
    model.eval()


def _callbacks(settings: StageSettings) -> list[Any]:
    folder, evaluation = settings.folder, settings.evaluation
    callbacks: list[Any] = [MetricsFile(folder / METRICS_FILE), LastStep(), ReturnMemory()]
    if find_spec("tensorboard") is not None:
        callbacks.append(TensorBoard(folder / "tensorboard"))
    if evaluation is not None and evaluation.patience is not None:
        callbacks.append(EarlyStoppingCallback(evaluation.patience))
    return [*callbacks, *settings.callbacks]


def _evaluator(evaluation: Evaluation | None) -> Any:
    if evaluation is None:
        return None
    from mar_st.evaluation.evaluators import evaluator_of  # lazy: scipy

    return evaluator_of(evaluation)


def _frozen_modules(model: SentenceTransformer) -> list[nn.Module]:
    """Return the modules of a model that have parameters and train none of them."""
    frozen: list[nn.Module] = []
    for module in model.modules():
        if isinstance(module, Module) and not isinstance(module, Router):
            parameters = list(module.parameters())
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                frozen.append(module)
    return frozen


def _unwrap(trainer: StageTrainer) -> None:
    """Remove the wrappers for mixed precision from the model, so that another stage may train it too."""
    model: Any = trainer.model
    trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    take_back(model)
    for name in ("forward", "_is_accelerate_prepared"):
        vars(model).pop(name, None)
