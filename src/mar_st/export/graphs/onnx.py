"""Graphs for ONNX Runtime: float32, int8 with dynamic ranges, int8 with calibrated ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from mar_st.export.formats import GraphFormat, graph_format
from mar_st.export.graph import ExportError
from mar_st.online.listing import ExportVariant
from mar_st.online.runtimes import optional

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import numpy as np

    from mar_st.export.formats import GraphSource


@graph_format("onnx", after="openvino")
class OnnxGraphs(GraphFormat):
    """Writes the variants of one encoder.

    Args:
        source: The encoder.
    """

    def __init__(self, source: GraphSource) -> None:
        optional("onnxscript", "export")
        graph, example = source.graph, source.example
        self._base = source.folder / "onnx-fp32.onnx"
        tokens, texts = torch.export.Dim("tokens", min=2, max=8192), torch.export.Dim("texts", max=8192)
        shapes: dict[str, Any] = {name: {0: tokens} for name in ("embeddings", "positions", "segments")}
        shapes["pool"] = {0: texts} if graph.single else {0: texts, 1: tokens}
        torch.onnx.export(
            graph,
            tuple(torch.from_numpy(array) for array in example.values()),
            str(self._base),
            input_names=list(example),
            output_names=["vectors"],
            dynamic_shapes=shapes,
            dynamo=True,
            external_data=True,
            optimize=True,
            verbose=False,
        )

    def write(
        self, precision: str, folder: Path, table: str, calibration: Sequence[dict[str, np.ndarray]]
    ) -> ExportVariant:
        """Write one variant, see `GraphFormat.write`.

        Raises:
            ExportError: ONNX Runtime does not compute in this precision, or a package is missing.
        """
        name = f"onnx-{precision}"
        target = folder / f"{name}.onnx"
        if precision == "bf16":
            raise ExportError("ONNX Runtime has no bfloat16 matrix products on CPUs.")
        if precision == "int8":
            self._dynamic(target)
        elif precision == "int8-calibrated":
            self._calibrated(target, calibration)
        files = [target.name, f"{target.name}.data"]
        return ExportVariant(
            "onnx", precision, target.name, [f for f in files if (folder / f).is_file()], table
        )

    def finish(self, kept: Collection[str]) -> None:
        """Delete the float32 graph if it was not requested."""
        if self._base.stem in kept:
            return
        for path in (self._base, self._base.with_name(f"{self._base.name}.data")):
            path.unlink(missing_ok=True)

    def _dynamic(self, target: Path) -> None:
        quantization = optional("onnxruntime.quantization", "export")
        quantization.quantize_dynamic(
            self._base,
            target,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            use_external_data_format=True,
            extra_options={"MatMulConstBOnly": True},
        )

    def _calibrated(self, target: Path, calibration: Sequence[dict[str, np.ndarray]]) -> None:
        if not calibration:
            raise ExportError("int8-calibrated needs queries to calibrate on (--calibrate).")
        quantization = optional("onnxruntime.quantization", "export")

        class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                self.rows = iter(calibration)

            def get_next(self) -> dict[str, np.ndarray] | None:
                return next(self.rows, None)

        quantization.quantize_static(
            self._base,
            target,
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            use_external_data_format=True,
            extra_options={"MatMulConstBOnly": True},
        )
