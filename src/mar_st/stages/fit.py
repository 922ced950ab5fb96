"""Training of a stage: its data, batches, arguments and checkpoints, in one call.

For as long as it trains, encoders are compiled, recompute their activations, or compute attention in float32.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Transformer
from transformers import AttentionInterface, AttentionMaskInterface, TrainerCallback
from transformers.integrations import TensorBoardCallback  # type: ignore[attr-defined]
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.utils import logging

from mar_st.errors import MarError
from mar_st.evaluation.tasks import Task, load_task, score
from mar_st.files import last_checkpoint
from mar_st.kernels.build import keep_freed, trim
from mar_st.planning.launch import Launch
from mar_st.stages.collate import StageCollator, TokenDropout, check_mixture
from mar_st.stages.columns import check_prompts, document_columns
from mar_st.stages.samplers import TrainRows, train_batches
from mar_st.stages.trainer import LENT_PREFIX, StageSettings, StageTrainer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from mar_st.recipes.schema import Evaluation, Stage


logger = logging.get_logger(__name__)

#: Variants of compiled code that the encoders of a stage may need together: with and without gradients, for
#: small and large batches, for each encoder. PyTorch stops compiling at 8, and the rest would run uncompiled.
MAX_VARIANTS = 64


def transformers_of(model: SentenceTransformer) -> list[Any]:
    """Return every transformers model in a sentence-transformers model once."""
    models = [module.model for module in model.modules() if isinstance(module, Transformer)]
    return list(dict.fromkeys(models))


@contextmanager
def compiled(encoders: list[Any], *, on_cpu: bool) -> Iterator[None]:
    """Compile the forward methods of transformers models for as long as the context lasts.

    Names of parameters and saved files do not change. On a CPU attention is computed without the fused
    kernel meanwhile, because the compiler's code is faster in the backward pass.

    Args:
        encoders: The models. Without a compiler they stay unchanged and a warning is given: results are the
            same up to rounding, but training is slower.
        on_cpu: Whether they are on a CPU.
    """
    name = os.environ.get("CXX", "g++") if on_cpu else os.environ.get("CC", "gcc")
    if encoders and shutil.which(name.split()[0]) is None:
        logger.warning(f"compile: true needs a compiler ({name}), and there is none: training is slower.")
        encoders = []
    before = [encoder.config._attn_implementation for encoder in encoders]
    for encoder in encoders:
        if on_cpu:
            encoder.set_attn_implementation("eager")
        # Not Module.compile(): it does not compile the method `forward`, which sentence-transformers calls.
        encoder.forward = torch.compile(encoder.forward, dynamic=True)
    try:
        with torch._dynamo.config.patch(recompile_limit=MAX_VARIANTS) if encoders else nullcontext():
            yield
    finally:
        for encoder, attention in zip(encoders, before, strict=True):
            del encoder.forward
            if on_cpu:
                encoder.set_attn_implementation(attention)


_FLOAT32_ATTENTION = "mar_float32"


@contextmanager
def float32_attention(encoders: list[Any]) -> Iterator[None]:
    """Compute the attention of transformers models in float32 for as long as the context lasts.

    For bf16 on a CPU, where the backward pass of torch's fused attention is slow in bfloat16: forward and
    backward take 42, 97 and 169 ms for 64 texts of 24, 60 and 128 tokens and 12 heads of 32, and 13, 26 and
    91 ms in float32 (AMD EPYC, Zen 5, two cores).

    Args:
        encoders: The models; those that do not use `sdpa` keep their attention.
    """
    AttentionInterface.register(_FLOAT32_ATTENTION, _attention_in_float32)
    AttentionMaskInterface.register(_FLOAT32_ATTENTION, sdpa_mask)
    changed = [
        encoder
        for encoder in encoders
        if encoder.config._attn_implementation == "sdpa" and encoder.is_backend_compatible()
    ]
    for encoder in changed:
        encoder.set_attn_implementation(_FLOAT32_ATTENTION)
    try:
        yield
    finally:
        for encoder in changed:
            encoder.set_attn_implementation("sdpa")


def _attention_in_float32(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    if attention_mask is not None and attention_mask.is_floating_point():
        attention_mask = attention_mask.float()
    with torch.autocast(query.device.type, enabled=False):
        output, _ = sdpa_attention_forward(
            module, query.float(), key.float(), value.float(), attention_mask, **options
        )
    return output.to(query.dtype), None


@contextmanager
def checkpointed(encoders: list[Any]) -> Iterator[None]:
    """Recompute the activations of the trained ones of some encoders instead of keeping them.

    Raises:
        MarError: An encoder does not support it.
    """
    trained = [encoder for encoder in encoders if any(p.requires_grad for p in encoder.parameters())]
    for encoder in trained:
        if not encoder.supports_gradient_checkpointing:
            raise MarError(
                f"{type(encoder).__name__} does not support gradient_checkpointing. Set it to false, or "
                "give mini_batch_size to need less memory."
            )
        encoder.activation_checkpointing_enable()
    try:
        yield
    finally:
        for encoder in trained:
            encoder.activation_checkpointing_disable()


@contextmanager
def mixed_with_start(model: nn.Module, share: float) -> Iterator[None]:
    """Interpolate the weights of a model with those it has now, in place, when the block ends.

    Each becomes `(1 - share) * trained + share * start` (Wortsman et al. 2022, WiSE-FT): fine-tuning on few
    texts forgets what the encoder knew of others, and interpolated weights often retrieve better than the
    weights at either end. Parameters that need no gradient when the block begins are left as they are. The
    start is kept on the CPU.

    Args:
        model: The model that the block trains.
        share: Share of the weights at the start, from 0 to 1; with 0 nothing is copied or changed.
    """
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    start = {name: weight.detach().cpu().clone() for name, weight in trained} if share else {}
    yield
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in start:
                before = start[name].to(weight.device, torch.float32)
                weight.copy_(torch.lerp(weight.float(), before, share))


#: The trainer's name of each schedule; all of them come after a linear warm-up.
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}

#: Steps between two records, and between two returns of freed memory to the system.
LOGGING_STEPS, TRIM_STEPS = 20, 100

#: Processes that read and tokenise ahead for one GPU; on a CPU this is done between the steps.
GPU_WORKERS = 4


class _Records(TrainerCallback):
    """Asks for a log record before each checkpoint and at the end.

    A checkpoint is thus written only after the loss was found to be finite. On a CPU freed memory is returned
    now and then: with holes in its heap, a process grew from 4 to 10 GB in 470 steps of a 9M encoder.
    """

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        del kwargs
        if control.should_save or state.global_step >= state.max_steps:
            control.should_log = True
        if args.use_cpu and state.global_step % TRIM_STEPS == 0:
            trim()


class DevEvaluator(BaseEvaluator):
    """Mean score over the queries of a development set, under one name.

    The numbers are those of `mar ablate`, and of mteb on the same folder. Queries and documents go through
    the routes of the model, if it has any, with its stored prompts.

    Args:
        evaluation: Path, split and metric of a development set: a `package:` name or a folder in the Hub
            layout of a retrieval (corpus.jsonl, queries.jsonl, qrels), reranking or STS task.

    Attributes:
        primary_metric: Name of the score that decides which weights are kept.

    Raises:
        MarError: A file is missing or broken, or the metric does not fit the task.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        path, split, metric = evaluation.path, evaluation.split, evaluation.metric
        self.data = load_task(Task(name="dev", path=path, split=split, metric=metric))
        self.primary_metric: str = f"dev_{self.data.metric}"

    def __call__(
        self,
        model: Any,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Return the score of a model, `{"dev_METRIC": value}`."""
        del output_path, epoch, steps
        training = model.training
        model.eval()
        try:
            values = score(model, self.data)
        finally:
            model.train(training)
        return {self.primary_metric: float(self.data.scores([values]).per_seed()[0])}


def fit(
    model: SentenceTransformer,
    data: dict[str, Dataset],
    loss: nn.Module,
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
        loss: The loss.
        stage: Optimisation settings; the loss handles `mini_batch_size`.
        settings: Settings of the run.
        prompts: Dataset name -> column -> prompt text.
        router_mapping: Dataset name -> column -> route.
        no_duplicates: Never put equal texts into the same batch, where they would be false negatives.
        learning_rate_mapping: Regular expression of parameter names, as `loss.named_parameters()` gives them
            (`model.0...`) -> learning rate, instead of the stage's.

    Raises:
        MarError: The data cannot form the batches that the stage requires, the launch does not support the
            stage, the loss became NaN or infinite, or the folder holds a checkpoint with other parameters.
    """
    prompts = {name: (prompts or {}).get(name, {}) for name in data}
    router_mapping = {name: (router_mapping or {}).get(name, {}) for name in data}
    mixed = stage.batches == "mixed" and len(data) > 1
    if mixed:
        check_mixture(stage.name, {name: d.column_names for name, d in data.items()}, router_mapping)
    check_prompts(model, data, prompts, router_mapping)
    evaluator = None
    if settings.evaluation is not None:
        evaluator = DevEvaluator(settings.evaluation)
    arguments = _arguments(stage, settings, model.device, getattr(evaluator, "primary_metric", None))
    arguments.prompts, arguments.router_mapping = prompts, router_mapping
    arguments.learning_rate_mapping = learning_rate_mapping or {}
    batches = train_batches(
        data,
        stage.batch_size // stage.gradient_accumulation,
        mixed=mixed,
        no_duplicates=no_duplicates,
        groups=stage.length_groups,
        document_columns=document_columns(data, router_mapping),
        seed=settings.seed,
        world=arguments.world_size,
    )
    share = getattr(stage, "token_dropout", 0.0)
    dropout = TokenDropout(model, share, seed=settings.seed, epoch=lambda: batches.epoch) if share else None
    settings.folder.mkdir(parents=True, exist_ok=True)
    trainer = StageTrainer(
        TrainRows(data),
        batches,
        stage.name,
        model=model,
        args=arguments,
        train_dataset=dict(data),
        loss=loss,
        evaluator=evaluator,
        data_collator=StageCollator(
            model.preprocess, router_mapping=router_mapping, prompts=prompts, mixed=mixed, dropout=dropout
        ),
        callbacks=[_Records()],
    )
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:
            # Not among the checkpoints, which are deleted at the end.
            callback.logging_dir = str(settings.folder / "tensorboard")
    _train(trainer, stage, settings)


def _arguments(
    stage: Stage, settings: StageSettings, device: torch.device, metric: str | None
) -> SentenceTransformerTrainingArguments:
    """Return the trainer's arguments for a stage.

    Args:
        stage: Optimisation settings.
        settings: Settings of the run.
        device: Device of the model.
        metric: Score that decides which weights are kept; `None` without an evaluation.
    """
    launch = Launch.here()
    launch.check(stage)
    evaluation, on_cpu = settings.evaluation, device.type == "cpu"
    best = evaluation is not None and evaluation.keep == "best"
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(settings.folder / "checkpoints"),
        num_train_epochs=stage.epochs,
        max_steps=stage.max_steps or -1,
        per_device_train_batch_size=stage.batch_size // stage.gradient_accumulation // launch.world,
        gradient_accumulation_steps=stage.gradient_accumulation,
        learning_rate=stage.learning_rate,
        warmup_steps=stage.warmup_ratio,
        lr_scheduler_type=SCHEDULES[stage.schedule],
        weight_decay=stage.weight_decay,
        bf16=settings.precision == "bf16",
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and launch.world > 1 else None,
        seed=settings.seed,
        dataloader_drop_last=True,
        dataloader_num_workers=0 if on_cpu else GPU_WORKERS,
        dataloader_pin_memory=not on_cpu,
        # A batch of the sampler is one optimiser step; the processes split it.
        accelerator_config={"split_batches": True},
        logging_steps=LOGGING_STEPS,
        # The filter reads every loss back from the device; records are checked instead.
        logging_nan_inf_filter=False,
        eval_strategy="no" if evaluation is None else "steps",
        eval_steps=None if evaluation is None else evaluation.every,
        load_best_model_at_end=best,
        metric_for_best_model=metric if best else None,
        greater_is_better=True if best else None,
        save_strategy="steps",
        save_steps=evaluation.every if best and evaluation is not None else settings.save_steps,
        save_total_limit=1,
        report_to=list(settings.report_to) or "none",
        run_name=f"{settings.folder.parent.name}/{settings.folder.name}",
        deepspeed=str(launch.deepspeed) if launch.deepspeed else None,
    )
    if arguments.world_size != launch.world:
        raise MarError(
            f"WORLD_SIZE says {launch.world} processes and torch.distributed has {arguments.world_size}. "
            "Start with torchrun or accelerate launch."
        )
    if arguments.n_gpu > 1:
        # Without a launcher the trainer would copy the model to every GPU at each step (DataParallel).
        arguments._n_gpu = 1
    return arguments


