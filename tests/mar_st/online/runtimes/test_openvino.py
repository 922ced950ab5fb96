"""Tests of the runtime `openvino`: its settings on various processors, and one core per process."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mar_st.online.runtimes import openvino as runtime
from mar_st.online.runtimes.openvino import OpenVINORuntime
from tests.mar_st.export.conftest import exported, gte_folder  # noqa: F401 -- fixtures


@pytest.mark.thorough
def test_signals_are_handled_after_encoders_are_gone(exported):  # noqa: F811
    """OpenVINO frees the stack that it gives to signal handlers; the next signal then ended the process."""
    code = (
        "import gc, os, signal\nfrom mar_st.online import load_query_encoder\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('handled'))\n"
        f"load = lambda: load_query_encoder({str(exported[0])!r}, backend='openvino-fp32', threads=1)\n"
        "first, second = load(), load()\n"
        "del first\ngc.collect()\ndel second\ngc.collect()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('alive')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["handled", "alive"])


class Core:
    """An OpenVINO core of a processor with some capabilities, which keeps the settings of a graph."""

    def __init__(self, capabilities):
        self.capabilities, self.settings = capabilities, {}

    def get_property(self, device, name):
        assert (device, name) == ("CPU", "OPTIMIZATION_CAPABILITIES")
        return self.capabilities

    def compile_model(self, path, device, settings):
        self.settings = settings
        return SimpleNamespace(create_infer_request=lambda: None)


FLOATS = {"inference_precision": "bf16", "float_weights": True}
CALIBRATED = {"inference_precision": "bf16"}


@pytest.mark.parametrize(
    ("options", "capabilities", "processors", "threads", "precision", "used"),
    [
        (FLOATS, ["FP32", "BF16"], 4, 4, "bf16", 4),
        (CALIBRATED, ["FP32", "BF16"], 4, 1, "bf16", 1),
        # OpenVINO's fused layer of float weights in bfloat16 needs two threads.
        (FLOATS, ["FP32", "BF16"], 4, 1, "bf16", 2),
        (FLOATS, ["FP32", "BF16"], 1, 1, "f32", None),
        # Without instructions for bfloat16 it would be emulated.
        (FLOATS, ["FP32"], 4, 1, "f32", 1),
        (CALIBRATED, ["FP32"], 4, 3, "f32", 3),
        ({}, ["FP32", "BF16"], 4, 1, "f32", 1),
    ],
)
def test_the_precision_is_one_that_the_processor_computes(
    monkeypatch, tmp_path, options, capabilities, processors, threads, precision, used
):
    core = Core(capabilities)
    monkeypatch.setattr(runtime, "_core", lambda: core)
    monkeypatch.setattr(runtime, "processors", lambda: processors)
    OpenVINORuntime(tmp_path / "graph.xml", options, threads)
    assert core.settings["INFERENCE_PRECISION_HINT"] == precision
    assert used is None or core.settings["INFERENCE_NUM_THREADS"] == str(used)
    assert "DYNAMIC_QUANTIZATION_GROUP_SIZE" not in core.settings


@pytest.mark.parametrize("group", [0, 128])
def test_the_group_of_rounded_activations_is_that_of_the_export(monkeypatch, tmp_path, group):
    core = Core(["FP32"])
    monkeypatch.setattr(runtime, "_core", lambda: core)
    OpenVINORuntime(tmp_path / "graph.xml", {"dynamic_quantization_group": group}, 1)
    assert core.settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] == str(group)


def test_packs_of_any_size_are_computed(tmp_path):
    ov = pytest.importorskip("openvino")
    ops = ov.opset13
    weights = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    embeddings = ops.parameter([-1, 8], np.float32, name="embeddings")
    product = ops.matmul(embeddings, ops.constant(weights), False, False)
    model = ov.Model([product], [embeddings], "graph")
    model.inputs[0].get_tensor().set_names({"embeddings"})
    ov.save_model(model, str(tmp_path / "graph.xml"), compress_to_fp16=False)
    first, second = (OpenVINORuntime(tmp_path / "graph.xml", {}, 1) for _ in range(2))
    for tokens in (16, 5, 64):
        given = np.random.default_rng(tokens).standard_normal((tokens, 8)).astype(np.float32)
        vectors = first.run({"embeddings": given})
        second.run({"embeddings": 2 * given})  # another request does not write into these vectors
        np.testing.assert_allclose(vectors, given @ weights, rtol=1e-4, atol=1e-5)
