"""Training speed of this machine, measured by a few seconds of training with random weights."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModel

from mar_st.kernels.cpu_attention import float32_attention
from mar_st.planning.backbones import count
from mar_st.planning.costs import Training, prepare, training_flops
from mar_st.planning.tried import TrainingSpeed
from mar_st.stages.compiling import compiled_encoders

if TYPE_CHECKING:
    from mar_st.planning.backbones import Shape

#: Number of parameters above which two layers of the encoder are measured; operations scale with layers.
MAX_WHOLE_PARAMETERS = {"cpu": 50e6, "cuda": 10e9}


def measure(
    shape: Shape, training: Training, length: int, *, seconds: float = 2.0, compiled: bool = False
) -> TrainingSpeed:
    """Time forward and backward passes of an encoder with random weights on the best device present.

    Rows per pass are doubled until a pass takes a quarter of a second or 64 rows; passes then run for
    `seconds`, the median counts. Large encoders are measured on two of their layers.

    Args:
        shape: The encoder.
        training: How it is trained; GradCache is not run here but counted as operations.
        length: Tokens per text.
        seconds: Seconds to measure, after compilation.
        compiled: Compile the encoder as training does with `compile: true`.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if count(shape).total > MAX_WHOLE_PARAMETERS[device]:
        shape = shape.with_layers(2)
    plain = Training(
        training.mode,
        training.lora_r,
        training.lora_targets,
        training.checkpointing,
        bf16=training.bf16,
        dtype=training.dtype,
    )
    bench = _Bench(shape, plain, length, device)
    on_cpu = device == "cpu"
    with (
        float32_attention([bench.model] if training.bf16 and on_cpu else []),
        compiled_encoders([bench.model] if compiled else [], on_cpu=on_cpu),
    ):
        return bench.run(seconds)


class _Bench:
    def __init__(self, shape: Shape, training: Training, length: int, device: str) -> None:

        self.shape, self.training, self.length, self.device = shape, training, length, device
        config = AutoConfig.for_model(**shape.config)
        with torch.device(device):
            model: Any = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
        prepare(model, training)
        self.model = model.train().to(device)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.parameters = sum(parameter.numel() for parameter in trained)
        self.optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=True) if trained else None

    def run(self, seconds: float) -> TrainingSpeed:
        rows = 2
        took = min(self._pass(rows) for _ in range(2))  # the first pass warms up
        while took < 0.25 and rows < 64:
            rows *= 2
            took = self._pass(rows)
        times, end = [took], time.perf_counter() + seconds
        while time.perf_counter() < end:
            times.append(self._pass(rows))
        median = sorted(times)[len(times) // 2]
        flops = training_flops(self.shape, rows, self.length, self.training) / median
        step = min(self._step() for _ in range(3)) if self.optimizer else 0.0
        return TrainingSpeed(flops, step / self.parameters if self.parameters else 0.0)

    def _clock(self) -> float:

        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _pass(self, rows: int) -> float:

        low = min(10, self.shape.config["vocab_size"] - 1)
        ids = torch.randint(low, self.shape.config["vocab_size"], (rows, self.length), device=self.device)
        mask = torch.ones_like(ids)
        trains = self.training.mode != "frozen"
        started = self._clock()
        with (
            torch.autocast(self.device, torch.bfloat16, enabled=self.training.bf16),
            torch.set_grad_enabled(trains),
        ):
            states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if trains:
            states[:, 0].float().sum().backward()
        return self._clock() - started

    def _step(self) -> float:
        assert self.optimizer is not None  # noqa: S101
        started = self._clock()
        self.optimizer.step()
        return self._clock() - started
