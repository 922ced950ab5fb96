"""Time, parameters and size of each rung of a ladder, and the report as a table and a figure."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from mar_st.export.measure import BATCH_TEXTS, TIMED_TEXTS, timings
from mar_st.files.figures import drawn
from mar_st.modules.bigrams import count_values
from mar_st.modules.layout import saved_chain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mar_st.model.mar import MAR

#: How the times are taken; goes into the report.
TIMING_METHOD = (
    "sentence-transformers in one process, one encoder after the other: p50 over three rounds of single "
    "queries after a round that does not count; queries/s in calls of {together}; {threads} thread(s)"
)

#: Queries that are timed together.
_TIMED_QUERIES = 8 * BATCH_TEXTS


def method() -> str:
    """Describe how the times of a report were measured."""
    return TIMING_METHOD.format(together=BATCH_TEXTS, threads=torch.get_num_threads())


def speed(model: MAR, texts: Sequence[str]) -> dict[str, float]:
    """Measure the times of a query encoder on this processor.

    Args:
        model: A MAR with its query route.
        texts: Queries to time, at least one.

    Returns:
        `p50_ms` and `p99_ms` of one query, and `per_second`: queries per second in calls of 16.
    """

    def encode(block: Sequence[str]) -> np.ndarray:
        return model.encode_queries(block, show_progress_bar=False)

    seconds = timings(encode, list(texts)[:TIMED_TEXTS])
    many = [texts[number % len(texts)] for number in range(_TIMED_QUERIES)]
    blocks = [many[start : start + BATCH_TEXTS] for start in range(0, _TIMED_QUERIES, BATCH_TEXTS)]
    for block in blocks[:2]:
        encode(block)
    started = time.perf_counter()
    for block in blocks:
        encode(block)
    return {
        "p50_ms": round(float(np.median(seconds)) * 1e3, 3),
        "p99_ms": round(float(np.quantile(seconds, 0.99)) * 1e3, 3),
        "per_second": round(_TIMED_QUERIES / (time.perf_counter() - started), 1),
    }


def parameters(model: MAR) -> dict[str, int]:
    """Count the parameters of a query encoder, and those that are not embeddings.

    Vectors of token pairs count as embeddings.
    """
    parts = [part for module in model.route_modules("query") for part in module.modules()]
    every = {id(p): p.numel() for part in parts for p in part.parameters(recurse=False)}
    tables = (nn.Embedding, nn.EmbeddingBag)
    embedded = {
        id(p): p.numel() for part in parts if isinstance(part, tables) for p in part.parameters(recurse=False)
    }
    paired = sum(count_values(module) for module in model.route_modules("query"))
    total = sum(every.values())
    return {
        "parameters": total + paired,
        "parameters_without_embeddings": total - sum(embedded.values()),
    }


def mebibytes(folder: Path, route: str) -> float:
    """Return the size of the files of a saved query encoder in MiB."""
    parts = {part.path for part in saved_chain(folder, route)}
    size = sum(file.stat().st_size for path in parts for file in path.rglob("*") if file.is_file())
    return round(size / 2**20, 2)


def headline(row: Mapping[str, Any]) -> tuple[str, float | None, list[float] | None]:
    """Return the metric that stands for a rung's quality: name, value and 95 % interval."""
    tasks = row.get("tasks") or {}
    if tasks:
        best = tasks.get("average") or next(iter(tasks.values()))
        return f"retention of {best['metric']}", best["retention"], best["interval"]
    agreed = row["agreement"]
    for name, label in (("overlap_at_10", "overlap@10 with the teacher"), ("cosine_query", "cosine"),
                        ("cosine_document", "cosine")):  # fmt: skip
        if name in agreed:
            return label, agreed[name], agreed.get("overlap_interval") if "overlap" in name else None
    return "retention", None, None


def table_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the rungs of a report as lines of text."""
    rows = report["rungs"]
    label = next((headline(row)[0] for row in rows.values()), "retention")
    lines = [
        f"{'rung':8} {'route':14} {'retention':>9} {'95 % interval':>15} {'p50 ms':>9} {'queries/s':>9} "
        f"{'parameters':>12} {'no embed.':>12} {'MiB':>8} {'ef':>6}"
    ]
    for name, row in rows.items():
        _, value, bounds = headline(row)
        figures = "-" if value is None else f"{value:.4f}"
        spread = "-" if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"
        lines.append(
            f"{name:8} {row['route']:14} {figures:>9} {spread:>15} {row['p50_ms']:9.3f} "
            f"{row['per_second']:9.0f} {row['parameters']:12,} {row['parameters_without_embeddings']:12,} "
            f"{row['mib']:8.1f} {_ef(row.get('effort')):>6}"
        )
    lines.append(f"retention: {label.removeprefix('retention of ')}. Times: {report['method']}.")
    about = report.get("effort")
    if about:
        lines.append(
            f"ef: what a graph (hnsw) of the {about['documents']:,} documents needs to find "
            f"{about['target']} of the exact ten nearest of {about['queries']:,} queries; the teacher's own "
            f"need {_ef(about['teacher'])}. Set it on an index with `mar index tune`."
        )
    return lines


def _ef(effort: Mapping[str, Any] | None) -> str:
    """Return the effort of a graph; `-` if it was not measured, with `>` if the maximum was not enough."""
    return "-" if not effort else f"{'' if effort['reached'] else '>'}{effort['ef']}"


def plot(report: Mapping[str, Any], path: Path) -> bool:
    """Draw retention against the median latency of one query, on a logarithmic axis.

    Returns:
        False if matplotlib is not installed, or no rung has a retention.
    """
    points: list[tuple[str, float, float, list[float] | None]] = []
    label = ""
    for name, row in report["rungs"].items():
        label, value, bounds = headline(row)
        if value is not None:
            points.append((name, row["p50_ms"], value, bounds))
    if find_spec("matplotlib") is None or not points:
        return False
    with drawn(path, 7, 4.5) as figure:
        axes = figure.subplots()
        axes.plot([point[1] for point in points], [point[2] for point in points], color="C0", alpha=0.4)
        for name, latency, value, bounds in points:
            error = None if bounds is None else [[max(value - bounds[0], 0)], [max(bounds[1] - value, 0)]]
            axes.errorbar(latency, value, yerr=error, fmt="o", color="C0", capsize=3)
            text = f"{name} layer{'s' if name != '1' else ''}" if name.isdigit() else name
            axes.annotate(text, (latency, value), textcoords="offset points", xytext=(6, -12))
        axes.set_xscale("log")
        axes.margins(x=0.12)  # room for the last name
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("median latency of one query, ms")
        axes.set_ylabel(f"{label}, 95 % interval")
        axes.grid(alpha=0.3, which="both")
    return True
