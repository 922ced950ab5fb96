"""Write an exported query encoder: its variants, the cost and loss of each, and the chosen one."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.export.graph import PackedEncoder, parts_of
from mar_st.export.measure import cosines, measure
from mar_st.export.native import native_writer
from mar_st.export.runtimes import onnx_writer, openvino_writer
from mar_st.export.source import check_tokens, write_front
from mar_st.files import finished_folder
from mar_st.model.names import model_source
from mar_st.online.front import TextPacker
from mar_st.online.listing import EMBEDDING_TABLES, LISTING_FILE, ExportVariant, Listing, entry_of
from mar_st.online.torch_encoder import TorchEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mar_st.export import ExportSettings

#: Writer of an encoder's variants, and the weight formats, of each format of graphs. A writer is made of the
#: graph, example inputs, the listing and the folder; called with a weight format, it writes and describes a
#: variant.
FORMATS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "native": (native_writer, ("int8",)),
    "openvino": (openvino_writer, ("fp32", "bf16", "int8")),
    "onnx": (onnx_writer, ("fp32", "int8")),
}

#: Maximum queries whose vectors are compared with the original's.
MAX_COMPARED = 512

#: Lowest cosine between a text's vector computed alone and in a batch. Answers must not depend on concurrent
#: requests, as they do if all activations of a batch share one scale.
_MIN_ALONE = 0.9999


def export_graphs(settings: ExportSettings) -> Listing:
    """Write an optimised query encoder, and measure it, see `mar_st.export.export`.

    Raises:
        MarError: The model does not exist, the model cannot be exported, nothing could be written, or
            `out` may not be replaced.
    """
    check_place(settings.out, overwrite=settings.overwrite)
    wanted: list[tuple[str, str]] = [
        (form, precision)
        for form in dict.fromkeys(settings.format)
        for precision in dict.fromkeys(settings.weight_format)
        if precision in FORMATS[form][1]
    ]
    if not wanted:
        raise MarError(
            f"Weight formats are { {form: forms for form, (_, forms) in FORMATS.items()} }; got "
            f"{settings.weight_format} for {settings.format}."
        )
    name = model_source(settings.model)
    encoder = TorchEncoder.open(name, query=settings.query_encoder, device="cpu")
    encoder.model.float()  # weights saved in half precision are exported from the same values
    if encoder.model.truncate_dim is not None:
        raise MarError(
            f"{name} cuts its vectors after its modules (truncate_dim={encoder.model.truncate_dim}), which "
            "is not part of the export. Add a Dense layer that cuts (mar_st.modules.arrangement.truncation)."
        )
    parts = parts_of(encoder.modules)
    texts = packaged_queries()
    original = encoder.encode(texts)
    with finished_folder(settings.out) as part:
        listing, exact = write_front(
            encoder, parts, part, source=settings.model, exact="fp32" in settings.weight_format
        )
        check_tokens(parts, part, listing, texts[:100])
        front, prompt = TextPacker(part, listing, "float16"), listing.prompts.get("query") or ""
        example = next(front.packs([prompt + text for text in ("ab", "abc", "b")], prompt)).inputs
        graph = PackedEncoder(parts).eval()
        del encoder, parts
        variants, refused = _write(graph, example, part, listing, wanted, exact)
        del graph
        gc.collect()
        listing = _listed(replace(listing, refused=refused), variants, part)
        measured = {}
        for variant in tqdm(variants.values(), desc="measure", unit="variant"):
            try:
                report = _report(part, listing, variant, texts, original, settings)
                measured[variant.name] = replace(variant, report=report)
            except MarError as error:
                refused[variant.name] = str(error)
        listing = _listed(replace(listing, refused=refused), measured, part)
        for path in part.iterdir():
            if path.name not in {*listing.files, LISTING_FILE}:
                path.unlink()
            else:
                path.chmod(0o644)  # some writers let only the owner read; the server may be another user
    return listing


def check_place(out: Path, *, overwrite: bool) -> None:
    """Make sure that an exported encoder may be written to a folder.

    Raises:
        MarError: The folder holds something that may not be replaced.
    """
    if out.exists() and not (overwrite and (out / LISTING_FILE).is_file()):
        raise MarError(f"{out} exists. Give another folder, or overwrite an exported encoder (--overwrite).")


def packaged_queries() -> list[str]:
    """Return the queries to measure on."""
    from mar_st.evaluation.tasks import Task, load_task  # lazy: transformers

    task = Task(name="queries", path="package:medteb_mteb/MedTEBRetrieval")
    return list(load_task(task).queries.values())[:MAX_COMPARED]


def _write(
    graph: PackedEncoder,
    example: dict[str, np.ndarray],
    part: Path,
    listing: Listing,
    wanted: list[tuple[str, str]],
    exact: str,
) -> tuple[dict[str, ExportVariant], dict[str, str]]:
    """Write the graphs; return the written variants, and the refused ones with the reason."""
    variants: dict[str, ExportVariant] = {}
    refused: dict[str, str] = {}
    writers: dict[str, Any] = {}
    with _quiet():
        for form, precision in tqdm(wanted, desc="export", unit="variant"):
            try:
                if form not in writers:
                    writers[form] = FORMATS[form][0](graph, example, listing, part)
                table = exact if precision == "fp32" else "float16"
                variant = replace(writers[form](precision), table=table)
            except MarError as error:
                refused[f"{form}-{precision}"] = str(error)
            else:
                variants[variant.name] = variant
    return variants, refused


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep output of the converters off standard output, and suppress messages for their developers."""
    loggers = [logging.getLogger(name) for name in ("nncf", "onnxscript", "onnx_ir", "torch.onnx", "root")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


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


def _report(
    part: Path,
    listing: Listing,
    variant: ExportVariant,
    texts: list[str],
    original: np.ndarray,
    settings: ExportSettings,
) -> dict[str, Any]:
    """Measure a variant against the original."""
    vectors, timings = measure(part, variant.name, texts, threads=settings.threads)
    if not np.isfinite(vectors).all():
        raise MarError("its vectors hold NaN or infinite values")
    same = cosines(original, vectors)
    files = [*variant.files, EMBEDDING_TABLES[variant.table], *listing.pair_files()]
    report: dict[str, Any] = {
        **timings,
        "cosine_min": round(float(same.min()), 6),
        "cosine_mean": round(float(same.mean()), 6),
        "bytes": sum(listing.files[name]["bytes"] for name in files),
    }
    within = report["cosine_mean"] >= settings.min_cosine
    return {**report, "within_limits": bool(within and report["alone_cosine"] >= _MIN_ALONE)}
