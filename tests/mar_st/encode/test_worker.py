"""Tests that several processes write the same files as one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from mar_st.encode import encoding as run_module
from mar_st.encode.encoding import EncodeError
from mar_st.encode.worker import Worker
from tests.mar_st.encode.corpora import encode

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("gpus", "workers", "expected"),
    [
        (0, 2, ["cpu", "cpu"]),
        (1, 1, ["cuda:0"]),
        (2, 1, ["cuda:0"]),
        (2, 2, ["cuda:0", "cuda:1"]),
        (2, 3, ["cuda:0", "cuda:1", "cuda:0"]),
    ],
)
def test_workers_take_the_gpus_in_turn(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: Any, gpus: int, workers: int, expected: list[str]
) -> None:
    taken: list[str] = []

    def here(job: Any, numbers: Any, done: Any, devices: Any = None) -> None:
        taken.extend(devices or [job.device])
        Worker(replace(job, device="cpu")).run(numbers, done)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(run_module, "run_processes", here)
    monkeypatch.setattr(run_module, "run_here", here)
    said: list[str] = []
    encode(model, corpus, tmp_path / "v", workers=workers, say=said.append)
    assert taken == expected
    assert (f"{workers} processes on {', '.join(expected)}" in said) == (workers > 1)
    begun = json.loads((tmp_path / "v" / "encode.json").read_text(encoding="utf-8"))
    assert begun["settings"]["device"] == expected[0].partition(":")[0]


def test_workers_with_devices_or_ray_are_refused(model: Path, corpus: Path, tmp_path: Path) -> None:
    for options in ({"workers": 2, "devices": ["cpu"]}, {"workers": 2, "engine": "ray"}, {"workers": 0}):
        with pytest.raises(EncodeError, match="workers"):
            encode(model, corpus, tmp_path / "v", **options)