def _train(trainer: StageTrainer, stage: Stage, settings: StageSettings) -> None:
    arguments, model = trainer.args, trainer.model
    encoders = transformers_of(model)
    checkpoint = last_checkpoint(settings.folder / "checkpoints", delete=arguments.process_index == 0)
    if arguments.world_size > 1:
        torch.distributed.barrier()
    arguments.eval_on_start = arguments.eval_strategy != "no" and checkpoint is None
    if arguments.use_cpu:
        keep_freed()
    try:
        with (
            checkpointed(encoders) if stage.gradient_checkpointing else nullcontext(),
            float32_attention(encoders if arguments.bf16 and arguments.use_cpu else []),
            compiled(encoders if settings.compile else [], on_cpu=arguments.use_cpu),
        ):
            trainer.train(resume_from_checkpoint=checkpoint)
    finally:
        _unwrap(trainer)
        trim()
    if "wandb" in settings.report_to:  # the next stage is a run of its own
        import wandb  # type: ignore[import-not-found]  # lazy: wandb

        wandb.finish()
    model.eval()


def _unwrap(trainer: StageTrainer) -> None:
    """Remove wrappers and lent parameters from the model, so that another stage may train it too."""
    model: Any = trainer.model
    trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    for name in [name for name in model._parameters if name.startswith(LENT_PREFIX)]:
        parameter = model._parameters.pop(name)
        parameter.grad = None
        if parameter.shape == (1,):
            parameter.data = parameter.data.reshape(())
    for name in ("forward", "_is_accelerate_prepared"):
        vars(model).pop(name, None)
