"""Throughput of training steps: texts and tokens per second, padding, memory, MFU, and parts of the loss.

A loss may report its parts in one of two ways: return a dict of tensors (sentence-transformers adds them up
and logs each), or return one tensor and set `self.last_parts`, a dict of name to detached tensor or float.
The mean of each part since the last record is logged as `loss_<name>`. A loss with
`learnable_temperature` has its `temperature` logged.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Router, Transformer

from mar_st.errors import MarError
from mar_st.planning.backbones import Shape
from mar_st.planning.costs import Training, training_flops
from mar_st.planning.devices import DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from mar_st.stages.batches import BatchRecord

#: Key of the encoder of a model without routes.
NO_ROUTE = ""


@dataclass(frozen=True)
class StepCost:
    """Operations of one encoder on a batch, forward and backward: `token * sum n + square * sum n^2`.

    The sums run over texts of `n` tokens without padding. Recomputation (checkpointing, GradCache) does not
    count, so the utilisation covers only useful work.
    """

    token: float
    square: float


def step_costs(model: nn.Module) -> dict[str, StepCost]:
    """Return the cost of each encoder, by route, as `mar plan` computes it (`planning.costs.training_flops`).

    Encoders of architectures that it does not know are left out.
    """
    encoders: dict[str, Any] = {}
    for part in model.children():
        if isinstance(part, Router):
            routes: Any = part.sub_modules
            for route, modules in routes.items():
                encoders.update((route, module) for module in modules if isinstance(module, Transformer))
        elif isinstance(part, Transformer):
            encoders[NO_ROUTE] = part
    costs = {}
    for route, encoder in encoders.items():
        try:
            costs[route] = _step_cost(encoder.model)
        except (MarError, KeyError, AttributeError, TypeError, ValueError):
            continue
    return costs


def _step_cost(encoder: Any) -> StepCost:

    trained = [name for name, parameter in encoder.named_parameters() if parameter.requires_grad]
    if not trained:
        training = Training("frozen")
    elif all("lora_" in name for name in trained):
        (adapter,) = encoder.peft_config.values()
        training = Training("lora", lora_r=adapter.r, lora_targets=tuple(sorted(adapter.target_modules)))
    else:
        training = Training("full")
    shape = Shape("encoder", encoder.config.to_dict())
    # A polynomial of the length without a constant; two points give its coefficients.
    one, two = (training_flops(shape, 1, length, training) for length in (1, 2))
    square = two / 2 - one
    return StepCost(one - square, square)


def peak_flops(device_name: str, *, bf16: bool) -> float | None:
    """Return a GPU's dense peak in FLOP/s by CUDA name, from the table of `mar plan`; `None` if not there.

    The entry with the most pieces in the CUDA name counts: `NVIDIA H100 PCIe` is an H100-PCIe, not an H100.
    """
    compact = device_name.replace(" ", "").upper()
    pieces = {name: name.upper().split("-") for name in DEVICES}
    matches = [name for name in DEVICES if all(piece in compact for piece in pieces[name])]
    if not matches:
        return None
    device = DEVICES[max(matches, key=lambda name: len(pieces[name]))]
    peak = device.bf16 if bf16 else device.fp32
    return None if peak is None else peak * 1e12


def peak_memory(device: torch.device) -> float:
    """Return peak memory so far, in GB (10^9 bytes): of torch's tensors on CUDA, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    try:
        import resource  # lazy: resource
    except ImportError:  # Windows
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9


def own_modules(loss: nn.Module) -> list[Any]:
    """Return a loss and the losses inside it, without the model that they hold."""
    modules: list[Any] = [] if type(loss).__module__.startswith(("torch.", "transformers.")) else [loss]
    for child in loss.children():
        if not isinstance(child, BaseModel):
            modules += own_modules(child)
    return modules


class Meter:
    """Sums the work of the steps since the last record; never waits for the device in between.

    Args:
        model: The model.
        device: Its device.
        bf16: Whether it computes in bf16.
        world: Number of processes.
    """

    def __init__(self, model: nn.Module, device: torch.device, *, bf16: bool, world: int) -> None:
        self.device, self.world = device, world
        self.costs: dict[str, StepCost] = {}
        self.peak: float | None = None
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self.peak = peak_flops(torch.cuda.get_device_name(device), bf16=bf16)
            self.costs = step_costs(model) if self.peak else {}
        self._restart()

    def _restart(self) -> None:
        self._sums = {"texts": 0.0, "tokens": 0.0, "padded": 0.0, "flops": 0.0}
        self._parts: dict[str, tuple[Any, int]] = {}
        self._temperatures: dict[str, Any] = {}
        self._since, self._paused = time.perf_counter(), 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time of a block, such as an evaluation, from the throughput."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - start

    def batch(self, record: BatchRecord) -> None:
        """Count one batch."""
        sums = self._sums
        sums["texts"] += sum(len(texts) for texts in record.texts.values())
        for column, tokens in record.tokens.items():
            sums["tokens"] += tokens
            sums["padded"] += record.padded[column]
            cost = self.costs.get(record.routes.get(column, NO_ROUTE)) or self.costs.get(NO_ROUTE)
            if cost is not None:
                sums["flops"] += cost.token * tokens + cost.square * record.squares[column]

    def parts(self, losses: list[Any], scale: float = 1.0) -> None:
        """Add the parts that the modules of a loss report for the last pass, times `scale`."""
        for loss in losses:
            for name, value in (getattr(loss, "last_parts", None) or {}).items():
                value = value.detach() if isinstance(value, torch.Tensor) else value
                total, number = self._parts.get(name, (0.0, 0))
                self._parts[name] = (total + scale * value, number + 1)
            if getattr(loss, "learnable_temperature", False):
                self._temperatures["temperature"] = loss

    def record(self) -> dict[str, float | None]:
        """Return the fields of a log record about the steps since the last one, and reset the counts.

        Every process must call it at the same step. Throughput is that of all processes, memory that of this
        one. `mfu` is `None` if the device's peak is not known, as on a CPU.
        """
        seconds = max(time.perf_counter() - self._since - self._paused, 1e-9)
        fields: dict[str, float | None] = {
            f"loss_{name}": float(total) / number for name, (total, number) in self._parts.items()
        }
        fields |= {name: float(loss.temperature) for name, loss in self._temperatures.items()}
        sums = self._gathered(self._sums)
        fields["texts_per_second"] = round(sums["texts"] / seconds, 2)
        fields["tokens_per_second"] = round(sums["tokens"] / seconds, 1)
        fields["padding"] = round(1 - sums["tokens"] / sums["padded"], 4) if sums["padded"] else 0.0
        fields["peak_memory_gb"] = round(peak_memory(self.device), 3)
        known = self.peak is not None and sums["flops"] > 0
        fields["mfu"] = (
            round(sums["flops"] / seconds / (self.world * self.peak), 4) if known and self.peak else None
        )
        self._restart()
        return fields

    def _gathered(self, sums: dict[str, float]) -> dict[str, float]:
        if self.world == 1:
            return sums
        values = torch.tensor(list(sums.values()), dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(values)
        return dict(zip(sums, values.tolist(), strict=True))
