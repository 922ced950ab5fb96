"""Time and memory of commands and of loading."""

from __future__ import annotations

import sys

import measured
import pytest
import torch
from torch import nn

MB = 2**20


@pytest.mark.thorough
def test_a_command_is_measured_with_the_processes_it_starts(tmp_path):
    hold = "import time; block = b'x' * (150 << 20); time.sleep(0.5)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}], check=True)"
    usage = measured.run([sys.executable, "-c", script], tmp_path / "log")
    assert 150 < usage.own_mb <= usage.peak_mb < 300
    assert usage.seconds >= 0.5
    assert usage.seconds * 4 > usage.cpu_seconds > 0


def test_a_failure_shows_the_end_of_the_output(tmp_path):
    with pytest.raises(SystemExit, match=r"ended with 3 .*\n.*the reason"):
        measured.run([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], tmp_path / "log")


def test_a_command_that_leaves_others_no_memory_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "MIN_FREE_MIB", 10**9)
    with pytest.raises(SystemExit, match="memory ran out"):
        measured.run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")


@pytest.mark.thorough(but=["1-1.0"])
@pytest.mark.parametrize(("copies", "ratio"), [(1, 1.0), (2, 2.0)])
def test_copies_while_loading_are_seen(copies, ratio):
    def load():
        held = [nn.Linear(5120, 5120, bias=False) for _ in range(copies)]  # 100 MB each
        return held[0]

    usage = measured.loading(load, measured.weight_bytes)
    assert usage["weights_mb"] == 100
    assert usage["ratio"] == pytest.approx(ratio, abs=0.15)
    assert usage["own_mb"] == pytest.approx(100 * ratio, rel=0.15)


@pytest.mark.thorough
def test_pages_of_mapped_files_count_as_resident_and_not_as_own(tmp_path):
    path = tmp_path / "weights"
    torch.zeros(100 * MB // 4).numpy().tofile(path)

    def load():
        layer = nn.Linear(1, 1, bias=False)
        layer.weight = nn.Parameter(torch.from_file(str(path), size=100 * MB // 4))
        return layer

    usage = measured.loading(load, measured.weight_bytes)
    assert usage["ratio"] == pytest.approx(1, abs=0.1)
    assert usage["own_mb"] < 20


def test_a_failed_load_is_reported():
    with pytest.raises(SystemExit, match="loading failed"):
        measured.loading(lambda: 1 / 0, measured.weight_bytes)


def test_shared_weights_count_once():
    layer = nn.Linear(4, 4, bias=False)
    assert measured.weight_bytes(nn.Sequential(layer, layer)) == 64
