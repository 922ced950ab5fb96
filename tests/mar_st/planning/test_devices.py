"""Devices of plans: their usable memory, the table of them, and the GPU of this process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from mar_st.planning.devices import DEVICES, Device, device_here
from mar_st.stages.meter import peak_flops


def test_a_plan_leaves_some_memory_to_cuda():
    assert Device(None, None, None).usable is None
    half, whole = Device(None, None, 40).usable, Device(None, None, 80).usable
    assert whole == 2 * half
    assert 0.85 * 80 * 2**30 < whole < 0.95 * 80 * 2**30


@pytest.mark.parametrize("name", [name for name, device in DEVICES.items() if device.memory])
def test_a_gpu_is_found_by_its_own_name_and_computes_faster_in_bf16(name):
    device = DEVICES[name]
    assert device.fp32 < device.bf16
    assert peak_flops(f"NVIDIA {name.replace('-', ' ')}", bf16=True) == device.bf16 * 1e12
    assert peak_flops(f"NVIDIA {name.replace('-', ' ')}", bf16=False) == device.fp32 * 1e12


def test_the_device_here_is_the_gpu_of_the_process_with_its_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_here() is None
    memory = {0: 80 * 2**30, 1: 40 * 2**30}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(total_memory=memory[number])
    )
    assert device_here() == Device(None, None, 40)
