"""Write an exported query encoder: its variants, the cost and loss of each, and the chosen one."""

from __future__ import annotations

import gc
import logging
import os
import platform
import sys
import warnings
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.export.formats import GRAPHS, GraphSource
from mar_st.export.graph import ExportError, PackedEncoder
from mar_st.export.judge import LossTask, open_judge
from mar_st.export.measure import cosines, measure
from mar_st.export.source import check_tokens, open_source, write_front
from mar_st.files import finished_folder
from mar_st.kernels.processor import processors
from mar_st.model.names import model_source
from mar_st.online.front import TextPacker
from mar_st.online.listing import EMBEDDING_TABLES, LISTING_FILE, ExportVariant, Listing, entry_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mar_st.export.formats import GraphFormat

WEIGHT_FORMATS = ("fp32", "bf16", "int8")

#: Maximum queries whose vectors are compared with the original's.
_MAX_COMPARED = 512

#: Maximum queries that int8 is calibrated on.
_MAX_CALIBRATION = 256

#: Queries to measure on if none are given.
PACKAGED_QUERIES = "package:medteb_mteb/MedTEBRetrieval"


@dataclass(frozen=True)
class LossLimits:
    """Limits within which a variant may be chosen.

    Attributes:
        loss: Largest loss of nDCG@10 on the task.
        cosine: Minimum mean cosine to the original's vectors; used without a task.
        alone: Lowest cosine between a text's vector computed alone and in a batch. Answers must not depend on
            concurrent requests, as they do if all activations of a batch share one scale.
    """

    loss: float = 0.002
    cosine: float = 0.99
    alone: float = 0.9999

    def hold(self, report: dict[str, Any]) -> bool:
        """Return True if a variant is within the limits."""
        if report["alone_cosine"] < self.alone:
            return False
        if "ndcg_loss" in report:
            return bool(report["ndcg_loss"] <= self.loss)
        return bool(report["cosine_mean"] >= self.cosine)


def export(
    model: str | Path,
    out: str | Path,
    *,
    formats: Sequence[str] = ("native", "openvino"),
    weight_formats: Sequence[str] = ("int8",),
    calibrate: Sequence[str] = (),
    task: str | None = None,
    split: str = "test",
    vectors: str | Path | None = None,
    query: str | None = None,
    limits: LossLimits | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    show_progress: bool = True,
) -> Listing:
    """Write an optimised query encoder, and measure it.

    All requested variants are written, compared with the original and timed on this processor; the
    fastest one that loses no more than `limits` is loaded by default. A variant that cannot be written, or
    crashes when it is measured, is left out and listed with the reason.

    Args:
        model: A sentence-transformers folder, a saved MAR, a Hub name, or `mar-mini`.
        out: Folder to write; it is moved into place when it is complete.
        formats: `native` (AVX-512 VNNI under Linux, int8 only), `openvino`, `onnx`.
        weight_formats: `fp32`, `bf16`, `int8`. With `calibrate`, `int8` is also written in a calibrated form.
        calibrate: Queries to calibrate int8 on.
        task: Folder of a retrieval task in the Hub layout, or a packaged one, to measure nDCG@10 on.
        split: Split of its qrels.
        vectors: Folder of document vectors for the task, see `mar encode`; by default the model's document
            side encodes them.
        query: Name of the query encoder in a MAR that has several.
        limits: Limits for the chosen variant.
        threads: Threads that the measurements use; default all processors of this process.
        overwrite: Replace an exported encoder in `out`.
        show_progress: Show a progress bar.

    Returns:
        The content of `export.json`.

    Raises:
        ExportError: The model cannot be exported, nothing could be written, or `out` may not be replaced.
        MarError: The model or task does not exist, or a package is missing.
    """
    _check(formats, weight_formats, Path(out), overwrite=overwrite)
    if calibrate and "int8" not in weight_formats:
        raise ExportError(
            f"Queries to calibrate on are for int8; the weight formats are {', '.join(weight_formats)}."
        )
    name = model_source(model)
    source = open_source(name, query)
    cosine = source.encoder.model.similarity_fn_name != "dot"
    judge = open_judge(task, name, split=split, vectors=vectors, cosine=cosine) if task is not None else None
    texts = list(judge.queries.values()) if judge else list(calibrate)[:_MAX_COMPARED] or packaged_queries()
    original = source.encoder.encode(texts)
    with finished_folder(Path(out)) as part:
        listing, exact = write_front(source, part, exact="fp32" in weight_formats)
        check_tokens(source, part, listing, texts[:100])
        listing = replace(listing, model={**listing.model, "source": str(model)}, task=_task(judge, original))
        wanted = _wanted(formats, weight_formats, calibrated=bool(calibrate))
        example, inputs = _inputs(part, listing, calibrate[:_MAX_CALIBRATION])
        graph = PackedEncoder(source.parts).eval()
        del source
        gc.collect()
        with _quiet():
            listing = _write(
                graph, example, part, listing, wanted, exact, inputs, show_progress=show_progress
            )
        del graph
        gc.collect()
        reporter = _Reporter(part, texts, original, judge, threads)
        listing = _measured(listing, reporter, show_progress=show_progress)
        listing = replace(listing, chosen=choose(listing, limits or LossLimits()), machine=_machine(threads))
        _tidy(part, listing)
        listing.write(part)
    return listing


