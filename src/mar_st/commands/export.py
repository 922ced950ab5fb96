"""`mar export`: write an optimised query encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mar_st.commands.options import AsJson, NewFolder, Overwrite, QueryEncoder

FORMATS_HELP = (
    "Formats, comma-separated: native, openvino, onnx. For a lookup encoder: numpy, or lookup-json (a page "
    "that searches --documents in the browser)."
)


def export(
    model: Annotated[str, typer.Argument(help="Model: folder, Hub name or mar-mini.")],
    out: NewFolder,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help=FORMATS_HELP,
        ),
    ] = "native,openvino",
    weight_format: Annotated[
        str,
        typer.Option(
            help="Formats of the weights, comma-separated: fp32, bf16, int8. For numpy, one of int8, fp16, "
            "fp32."
        ),
    ] = "int8",
    calibrate: Annotated[
        Path | None, typer.Option(help="JSONL of queries; adds an int8 variant calibrated on them.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="Retrieval task folder (Hub layout) to measure the change of nDCG@10 on."),
    ] = None,
    split: Annotated[str, typer.Option(help="Qrels split of the task.")] = "test",
    vectors: Annotated[
        Path | None,
        typer.Option(help="Document vectors of the task or of --documents, written by mar encode."),
    ] = None,
    documents: Annotated[
        str | None, typer.Option(help="Corpus that the page of lookup-json searches; needs --vectors.")
    ] = None,
    auto: Annotated[
        bool, typer.Option("--auto", help="Measure all encoder and weight formats and choose the best.")
    ] = False,
    max_loss: Annotated[
        float, typer.Option(help="Largest loss of nDCG@10 that the chosen variant may have.")
    ] = 0.002,
    min_cosine: Annotated[
        float, typer.Option(help="Without a task: minimum mean cosine to the original's vectors.")
    ] = 0.99,
    query: QueryEncoder = None,
    threads: Annotated[
        int | None, typer.Option(help="Number of threads per query while measuring; default: all.", min=1)
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Export an optimised query encoder that runs without torch.

    The formats are native (own C++ kernels), OpenVINO and ONNX Runtime.
    """
    from mar_st.data import read_texts  # lazy: start-up
    from mar_st.export.exporting import WEIGHT_FORMATS, LossLimits  # lazy: torch
    from mar_st.export.exporting import export as run  # lazy: torch
    from mar_st.export.formats import GRAPHS, LOOKUPS  # lazy: numpy

    if format_ in LOOKUPS.names():
        if auto or task is not None or calibrate is not None:
            raise typer.BadParameter(f"--auto, --task and --calibrate do not apply to --format {format_}.")
        _export_lookup(
            model, out, as_json, form=format_, weight_format=weight_format, query=query, vectors=vectors,
            documents=documents, overwrite=overwrite,
        )  # fmt: skip
        return
    if documents is not None:
        raise typer.BadParameter("--documents requires --format lookup-json.")
    listing = run(
        model,
        out,
        formats=tuple(GRAPHS.classes()) if auto else _parts(format_),
        weight_formats=WEIGHT_FORMATS if auto else _parts(weight_format),
        calibrate=list(read_texts(calibrate)) if calibrate is not None else (),
        task=task,
        split=split,
        vectors=vectors,
        query=query,
        limits=LossLimits(max_loss, min_cosine),
        threads=threads,
        overwrite=overwrite,
        show_progress=not as_json,
    )
    if as_json:
        typer.echo((out / "export.json").read_text(encoding="utf-8"))
        return
    typer.echo(f"{out}: {listing.model['model_type']} query encoder of {listing.dim} dimensions")
    for line in _table(listing):
        typer.echo(line)
    for name, reason in listing.refused.items():
        typer.echo(f"{name} left out: {reason}")
    if auto and calibrate is None:
        typer.echo("--calibrate QUERIES adds another int8 variant for OpenVINO and ONNX Runtime.")
    if not LossLimits(max_loss, min_cosine).hold(listing.variants[listing.chosen].report):
        typer.echo(
            f"No variant is within the limits; {listing.chosen} is the closest to the original.", err=True
        )


def _export_lookup(model: str, out: Path, as_json: bool, **options: Any) -> None:
    from mar_st.export.lookup import export_lookup  # lazy: torch

    listing = export_lookup(model, out, **options)
    if as_json:
        typer.echo((out / "export.json").read_text(encoding="utf-8"))
        return
    report = listing.report
    typer.echo(
        f"{out}: lookup encoder, {listing.features:,} features of {listing.dim} dimensions in "
        f"{listing.precision}, {report['bytes'] / 1e6:.1f} MB"
    )
    typer.echo(
        f"{report['p50_us']:.0f} us a query, {report['per_second']:,.0f} a second; cosine to the original "
        f"{report['cosine_min']:.5f} at least, {report['cosine_mean']:.5f} in the mean"
    )
    if listing.documents:
        typer.echo(
            f"search.html searches {listing.documents:,} documents. Serve the folder with any web server "
            f"(`python -m http.server --directory {out}`); a page opened as a file cannot read its data."
        )


def _parts(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(","))


def _table(listing: Any) -> list[str]:
    """Return one line per variant, the chosen one marked."""
    head = f"  {'form':26} {'p50 ms':>8} {'q/s':>8} {'MB':>7} {'RSS MB':>7} {'cosine min':>11} {'mean':>8}"
    task = listing.task
    lines = [head + (f" {'nDCG@10':>9} (original {task['ndcg@10']:.4f})" if task else "")]
    for name, variant in listing.variants.items():
        report = variant.report
        mark = "*" if name == listing.chosen else " "
        line = (
            f"{mark} {name:26} {report['p50_ms']:8.2f} {report['per_second']:8.1f} "
            f"{report['bytes'] / 1e6:7.1f} {report['rss_mb']:7.0f} {report['cosine_min']:11.5f} "
            f"{report['cosine_mean']:8.5f}"
        )
        lines.append(line + (f" {report['ndcg@10']:9.4f}" if task else ""))
    return lines
