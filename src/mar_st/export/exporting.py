"""Write an exported query encoder: its variants, the cost and loss of each, and the chosen one.

Variants are graphs for OpenVINO (float32, int8 weights) and ONNX Runtime (float32, int8), and the int8 form
that `mar_st.kernels` computes. A lookup encoder becomes a saved model whose table is int8, with a scale per
feature.
"""

from __future__ import annotations

import logging
import sys
import warnings
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.export.graph import PackedEncoder, check_tokens, parts_of, write_front
from mar_st.export.measure import measure
from mar_st.export.native import native_writer
from mar_st.files import finished_folder, write_text
from mar_st.lookup.module import LookupEncoder
from mar_st.model.digest import SPACE_FILE
from mar_st.model.names import model_source
from mar_st.modules.layout import saved_chain
from mar_st.online.encoders import ExportedEncoder, optional
from mar_st.online.front import TextPacker
from mar_st.online.listing import EMBEDDINGS, LISTING_FILE, ExportVariant, Listing, entry_of
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.online.torch_encoder import TorchEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np

    from mar_st.export import ExportSettings

#: Maximum queries whose vectors are compared with the original's.
MAX_COMPARED = 512


def run(settings: ExportSettings) -> Listing | dict[str, Any]:
    """Write an optimised query encoder, and measure it, see `mar_st.export.export`.

    Raises:
        MarError: The model does not exist, the model cannot be exported, nothing could be written, or
            `out` exists.
    """
    if settings.out.exists():
        raise MarError(f"{settings.out} exists; give another folder.")
    name = model_source(settings.model)
    encoder = TorchEncoder.open(name, query=settings.query_encoder, device="cpu")
    encoder.model.float()  # weights saved in half precision are exported from the same values
    if encoder.model.truncate_dim is not None:
        raise MarError(
            f"{name} cuts its vectors after its modules (truncate_dim={encoder.model.truncate_dim}), which "
            "is not part of the export. Add a Dense layer that cuts (mar_st.modules.arrangement.truncation)."
        )
    texts = packaged_queries()
    original = encoder.encode(texts)
    with finished_folder(settings.out) as part:
        if isinstance(encoder.modules[0], LookupEncoder):
            return write_lookup(encoder, part, texts, original)
        listing = _write(encoder, settings, part)
        return _measured(listing, part, texts, original)


def packaged_queries() -> list[str]:
    """Return the queries to measure on."""
    from mar_st.evaluation.tasks import Task, load_task  # lazy: transformers

    task = Task(name="queries", path="package:medteb_mteb/MedTEBRetrieval")
    return list(load_task(task).queries.values())[:MAX_COMPARED]


def _write(encoder: TorchEncoder, settings: ExportSettings, part: Path) -> Listing:
    """Write the front and all variants; the listing names the refused ones with the reason."""
    parts = parts_of(encoder.modules)
    listing = write_front(encoder, parts, part, source=settings.model)
    check_tokens(parts, part, listing, packaged_queries()[:100])
    front, prompt = TextPacker(part, listing), listing.prompts.get("query") or ""
    example = next(front.packs([prompt + text for text in ("ab", "abc", "b")])).inputs
    graph = PackedEncoder(parts).eval()
    variants: dict[str, ExportVariant] = {}
    writers: dict[str, Any] = {}
    with _quiet():
        for name in tqdm(dict.fromkeys(settings.format), desc="export", unit="variant"):
            form, precision = name.split("-")
            try:
                if form not in writers:
                    writers[form] = WRITERS[form](graph, example, listing, part)
                variants[name] = writers[form](precision)
            except MarError as error:
                listing.refused[name] = str(error)
    return _listed(listing, variants, part)