def _tidy(part: Path, listing: Listing) -> None:
    """Delete files that no variant needs, and let all users read the others."""
    for path in part.iterdir():
        if path.name not in listing.files:
            path.unlink()
        else:
            path.chmod(0o644)  # some writers restrict reading to the owner; the server may be another user


def _check(formats: Sequence[str], weight_formats: Sequence[str], out: Path, *, overwrite: bool) -> None:
    for kind, given, known in (
        ("format", formats, tuple(GRAPHS.classes())),
        ("weight format", weight_formats, WEIGHT_FORMATS),
    ):
        wrong = [value for value in given if value not in known]
        if wrong or not given:
            raise ExportError(f"{kind} is one of {', '.join(known)}; got {', '.join(wrong) or 'none'}.")
    check_place(out, overwrite=overwrite)


def check_place(out: Path, *, overwrite: bool) -> None:
    """Make sure that an exported encoder may be written to a folder.

    Raises:
        ExportError: The folder holds something that may not be replaced.
    """
    if out.exists() and not overwrite:
        raise ExportError(f"{out} exists. Give another folder, or overwrite it (--overwrite).")
    if out.exists() and not (out / LISTING_FILE).is_file():
        raise ExportError(f"{out} is not an exported encoder, so it is not overwritten. Give another folder.")


def _wanted(
    formats: Sequence[str], weight_formats: Sequence[str], *, calibrated: bool
) -> list[tuple[str, str]]:
    forms = list(dict.fromkeys(weight_formats))
    if calibrated and "int8" in forms:
        forms.append("int8-calibrated")
    supported = {name: cls.FORMS for name, cls in GRAPHS.classes().items() if cls.FORMS is not None}
    pairs = [(runtime, form) for runtime in dict.fromkeys(formats) for form in forms]
    return [(runtime, form) for runtime, form in pairs if form in supported.get(runtime, forms)] or pairs


def packaged_queries() -> list[str]:
    """Return the queries to measure on if none are given."""
    from mar_st.evaluation.scored_set import Task  # lazy: pydantic
    from mar_st.evaluation.tasks import load_task  # lazy: transformers

    return list(load_task(Task(name="queries", path=PACKAGED_QUERIES)).queries.values())


def _task(judge: LossTask | None, original: np.ndarray) -> dict[str, Any]:
    if judge is None:
        return {}
    return {
        "name": judge.name,
        "digest": judge.digest,
        "queries": len(judge.queries),
        "documents": len(judge.ids),
        "ndcg@10": round(judge.ndcg(original), 5),
    }


