"""Devices that plans are made for: their peaks and their memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A device: its peak in TFLOP/s (dense, bf16 and fp32) and its memory in GiB; `None` if unknown."""

    bf16: float | None
    fp32: float | None
    memory: float | None

    @property
    def usable(self) -> float | None:
        """Return the bytes that a plan may use."""
        return None if self.memory is None else USABLE_SHARE * self.memory * 2**30


#: Vendors' dense peaks. A bare name is the SXM part; `peak_flops` finds a part by the pieces of its name.
DEVICES = {
    "H200": Device(989, 67, 141),
    "H200-NVL": Device(835, 60, 141),
    "H100": Device(989, 67, 80),
    "H100-NVL": Device(835, 60, 94),
    "H100-PCIe": Device(756, 51, 80),
    "A100-80GB": Device(312, 19.5, 80),
    "A100-40GB": Device(312, 19.5, 40),
    "L40S": Device(362, 91.6, 48),
    "RTX4090": Device(165, 82.6, 24),
    "cpu": Device(None, None, None),
}

#: Share of the memory that tensors may use; the rest is for CUDA's context and fragmentation.
USABLE_SHARE = 0.92


def device_here() -> Device | None:
    """Return the GPU of this process; `None` if it has none."""
    import torch  # lazy: torch

    if not torch.cuda.is_available():
        return None
    return Device(
        None, None, torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory / 2**30
    )
