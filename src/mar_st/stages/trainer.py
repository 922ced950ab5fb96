"""What every stage shares: one resumable run of sentence-transformers' Trainer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.training_args import BatchSamplers, MultiDatasetBatchSamplers
from transformers import TrainerCallback

from mar_st.data import to_dataset
from mar_st.stages.checkpoints import ResumableTrainer, last_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from mar_st.data import Source
    from mar_st.schema import Evaluation, Stage


@dataclass(frozen=True)
class Settings:
    """What a stage takes from the run it belongs to."""

    folder: Path
    seed: int
    precision: str = "fp32"
    save_steps: int = 200
    evaluation: Evaluation | None = None


def read_columns(source: Source, seed: int) -> Dataset:
    """The columns that a data entry of the recipe asks for, see `mar_st.data.to_dataset`."""
    entry = source.entry
    return to_dataset(source.triples, negatives=entry.negatives, positives=entry.positives, seed=seed)


class MetricsFile(TrainerCallback):
    """Appends every log record to `metrics.jsonl`; a resumed run drops the records after its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the records up to the step training starts from."""
        del args, control, kwargs
        kept = []
        if self.path.exists():
            rows = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
            # The summary of a run that was killed before its model was saved is written again.
            kept = [row for row in rows if row["step"] <= state.global_step and "train_runtime" not in row]
        self.path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Append one record."""
        del args, control, kwargs
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"step": state.global_step, **(logs or {})}) + "\n")


def fit(
    model: SentenceTransformer,
    data: dict[str, Dataset],
    loss: nn.Module | dict[str, nn.Module],
    stage: Stage,
    settings: Settings,
    *,
    prompts: dict[str, dict[str, str]] | None = None,
    router_mapping: dict[str, dict[str, str]] | None = None,
    no_duplicates: bool = True,
) -> None:
    """Train `model` in place; a run that was killed goes on from its last checkpoint.

    Args:
        model: The model, on its device.
        data: Datasets by name; every batch holds one of them.
        loss: One loss for all datasets, or one for each.
        stage: Optimisation settings.
        settings: Folder for checkpoints and `metrics.jsonl`, seed, precision.
        prompts: Dataset name -> column -> prompt text.
        router_mapping: Dataset name -> column -> route.
        no_duplicates: Keep equal texts out of one batch, where they would be false negatives.
    """
    settings.folder.mkdir(parents=True, exist_ok=True)
    checkpoints = settings.folder / "checkpoints"
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=stage.epochs,
        per_device_train_batch_size=stage.batch_size,
        learning_rate=stage.learning_rate,
        warmup_steps=stage.warmup_ratio,
        weight_decay=stage.weight_decay,
        lr_scheduler_type="linear",
        bf16=settings.precision == "bf16",
        use_cpu=model.device.type == "cpu",
        seed=stage.seed if stage.seed is not None else settings.seed,
        batch_sampler=BatchSamplers.NO_DUPLICATES if no_duplicates else BatchSamplers.BATCH_SAMPLER,
        multi_dataset_batch_sampler=MultiDatasetBatchSamplers.PROPORTIONAL,
        dataloader_drop_last=True,
        logging_steps=20,
        save_strategy="steps",
        save_steps=settings.save_steps,
        save_total_limit=1,
        report_to="none",
        prompts=prompts or {},
        router_mapping=router_mapping or {},
    )
    trainer = ResumableTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        loss=loss,
        callbacks=[MetricsFile(settings.folder / "metrics.jsonl")],
    )
    trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints))
    model.eval()
