from __future__ import annotations

import subprocess
import sys

import pytest

from mar_st.kernels.heap import trim
from mar_st.stages.memory import MAX_GROWTH, SETTLE_STEPS, ReturnMemory, resident

GROW = """
import torch
from mar_st.kernels.heap import trim
from mar_st.stages.memory import resident
torch.set_num_threads(1)
kept = []
for i in range(400):  # holes: every second tensor stays
    tensors = [torch.ones(20_000 + 500 * i) for _ in range(8)]
    kept.append(tensors[3])
    del tensors
del kept[::2]
before = resident()
trim()
print(before, resident())
"""


def step(callback):
    callback.on_step_end(None, None, None)


def test_memory_is_given_back_when_the_process_has_grown_by_half():
    held, trims = [100], []
    callback = ReturnMemory(lambda: held[0], lambda: bool(trims.append(held[0])) or True)
    for grown in range(SETTLE_STEPS):
        held[0] = 100 + grown
        step(callback)
    settled = held[0]
    held[0] = int(MAX_GROWTH * settled)
    step(callback)
    assert trims == []
    held[0] += 1
    step(callback)
    assert trims == [held[0]]
    # What it works with now is measured again.
    for _ in range(SETTLE_STEPS):
        step(callback)
    step(callback)
    assert len(trims) == 1


def test_memory_is_not_trimmed_if_its_size_is_unknown():
    callback = ReturnMemory(lambda: None, lambda: pytest.fail("trimmed"))
    for _ in range(3 * SETTLE_STEPS):
        step(callback)


@pytest.mark.slow
@pytest.mark.skipif(resident() is None or not trim(), reason="no glibc, or no /proc")
def test_trimming_shrinks_a_fragmented_heap():
    process = subprocess.run([sys.executable, "-c", GROW], capture_output=True, text=True, check=True)
    before, after = map(int, process.stdout.split())
    assert after < before
