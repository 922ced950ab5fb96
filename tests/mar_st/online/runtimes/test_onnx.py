"""Tests of the runtime `onnx`: a graph with any number of tokens."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.online import EncoderError
from mar_st.online.listing import ExportVariant
from mar_st.online.runtime import open_runtime
from mar_st.online.runtimes.onnx import OnnxRuntime

WEIGHTS = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)


@pytest.fixture
def graph(tmp_path):
    """Pools embeddings and multiplies them by `WEIGHTS`, which are in a file of their own."""
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info("embeddings", floats, ["tokens", 8]),
        helper.make_tensor_value_info("pool", floats, ["texts", "tokens"]),
    ]
    outputs = [helper.make_tensor_value_info("vectors", floats, ["texts", 3])]
    nodes = [
        helper.make_node("MatMul", ["pool", "embeddings"], ["pooled"]),
        helper.make_node("MatMul", ["pooled", "weights"], ["vectors"]),
    ]
    made = helper.make_graph(
        nodes, "graph", inputs, outputs, [onnx.numpy_helper.from_array(WEIGHTS, "weights")]
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(
        model, str(tmp_path / "graph.onnx"), save_as_external_data=True, location="graph.onnx.data",
        size_threshold=0,
    )  # fmt: skip
    return tmp_path / "graph.onnx"


def test_packs_of_any_size_are_computed(graph):
    runtime = OnnxRuntime(graph, {}, 1)
    rng = np.random.default_rng(1)
    for tokens, texts in ((16, 1), (48, 4), (2, 2)):
        embeddings = rng.standard_normal((tokens, 8)).astype(np.float32)
        pool = rng.random((texts, tokens)).astype(np.float32)
        vectors = runtime.run({"embeddings": embeddings, "pool": pool})
        np.testing.assert_allclose(vectors, pool @ embeddings @ WEIGHTS, rtol=1e-4, atol=1e-4)
        assert vectors.dtype == np.float32


def test_weights_that_are_missing_are_one_error(graph):
    variant = ExportVariant("onnx", "fp32", graph.name, [graph.name], "float32")
    assert isinstance(open_runtime(graph.parent, variant, 2), OnnxRuntime)
    graph.with_name("graph.onnx.data").unlink()
    with pytest.raises(EncoderError, match=r"onnx cannot load .*Export the encoder again") as error:
        open_runtime(graph.parent, variant, 1)
    assert "\n" not in str(error.value)
