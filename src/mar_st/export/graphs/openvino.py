"""Graphs for OpenVINO: float32, bfloat16, int8 weights, int8 throughout."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from mar_st.export.formats import GraphFormat, graph_format
from mar_st.export.graph import ExportError
from mar_st.online.listing import ExportVariant
from mar_st.online.runtimes import optional

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from mar_st.export.formats import GraphSource

#: Columns of an int8 weight matrix whose activations share a scale.
_GROUP = 128

#: How each precision is computed. Weights of bfloat16 variants are stored as float16, which has more digits
#: in the same space.
_OPTIONS: dict[str, dict[str, Any]] = {
    "fp32": {"inference_precision": "f32"},
    "bf16": {"inference_precision": "bf16", "float_weights": True},
    "int8": {"inference_precision": "f32", "dynamic_quantization_group": _GROUP},
    "int8-calibrated": {"inference_precision": "bf16"},
}


@graph_format("openvino", after="native")
class OpenVINOGraphs(GraphFormat):
    """Writes the variants of one encoder.

    Args:
        source: The encoder.
    """

    def __init__(self, source: GraphSource) -> None:
        ov = optional("openvino", "export")
        graph, example = source.graph, source.example
        self._ov = ov
        tensors = {name: torch.from_numpy(array) for name, array in example.items()}
        self._model = ov.convert_model(graph, example_input=tensors)
        for port in self._model.inputs:  # a traced input may get a second name from inside
            (name,) = port.get_names() & set(example)
            port.get_tensor().set_names({name})

    def write(
        self, precision: str, folder: Path, table: str, calibration: Sequence[dict[str, np.ndarray]]
    ) -> ExportVariant:
        """Write one variant, see `GraphFormat.write`.

        Raises:
            ExportError: `int8-calibrated` without queries to calibrate on, or a package is missing.
        """
        name = f"openvino-{precision}"
        model = self._prepared(precision, calibration)
        self._ov.save_model(model, str(folder / f"{name}.xml"), compress_to_fp16=precision == "bf16")
        files = [f"{name}.xml", f"{name}.bin"]
        return ExportVariant("openvino", precision, files[0], files, table, dict(_OPTIONS[precision]))

    def _prepared(self, precision: str, calibration: Sequence[dict[str, np.ndarray]]) -> Any:
        if precision in ("fp32", "bf16"):
            return self._model
        nncf = optional("nncf", "export")
        # Not nncf.set_log_level(): it also changes the handlers that others gave to its logger.
        logging.getLogger("nncf").setLevel(logging.ERROR)
        if precision == "int8":
            return nncf.compress_weights(self._model.clone(), mode=nncf.CompressWeightsMode.INT8_SYM)
        if not calibration:
            raise ExportError("int8-calibrated needs queries to calibrate on (--calibrate).")
        # Attention is little work for short texts, and its scores lose most by rounding.
        return nncf.quantize(
            self._model.clone(),
            nncf.Dataset(list(calibration)),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(calibration),
            ignored_scope=nncf.IgnoredScope(types=["ScaledDotProductAttention"], validate=False),
        )
