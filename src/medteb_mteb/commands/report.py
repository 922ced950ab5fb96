"""`medteb report`: figures and tables as in the published papers, from your own results or models."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.options import AsJson, BatchSize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mteb.abstasks.abstask import AbsTask

__all__ = ["report_app"]

report_app = typer.Typer(
    help="Draw figures and tables of results and vectors.", no_args_is_help=True, rich_markup_mode=None
)

_Results = Annotated[Path, typer.Argument(help="Output folder of `medteb run`.")]
_Figure = Annotated[Path, typer.Argument(help="PNG file to write; the numbers go to a .json file beside it.")]
_Task = Annotated[str, typer.Argument(help="Name of a task whose data are available.")]
_Models = Annotated[
    list[str], typer.Option("-m", "--model", help="Model known to mteb, or a model folder; may be repeated.")
]
_Device = Annotated[
    str | None, typer.Option(help="PyTorch device, e.g. cpu or cuda:0; default: a GPU if there is one.")
]


@report_app.command("sources", no_args_is_help=True)
def sources(
    out: _Figure,
    results: Annotated[Path | None, typer.Option(help="Output folder of `medteb run`.")] = None,
    published: Annotated[bool, typer.Option("--published", help="Draw the paper's models too.")] = False,
) -> None:
    """Plot mean scores by source of the English MedTEB tasks.

    A mean covers the measured tasks only; their number is in the .json file.
    """
    from medteb_mteb.english.table import published_results  # lazy: start-up
    from medteb_mteb.report.figures import draw_sources  # lazy: numpy
    from medteb_mteb.report.saved import means_by_source, read_saved  # lazy: numpy

    if results is None and not published:
        raise UserError("give --results FOLDER, --published, or both")
    own = means_by_source(_checked(read_saved, results)) if results is not None else {}
    if results is not None and not own:
        raise UserError(f"{results}: no result of a task of English MedTEB")
    drawn: dict[str, Mapping[str, float]] = {
        f"{model}, this run": {source: one.score for source, one in rows.items()}
        for model, rows in own.items()
    }
    content: dict[str, Any] = {
        "measured": {model: {s: asdict(one) for s, one in rows.items()} for model, rows in own.items()}
    }
    if published:
        paper = {model: dict(one.sources) for model, one in published_results().items()}
        drawn |= paper
        content["published"] = paper
    _finish(out, lambda path: draw_sources(drawn, path), content)


@report_app.command("time", no_args_is_help=True)
def time(results: _Results, out: _Figure) -> None:
    """Plot scores against evaluation time.

    Both are means over the tasks that all models were measured on; times are those that mteb saved.
    """
    from medteb_mteb.report.figures import draw_time  # lazy: numpy
    from medteb_mteb.report.saved import against_time, read_saved  # lazy: numpy

    times = _checked(against_time, _checked(read_saved, results))
    content = {model: asdict(one) for model, one in times.items()}
    _finish(out, lambda path: draw_time(times, path), content)


@report_app.command("tsne", no_args_is_help=True)
def tsne(
    task: _Task,
    out: _Figure,
    model: Annotated[str, typer.Option("-m", "--model", help="Model known to mteb, or a model folder.")],
    most: Annotated[int, typer.Option(help="Maximum number of texts, sampled at random.", min=4)] = 2000,
    batch_size: BatchSize = 32,
    device: _Device = None,
) -> None:
    """Draw the texts of a task in two dimensions, by label."""
    from medteb_mteb.report.figures import draw_label_map  # lazy: numpy
    from medteb_mteb.report.vectors import label_map  # lazy: mteb

    loaded = _task(task)
    projection = _checked(label_map, _model(model, device), loaded, most=most, batch_size=batch_size)
    counts = {label: list(projection.labels).count(label) for label in sorted(set(projection.labels))}
    content = {"task": task, "model": model, "perplexity": projection.perplexity, "texts": counts}
    _finish(out, lambda path: draw_label_map(projection, f"{task}, {model}", path), content)


@report_app.command("similarities", no_args_is_help=True)
def similarities(
    task: _Task,
    out: _Figure,
    model: _Models,
    most: Annotated[int, typer.Option(help="Maximum number of queries, sampled at random.", min=1)] = 1000,
    batch_size: BatchSize = 32,
    device: _Device = None,
) -> None:
    """Draw how similar positives and other documents are.

    Every positive of a query is compared with a random document that was not judged.
    """
    from medteb_mteb.report.figures import draw_similarities  # lazy: numpy
    from medteb_mteb.report.vectors import pair_similarities  # lazy: mteb

    loaded = _task(task)
    by_model = {
        name: _checked(pair_similarities, _model(name, device), loaded, most=most, batch_size=batch_size)
        for name in model
    }
    content = {
        name: {
            "pairs": len(one.positives),
            "positives": {"mean": float(one.positives.mean()), "std": float(one.positives.std())},
            "others": {"mean": float(one.negatives.mean()), "std": float(one.negatives.std())},
            "auc": one.auc(),
        }
        for name, one in by_model.items()
    }
    _finish(out, lambda path: draw_similarities(by_model, task, path), {"task": task, "models": content})


@report_app.command("speed", no_args_is_help=True)
def speed(
    task: _Task,
    model: _Models,
    documents: Annotated[int, typer.Option(help="Maximum number of documents.", min=1)] = 512,
    queries: Annotated[int, typer.Option(help="Maximum number of queries.", min=1)] = 100,
    batch_size: BatchSize = 32,
    device: _Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure documents per second and milliseconds per query.

    Documents are encoded in batches, queries one at a time (the median is reported). The first texts of the
    task are used.
    """
    from medteb_mteb.report.vectors import measure_speed  # lazy: mteb

    loaded = _task(task)
    options = {"documents": documents, "queries": queries, "batch_size": batch_size}
    speeds = {name: _checked(measure_speed, _model(name, device), loaded, **options) for name in model}
    if as_json:
        rows = {name: asdict(one) for name, one in speeds.items()}
        typer.echo(json.dumps({"task": task, "models": rows}, ensure_ascii=False, indent=2))
        return
    typer.echo("| model | documents per second | ms per query |\n|---|---:|---:|")
    for name, one in speeds.items():
        typer.echo(f"| {name} | {one.documents_per_second:.1f} | {one.query_ms:.1f} |")
    one = next(iter(speeds.values()))
    typer.echo(
        f"\n{one.documents:,} documents in batches of {one.batch_size}, {one.queries:,} queries of {task}; "
        f"{one.machine}"
    )