def _inputs(
    part: Path, listing: Listing, calibrate: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Return the inputs of the graph: of several short texts, and of each query to calibrate on."""
    front, prompt = TextPacker(part, listing, "float16"), listing.prompts.get("query") or ""
    example = next(front.packs([prompt + text for text in ("ab", "abc", "b")], prompt)).inputs
    return example, [next(front.packs([prompt + text], prompt)).inputs for text in calibrate]


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


def _write(
    graph: PackedEncoder,
    example: dict[str, np.ndarray],
    part: Path,
    listing: Listing,
    wanted: list[tuple[str, str]],
    exact: str,
    inputs: list[dict[str, np.ndarray]],
    *,
    show_progress: bool,
) -> Listing:
    """Write the graphs; the listing names the written variants, and the refused ones with the reason."""
    variants: dict[str, ExportVariant] = {}
    refused: dict[str, str] = {}
    writers: dict[str, GraphFormat] = {}
    makers, source = GRAPHS.classes(), GraphSource(graph, example, listing, part)
    for runtime, precision in tqdm(wanted, desc="export", unit="variant", disable=not show_progress):
        table = exact if precision == "fp32" else "float16"
        try:
            if runtime not in writers:
                writers[runtime] = makers[runtime](source)
            variant = writers[runtime].write(precision, part, table, inputs)
        except ExportError as error:
            refused[f"{runtime}-{precision}"] = str(error)
            continue
        variants[variant.name] = variant
    for writer in writers.values():
        writer.finish(variants)
    return _listed(replace(listing, refused=refused), variants, part)


def _listed(listing: Listing, variants: dict[str, ExportVariant], part: Path) -> Listing:
    """Return the listing with these variants and the files they need."""
    if not variants:
        reasons = "; ".join(f"{name}: {why}" for name, why in listing.refused.items())
        raise ExportError(f"Nothing could be exported: {reasons}")

    listing = replace(listing, variants=variants, chosen=next(iter(variants)))
    needed = sorted(set(listing.needed()))
    files = {name: listing.files.get(name) or entry_of(part / name) for name in needed}
    listing = replace(listing, files=files)
    listing.write(part)
    return listing


@dataclass(frozen=True)
class _Reporter:
    """Measures variants against the original."""

    part: Path
    texts: list[str]
    original: np.ndarray
    judge: LossTask | None
    threads: int | None

    def report(self, listing: Listing, variant: ExportVariant) -> dict[str, Any]:

        vectors, timings = measure(self.part, variant.name, self.texts, threads=self.threads)
        if not np.isfinite(vectors).all():
            raise ExportError("its vectors hold NaN or infinite values")
        same = cosines(self.original, vectors)
        files = [*variant.files, EMBEDDING_TABLES[variant.table], *listing.pair_files()]
        report: dict[str, Any] = {
            **timings,
            "cosine_min": round(float(same.min()), 6),
            "cosine_mean": round(float(same.mean()), 6),
            "bytes": sum(listing.files[name]["bytes"] for name in files),
        }
        if self.judge is not None:
            score = self.judge.ndcg(vectors)
            report |= {
                "ndcg@10": round(score, 5),
                "ndcg_loss": round(self.judge.ndcg(self.original) - score, 5),
            }
        return report


def _measured(listing: Listing, reporter: _Reporter, *, show_progress: bool) -> Listing:
    variants: dict[str, ExportVariant] = {}
    refused = dict(listing.refused)
    for variant in tqdm(listing.variants.values(), desc="measure", unit="variant", disable=not show_progress):
        try:
            variants[variant.name] = replace(variant, report=reporter.report(listing, variant))
        except MarError as error:
            refused[variant.name] = str(error)
    return _listed(replace(listing, refused=refused), variants, reporter.part)


def choose(listing: Listing, limits: LossLimits) -> str:
    """Return the fastest variant within the limits; if none is, the one nearest to the original."""
    good = [variant for variant in listing.variants.values() if limits.hold(variant.report)]
    if good:
        return min(good, key=lambda variant: variant.report["p50_ms"]).name
    return max(listing.variants.values(), key=lambda variant: variant.report["cosine_mean"]).name


def _machine(threads: int | None) -> dict[str, Any]:
    versions = {}
    for package in ("openvino", "nncf", "onnxruntime", "torch", "transformers", "sentence-transformers"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), name)
    return {"processor": name, "processors": os.cpu_count(), "threads": threads or processors(), **versions}
