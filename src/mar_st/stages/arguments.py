"""Arguments of sentence-transformers' trainer for a stage, in one process or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentence_transformers import SentenceTransformerTrainingArguments

from mar_st.planning.launch import Launch, LaunchError, check_stage
from mar_st.stages.loading import worker_count
from mar_st.stages.reports import OWN_TRACKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from mar_st.recipes.schema import Stage
    from mar_st.stages.settings import StageSettings

#: The trainer's name of each schedule; all of them come after a linear warm-up.
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}

#: Steps between two records.
LOGGING_STEPS = 20


def training_arguments(
    stage: Stage,
    settings: StageSettings,
    device: torch.device,
    *,
    evaluate: bool,
    metric: str | None = None,
    prompts: Mapping[str, Mapping[str, str]],
    router_mapping: Mapping[str, Mapping[str, str]],
    learning_rate_mapping: Mapping[str, float],
) -> SentenceTransformerTrainingArguments:
    """Return the trainer's arguments for a stage.

    Args:
        stage: Optimisation settings.
        settings: Settings of the run.
        device: Device of the model.
        evaluate: Whether to evaluate every `settings.evaluation.every` steps and at the end.
        metric: The score that decides which weights are kept, if the evaluation decides it.
        prompts: Dataset name -> column -> prompt text.
        router_mapping: Dataset name -> column -> route.
        learning_rate_mapping: Pattern of parameter names -> learning rate.

    Raises:
        LaunchError: The devices cannot share a batch, or the DeepSpeed configuration is invalid.
    """
    evaluation = settings.evaluation if evaluate else None
    decides = evaluation is not None and evaluation.decides
    reports = [name for name in settings.report_to if name != OWN_TRACKER]
    launch = Launch.here(settings.deepspeed)
    check_stage(stage, launch)
    world = launch.world
    on_cpu = device.type == "cpu"
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(settings.folder / "checkpoints"),
        num_train_epochs=stage.epochs,
        max_steps=stage.max_steps or -1,
        per_device_train_batch_size=stage.batch_size // world,
        learning_rate=stage.learning_rate,
        warmup_steps=stage.warmup_ratio,
        lr_scheduler_type=SCHEDULES[stage.schedule],
        weight_decay=stage.weight_decay,
        max_grad_norm=stage.max_grad_norm,
        bf16=settings.precision == "bf16",
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and world > 1 else None,
        seed=settings.seed,
        dataloader_drop_last=True,
        dataloader_num_workers=worker_count(settings.workers, device),
        dataloader_pin_memory=not on_cpu,
        # A batch of the sampler is one optimiser step; the processes split it.
        accelerator_config={"split_batches": True},
        logging_steps=LOGGING_STEPS,
        # The filter reads every loss back from the device; the watch detects bad ones without waiting.
        logging_nan_inf_filter=False,
        eval_strategy="no" if evaluation is None else "steps",
        eval_steps=None if evaluation is None else evaluation.every,
        metric_for_best_model=metric if decides else None,
        greater_is_better=True if decides else None,
        # A resumed run continues to count patience.
        restore_callback_states_from_checkpoint=decides or bool(settings.callbacks),
        save_strategy="steps",
        save_steps=settings.save_steps,
        save_total_limit=1,
        report_to=reports or "none",
        run_name=f"{settings.folder.parent.name}/{settings.folder.name}",
        deepspeed=str(launch.deepspeed) if launch.deepspeed else None,
        prompts={name: dict(columns) for name, columns in prompts.items()},
        router_mapping={name: dict(columns) for name, columns in router_mapping.items()},
        learning_rate_mapping=dict(learning_rate_mapping),
    )
    # The arguments' own check requires multiples of `eval_steps`; here a new best is saved at any evaluation.
    arguments.load_best_model_at_end = evaluation is not None and evaluation.keep == "best"
    _use_one_gpu_per_process(arguments, world)
    return arguments


def _use_one_gpu_per_process(arguments: SentenceTransformerTrainingArguments, world: int) -> None:
    """Check the number of processes, and limit each of them to one GPU.

    Raises:
        LaunchError: `torch.distributed` has another number of processes than the launch.
    """
    if arguments.world_size != world:
        raise LaunchError(
            f"WORLD_SIZE says {world} processes and torch.distributed has {arguments.world_size}. Start with "
            "torchrun or accelerate launch."
        )
    if arguments.n_gpu > 1:
        # Without a launcher the trainer would copy the model to every GPU at each step (DataParallel).
        arguments._n_gpu = 1
