"""Outputs of a run's records: `metrics.jsonl`, TensorBoard, the progress bar, `loss.png`."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.trainer_callback import ProgressCallback
from transformers.utils import logging

from mar_st.files import write_text
from mar_st.files.figures import drawn

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.get_logger(__name__)

METRICS_FILE = "metrics.jsonl"

#: Fields of an evaluation record that are not results.
TIMING_FIELDS = (
    "eval_runtime",
    "eval_samples_per_second",
    "eval_steps_per_second",
    "eval_model_preparation_time",
)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the records of a `metrics.jsonl`; a last line that was cut off by a kill is skipped."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def evaluation_results(rows: list[dict[str, Any]]) -> list[tuple[int, dict[str, float]]]:
    """Return step and scores of every evaluation in the records; names are without `eval_`."""
    results = []
    for row in rows:
        scores = {
            key.removeprefix("eval_"): value
            for key, value in row.items()
            if key.startswith("eval_") and key not in TIMING_FIELDS and isinstance(value, int | float)
        }
        if scores:
            results.append((int(row["step"]), scores))
    return results


class MetricsFile(TrainerCallback):
    """Appends every log record to `metrics.jsonl`; a resumed run drops the records after its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the records up to the step training starts from."""
        del args, control, kwargs
        if not state.is_world_process_zero:
            return
        # If a run was killed before its model was saved, its summary is written again.
        rows = [
            row
            for row in read_metrics(self.path)
            if row["step"] <= state.global_step and "train_runtime" not in row
        ]
        # If nothing is resumed, the evaluation at the start is repeated.
        rows = rows if state.global_step else []
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in rows))

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Append one record."""
        del args, control, kwargs
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"step": state.global_step, **(logs or {})}) + "\n")


class LastStep(TrainerCallback):
    """Logs the last step too, so that the records end with the loss of the finished model."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for a record after the last step."""
        del args, kwargs
        if state.global_step >= state.max_steps:
            control.should_log = True


class ProgressBar(ProgressCallback):
    """The Trainer's progress bar with the stage's name, loss and speed instead of printed records."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar."""
        super().on_train_begin(args, state, control, **kwargs)  # type: ignore[no-untyped-call]
        bar: Any = self.training_bar
        if bar is not None:
            bar.set_description(self.stage)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Show loss and speed; write the results of an evaluation above the bar."""
        del args, control, kwargs
        bar: Any = self.training_bar
        if bar is None or not logs or not state.is_world_process_zero:
            return
        if "loss" in logs:
            postfix = {"loss": f"{logs['loss']:.4g}"}
            if "texts_per_second" in logs:
                postfix["texts/s"] = f"{logs['texts_per_second']:.4g}"
            bar.set_postfix(postfix, refresh=False)
        for step, scores in evaluation_results([{"step": state.global_step, **logs}]):
            listed = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
            bar.write(f"{self.stage}, step {step}: {listed}")


class TensorBoard(TrainerCallback):
    """Writes every record to TensorBoard event files; a resumed run replaces records after its checkpoint.

    Args:
        folder: Folder of the event files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open a writer at the step training starts from."""
        del args, control, kwargs
        if state.is_world_process_zero:
            from torch.utils.tensorboard import SummaryWriter  # lazy: torch

            try:
                self._writer = SummaryWriter(str(self.folder), purge_step=state.global_step + 1)
            except UnicodeError as error:  # TensorBoard opens files by names in UTF-8 alone
                logger.warning("No TensorBoard events in %a (%s). Set LC_ALL=C.UTF-8.", self.folder, error)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Write the numbers of one record: `train/...` and `eval/...`."""
        del args, control, kwargs
        if self._writer is None:
            return
        for name, value in (logs or {}).items():
            if isinstance(value, int | float):
                group, key = (
                    ("eval", name.removeprefix("eval_")) if name.startswith("eval_") else ("train", name)
                )
                self._writer.add_scalar(f"{group}/{key}", value, state.global_step)
        self._writer.flush()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the writer."""
        del args, state, control, kwargs
        if self._writer is not None:
            self._writer.close()


def plot_run(folder: Path) -> Path | None:
    """Draw `loss.png` from the `metrics.jsonl` of a stage: loss, its parts, and the evaluations.

    Args:
        folder: Folder of the stage.

    Returns:
        The file; `None` if there is nothing to draw, or if matplotlib is not installed, which is logged.
    """
    rows = read_metrics(folder / METRICS_FILE)
    losses = [row for row in rows if "loss" in row]
    if not losses:
        return None
    target = folder / "loss.png"
    try:
        _draw(rows, losses, folder.name, target)
    except ImportError:
        logger.warning_once("No loss.png: matplotlib is not installed (pip install 'medteb[report]').")
        return None
    return target


def _draw(rows: list[dict[str, Any]], losses: list[dict[str, Any]], title: str, path: Path) -> None:
    with drawn(path, 7, 4, dpi=120) as figure:
        axes = figure.add_subplot()
        names = ["loss", *sorted({key for row in losses for key in row if key.startswith("loss_")})]
        for name in names:
            points = [(row["step"], row[name]) for row in losses if isinstance(row.get(name), int | float)]
            points = [point for point in points if math.isfinite(point[1])]
            axes.plot(*zip(*points, strict=True), label=name, linewidth=1.6 if name == "loss" else 0.9)
        axes.set(xlabel="optimiser step", ylabel="loss", title=title)
        axes.grid(alpha=0.3)
        results = evaluation_results(rows)
        if results:
            right = axes.twinx()
            for name in sorted({key for _, scores in results for key in scores}):
                steps = [(step, scores[name]) for step, scores in results if name in scores]
                right.plot(
                    *zip(*steps, strict=True), "o--", markersize=3, label=name, color="tab:green", alpha=0.7
                )
            right.set_ylabel("score on the development set")
            right.legend(loc="lower right", fontsize="small")
        axes.legend(loc="upper right", fontsize="small")
