"""Opening the graph of a variant."""

from __future__ import annotations

import pytest

from mar_st.online import EncoderError
from mar_st.online.listing import ExportVariant
from mar_st.online.runtime import open_runtime


@pytest.mark.parametrize(("runtime", "package"), [("onnx", "onnxruntime"), ("openvino", "openvino")])
def test_a_graph_that_the_runtime_cannot_load_is_one_error(tmp_path, runtime, package):
    pytest.importorskip(package)
    graph = tmp_path / ("graph.onnx" if runtime == "onnx" else "graph.xml")
    graph.write_bytes(b"no graph")
    variant = ExportVariant(runtime, "fp32", graph.name, [graph.name], "float32")
    with pytest.raises(
        EncoderError, match=f"{runtime} cannot load .*{graph.name} .*Export the encoder again"
    ):
        open_runtime(tmp_path, variant, 1)