def _measured(listing: Listing, part: Path, texts: list[str], original: np.ndarray) -> Listing:
    """Measure the variants and choose one; those that cannot run here are refused."""
    variants: dict[str, ExportVariant] = {}
    for name, variant in tqdm(listing.variants.items(), desc="measure", unit="variant"):
        files = [*variant.files, EMBEDDINGS, *listing.pair_files()]
        size = sum(listing.files[file]["bytes"] for file in files)
        try:
            report = measure(ExportedEncoder.open(part, backend=name), texts, original)
        except MarError as error:
            listing.refused[name] = str(error)
        else:
            variants[name] = replace(variant, report={**report, "bytes": size})
    listing = _listed(listing, variants, part)
    for path in part.iterdir():
        if path.name not in {*listing.files, LISTING_FILE}:
            path.unlink()
        else:
            path.chmod(0o644)  # some writers let only the owner read; the server may be another user
    return listing


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep output of the converters off standard output, and suppress messages for their developers."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _listed(listing: Listing, variants: dict[str, ExportVariant], part: Path) -> Listing:
    """Write and return the listing with these variants, the chosen one, and the files they need."""
    if not variants:
        reasons = "; ".join(f"{name}: {why}" for name, why in listing.refused.items())
        raise MarError(f"Nothing could be exported: {reasons}")
    listing = replace(listing, variants=variants, chosen=_chosen(variants))
    files = {name: listing.files.get(name) or entry_of(part / name) for name in sorted(set(listing.needed()))}
    listing = replace(listing, files=files)
    listing.write(part)
    return listing


def _chosen(variants: dict[str, ExportVariant]) -> str:
    """Return the fastest variant within the limit; if none is, the one nearest to the original."""
    good = [one for one in variants.values() if one.report.get("within_limits")]
    if good:
        return min(good, key=lambda one: one.milliseconds).name
    return max(variants.values(), key=lambda one: float(one.report.get("cosine_mean", 0.0))).name


def write_lookup(encoder: TorchEncoder, part: Path, texts: list[str], original: np.ndarray) -> dict[str, Any]:
    """Write a lookup encoder with its table in int8, and measure it with numpy.

    Args:
        encoder: The encoder; it starts with a `LookupEncoder`.
        part: An empty folder.
        texts: Queries to measure on.
        original: Their vectors.

    Returns:
        The measurements, see `measure`, with `dim` and `bytes`.

    Raises:
        MarError: Another module than a Normalize follows, or a value is not finite.
    """
    first: Any
    first, *rest = encoder.modules
    if not all(isinstance(module, Normalize) for module in rest):
        raise MarError(
            f"{[type(module).__name__ for module in rest]} after a LookupEncoder are not exported."
        )
    table = first.embedding.weight.detach()
    scales = (table.abs().amax(dim=1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
    tensors = {
        "embedding.weight": (table / scales[:, None]).round().to(torch.int8),
        "scales": scales,
        "weight": first.weight.detach(),
        "bias": first.bias.detach(),
    }
    if not all(tensor.isfinite().all() for tensor in (table, *tensors.values())):
        raise MarError("The encoder holds values that are not finite.")
    SentenceTransformer(
        modules=encoder.modules,
        prompts={name: text or "" for name, text in encoder.prompts.items()},
        similarity_fn_name=encoder.model.similarity_fn_name,
        device="cpu",
    ).save_pretrained(str(part), create_model_card=False)
    save_file(tensors, saved_chain(part, "query")[0].path / "model.safetensors")
    if encoder.space is not None:
        write_text(part / SPACE_FILE, f"{encoder.space}\n")
    written = NumpyLookupEncoder.open(part)
    assert written is not None  # noqa: S101 -- it was written above
    size = sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
    return {"dim": encoder.dim, **measure(written, texts, original), "bytes": size}


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


#: Writers of an encoder's variants. A writer is made of the graph, example inputs, the listing and the
#: folder; called with a precision, it writes and describes a variant.
WRITERS: dict[str, Callable[..., Any]] = {
    "native": native_writer,
    "openvino": openvino_writer,
    "onnx": onnx_writer,
}