def _checked(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of a function; turn its `ValueError` into a `UserError`."""
    try:
        return function(*arguments, **options)
    except ValueError as error:
        raise UserError(str(error)) from error


def _task(name: str) -> AbsTask:
    import mteb  # lazy: mteb

    from medteb_mteb.abstasks.local_copy import DataUnavailableError  # lazy: mteb
    from medteb_mteb.commands.run import quieten  # lazy: mteb

    quieten()
    try:
        task = mteb.get_task(name)
    except KeyError as error:
        raise UserError(f"task {name}: {error.args[0].removeprefix('KeyError: ')}") from None
    try:
        task.load_data()
    except DataUnavailableError as error:
        raise UserError(str(error)) from None
    return task


def _model(name: str, device: str | None) -> Any:
    from medteb_mteb.models.local import resolve_model  # lazy: yaml

    return resolve_model(name).load_model(device=device)


def _finish(out: Path, draw: Callable[[Path], None], content: Mapping[str, Any]) -> None:
    from mar_st.files import write_json  # lazy: start-up

    if out.suffix != ".png":
        raise UserError(f"{out}: give a file that ends in .png")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        draw(out)
    except ImportError as error:
        raise UserError("the figure needs matplotlib: pip install 'medteb[report]'") from error
    write_json(out.with_suffix(".json"), content)
    typer.echo(f"{out}\n{out.with_suffix('.json')}")
