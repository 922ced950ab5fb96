"""Graphs for OpenVINO (float32, int8 weights) and for ONNX Runtime (float32, int8)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from mar_st.online.listing import ExportVariant
from mar_st.online.runtimes import optional

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from mar_st.export.graph import PackedEncoder
    from mar_st.online.listing import Listing


def openvino_writer(
    graph: PackedEncoder, example: dict[str, np.ndarray], listing: Listing, folder: Path
) -> Callable[[str], ExportVariant]:
    """Convert an encoder for OpenVINO; return the function that writes it in a precision."""
    del listing
    ov = optional("openvino", "export")
    tensors = {name: torch.from_numpy(array) for name, array in example.items()}
    model = ov.convert_model(graph, example_input=tensors)
    for port in model.inputs:  # a traced input may get a second name from inside
        (name,) = port.get_names() & set(example)
        port.get_tensor().set_names({name})

    def write(precision: str) -> ExportVariant:
        written = model
        if precision == "int8":
            nncf = optional("nncf", "export")
            # Not nncf.set_log_level(): it also changes the handlers that others gave to its logger.
            logging.getLogger("nncf").setLevel(logging.ERROR)
            written = nncf.compress_weights(model.clone(), mode=nncf.CompressWeightsMode.INT8_SYM)
        files = [f"openvino-{precision}.xml", f"openvino-{precision}.bin"]
        ov.save_model(written, str(folder / files[0]), compress_to_fp16=False)
        return ExportVariant("openvino", precision, files[0], files)

    return write


def onnx_writer(
    graph: PackedEncoder, example: dict[str, np.ndarray], listing: Listing, folder: Path
) -> Callable[[str], ExportVariant]:
    """Convert an encoder to ONNX; return the function that writes it in a precision."""
    del listing
    optional("onnxscript", "export")
    base = folder / "onnx-fp32.onnx"
    tokens, texts = torch.export.Dim("tokens", min=2, max=8192), torch.export.Dim("texts", max=8192)
    shapes: dict[str, Any] = {name: {0: tokens} for name in ("embeddings", "positions", "segments")}
    shapes["pool"] = {0: texts} if graph.single else {0: texts, 1: tokens}
    torch.onnx.export(
        graph,
        tuple(torch.from_numpy(array) for array in example.values()),
        str(base),
        input_names=list(example),
        output_names=["vectors"],
        dynamic_shapes=shapes,
        dynamo=True,
        external_data=True,
        optimize=True,
        verbose=False,
    )

    def write(precision: str) -> ExportVariant:
        target = folder / f"onnx-{precision}.onnx"
        if precision == "int8":
            quantization = optional("onnxruntime.quantization", "export")
            quantization.quantize_dynamic(
                base,
                target,
                op_types_to_quantize=["MatMul", "Gemm"],
                per_channel=True,
                weight_type=quantization.QuantType.QInt8,
                use_external_data_format=True,
                extra_options={"MatMulConstBOnly": True},
            )
        files = [name for name in (target.name, f"{target.name}.data") if (folder / name).is_file()]
        return ExportVariant("onnx", precision, target.name, files)

    return write
