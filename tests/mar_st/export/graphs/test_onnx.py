"""Tests of graphs for ONNX Runtime: their precisions, and the float32 graph that others start from."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from mar_st.export import ExportError, export
from mar_st.export.formats import GraphSource
from mar_st.export.graphs.onnx import OnnxGraphs
from tests.mar_st.export.conftest import TEXTS


@pytest.mark.slow
def test_onnx_is_exported_in_every_supported_precision(gte_folder, tmp_path):
    from mar_st.online import load_query_encoder

    out = tmp_path / "out"
    listing = export(gte_folder, out, formats=("onnx",), weight_formats=("fp32", "bf16", "int8"),
                     calibrate=TEXTS, threads=1, show_progress=False)  # fmt: skip
    assert set(listing.refused) == {"onnx-bf16"}
    assert set(listing.variants) == {"onnx-fp32", "onnx-int8", "onnx-int8-calibrated"}
    original = load_query_encoder(gte_folder).encode(TEXTS)
    exported = load_query_encoder(out, backend="onnx-fp32", threads=1).encode(TEXTS)
    np.testing.assert_allclose(exported, original, atol=1e-5)
    assert all(variant.report["cosine_min"] > 0.97 for variant in listing.variants.values())


@pytest.fixture
def converted(monkeypatch, tmp_path):
    """Makes a format whose converter writes a stand-in for the graph; and the arguments it was given."""
    given = {}

    def write(graph, example, path, **options):
        given.update(options)
        for name in (path, f"{path}.data"):
            with open(name, "wb") as stream:
                stream.write(b"graph")

    monkeypatch.setattr(torch.onnx, "export", write)
    monkeypatch.setitem(sys.modules, "onnxscript", ModuleType("onnxscript"))

    def make(single=True):
        shapes = {"embeddings": (16, 8), "positions": (16,), "segments": (16,), "pool": (4,)}
        example = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        graph = SimpleNamespace(single=single)
        return OnnxGraphs(GraphSource(graph, example, None, tmp_path)), given

    return make


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ("bf16", "ONNX Runtime has no bfloat16 matrix products"),
        ("int8-calibrated", r"needs queries to calibrate on \(--calibrate\)"),
    ],
)
def test_what_cannot_be_computed_is_refused(converted, tmp_path, precision, message):
    formats, _ = converted()
    with pytest.raises(ExportError, match=message):
        formats.write(precision, tmp_path, "float16", [])


@pytest.mark.parametrize("kept", [{"onnx-fp32", "onnx-int8"}, {"onnx-int8"}, set()])
def test_the_float32_graph_stays_only_if_it_was_asked_for(converted, tmp_path, kept):
    formats, _ = converted()
    variant = formats.write("fp32", tmp_path, "float32", [])
    assert variant.files == ["onnx-fp32.onnx", "onnx-fp32.onnx.data"]
    (tmp_path / "onnx-int8.onnx").write_bytes(b"of another precision")
    formats.finish(kept)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"onnx-int8.onnx", *(variant.files if "onnx-fp32" in kept else [])}
    formats.finish(kept)  # a second time there is nothing to delete


def test_weights_in_the_graph_itself_are_one_file(converted, tmp_path):
    formats, _ = converted()
    (tmp_path / "onnx-fp32.onnx.data").unlink()
    assert formats.write("fp32", tmp_path, "float32", []).files == ["onnx-fp32.onnx"]


@pytest.mark.parametrize("single", [True, False])
def test_the_number_of_texts_and_of_tokens_may_vary(converted, single):
    _, given = converted(single)
    shapes = given["dynamic_shapes"]
    tokens = shapes["embeddings"][0]
    assert shapes["positions"] == shapes["segments"] == {0: tokens}
    assert (1 in shapes["pool"]) is not single  # weights of every token, or the row of one
    assert shapes["pool"][0] is not tokens
    assert given["input_names"] == ["embeddings", "positions", "segments", "pool"]
