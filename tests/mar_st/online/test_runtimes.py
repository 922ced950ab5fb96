"""What a graph is computed in depends on what the processor has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mar_st.encode.processor import Processor
from mar_st.online import runtimes
from mar_st.online.runtimes import OpenVINORuntime

CALIBRATED = {"inference_precision": "bf16", "inference_precision_needs": "amx_bf16"}


@pytest.mark.parametrize(
    ("options", "flags", "can", "expected"),
    [
        (CALIBRATED, {"avx512_bf16", "amx_bf16"}, ["BF16"], "bf16"),
        (CALIBRATED, {"avx512_bf16"}, ["BF16"], "f32"),
        ({"inference_precision": "bf16"}, {"avx512_bf16"}, ["BF16"], "bf16"),
        ({"inference_precision": "bf16"}, set(), ["FP32"], "f32"),
        ({}, {"amx_bf16"}, ["BF16"], "f32"),
    ],
)
def test_precision(options, flags, can, expected, monkeypatch, tmp_path):
    asked = {}

    class Core:
        def get_property(self, device, name):
            return can

        def compile_model(self, path, device, settings):
            asked.update(settings)
            return SimpleNamespace(create_infer_request=lambda: None)

    monkeypatch.setattr(runtimes, "optional", lambda *_: SimpleNamespace(Core=Core))
    monkeypatch.setattr(runtimes, "processor", lambda: Processor("any", frozenset(flags)))
    OpenVINORuntime(tmp_path / "graph.xml", options, 2)
    assert asked["INFERENCE_PRECISION_HINT"] == expected
