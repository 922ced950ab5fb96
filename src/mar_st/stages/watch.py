"""Stops a run at the first loss or gradient that is not a finite number, and keeps the batch."""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mar_st.errors import MarError
from mar_st.files import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.stages.batches import BatchRecord

#: Steps that CUDA may be behind before the watch waits for their verdict.
MAX_STEPS_BEHIND = 2


class NonFiniteError(MarError):
    """A loss or gradient is NaN or infinite; the message names the step and the file with the batch."""


@dataclass
class _Step:
    step: int
    loss: torch.Tensor
    norm: torch.Tensor | float | None
    record: BatchRecord | None
    inputs: dict[str, Any]
    verdict: torch.Tensor | None = None
    ready: Any = None


class NonFiniteWatch:
    """Checks loss and gradient norm of every step.

    On a CPU a bad step is stopped before its update. On CUDA the verdict is copied back while the device
    continues, so it may be known a step or two later; no checkpoint is written before it is known.

    Args:
        file: Output file of the batch (`bad_batch.json`).
        stage: Name of the stage, for the message.
        checkpoints: Folder of the checkpoints, for the message.
    """

    def __init__(self, file: Path, stage: str, checkpoints: Path) -> None:
        self.file, self.stage, self.checkpoints = file, stage, checkpoints
        self._open: deque[_Step] = deque()

    def add(
        self,
        step: int,
        loss: torch.Tensor,
        norm: torch.Tensor | float | None,
        record: BatchRecord | None,
        inputs: dict[str, Any],
    ) -> None:
        """Take the loss and the gradient norm of a step.

        Raises:
            NonFiniteError: The loss or the gradient norm of this or an earlier step was not finite.
        """
        entry = _Step(step, loss, norm, record, inputs)
        if loss.device.type != "cuda":
            if not _finite(loss, norm):
                self._stop(entry)
            return
        good = torch.isfinite(loss)
        if isinstance(norm, torch.Tensor):
            good = good & torch.isfinite(norm.to(loss.device))
        entry.verdict = torch.empty((), dtype=torch.bool, pin_memory=True)
        entry.verdict.copy_(good, non_blocking=True)
        entry.ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        entry.ready.record()
        self._open.append(entry)
        while self._open and (self._open[0].ready.query() or len(self._open) > MAX_STEPS_BEHIND):
            self._settle_one()

    def settle(self) -> None:
        """Wait for the verdict on all steps so far.

        Raises:
            NonFiniteError: The loss or the gradient norm of a step was not finite.
        """
        while self._open:
            self._settle_one()

    def _settle_one(self) -> None:
        entry = self._open.popleft()
        entry.ready.synchronize()
        if not bool(entry.verdict):
            self._stop(entry)

    def _stop(self, entry: _Step) -> None:
        loss = float(entry.loss)
        norm = None if entry.norm is None else float(entry.norm)
        content = {"step": entry.step, "loss": str(loss), "grad_norm": str(norm), **_content(entry)}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.file, json.dumps(content, ensure_ascii=False, indent=1))
        what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient norm is {norm}"
        raise NonFiniteError(
            f"Stage {self.stage} stopped at step {entry.step}: {what}. Its batch (texts and tokens) is in "
            f"{self.file}; the last good checkpoint stays in {self.checkpoints}. Look for broken texts or "
            "labels there, or lower learning_rate, raise warmup_ratio or temperature, or use precision fp32; "
            "then start the same command again."
        )


def _finite(loss: torch.Tensor, norm: torch.Tensor | float | None) -> bool:
    good = bool(torch.isfinite(loss).all())
    return good and (norm is None or math.isfinite(float(norm)))


def _content(entry: _Step) -> dict[str, Any]:
    """Texts, tokens and labels of a batch, ready for JSON."""
    content: dict[str, Any] = {}
    if entry.record is not None:
        content["sources"] = entry.record.sources
        content["texts"] = entry.record.texts
    tokens = {}
    for key, value in entry.inputs.items():
        column, separator, _ = key.partition("_input_ids")
        if separator and isinstance(value, torch.Tensor):
            mask = entry.inputs.get(f"{column}_attention_mask")
            rows = value.tolist()
            if mask is not None and mask.shape == value.shape:
                keep = mask.bool().tolist()
                rows = [[t for t, k in zip(*pair, strict=True) if k] for pair in zip(rows, keep, strict=True)]
            tokens[column] = rows
    content["tokens"] = tokens
    label = entry.inputs.get("label")
    if isinstance(label, torch.Tensor):
        bad = ~torch.isfinite(label.float()).reshape(len(label), -1).all(dim=1)
        content["rows_with_bad_labels"] = bad.nonzero().flatten().tolist()
    return content
