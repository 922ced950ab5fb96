"""`medteb build`: a whole build from one file, or a set by a fixed protocol."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from medteb_mteb.commands.options import AsJson, Quiet, RetryFailed

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline import BuildReport, Forecast, Planned

__all__ = ["build", "build_app"]

_PIPELINE = "pipeline"


class _PipelineByDefault(typer.core.TyperGroup):
    """A group whose first command may be left out: `medteb build FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = [_PIPELINE, *args]
        return super().parse_args(ctx, args)


build_app = typer.Typer(
    cls=_PipelineByDefault,
    help="Build a benchmark, a Nano set, or a published set.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def build(
    pipeline: Annotated[
        Path, typer.Argument(help="YAML file of the build: the judges and the steps in order.")
    ],
    until: Annotated[
        str | None, typer.Option(help="Name of the last step to run; default: all steps.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Fail if there is nothing to resume.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the steps, requests and cost, and do nothing.")
    ] = False,
    redo: Annotated[
        bool, typer.Option("--redo", help="Run changed steps again; their old folders are moved aside.")
    ] = False,
    retry_failed: RetryFailed = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Build a benchmark and training data from a pipeline file.

    The steps run in order, and the same command resumes an interrupted build.

    The exit code is 1 if a judge or writer stopped, for instance at its budget (the same command resumes), or
    if the build's training data contains queries of its tests.
    """
    from medteb_mteb.curation import pipeline as building  # lazy: transformers

    if dry_run:
        forecast = building.forecast(pipeline, until=until, retry_failed=retry_failed)
        typer.echo(
            json.dumps(forecast.to_json(), ensure_ascii=False, indent=2)
            if as_json
            else forecast_text(forecast)
        )
        return
    report = building.build(
        pipeline,
        until=until,
        resume=resume,
        redo=redo,
        retry_failed=retry_failed,
        show_progress=not quiet,
        say=lambda line: typer.echo(line, err=as_json) if not quiet else None,
    )
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2) if as_json else report_text(report))
    if not report.complete:
        stopped = report.steps[-1]
        typer.echo(
            f"medteb: step {stopped.name!r} stopped: {stopped.stopped}. "
            "Run the same command again to resume.",
            err=True,
        )
        raise typer.Exit(1)
    if report.leakage is not None and report.leakage["leaks"]:
        training = {name: one["leaks"] for name, one in report.leakage["training"].items() if one["leaks"]}
        typer.echo(
            f"medteb: {report.leakage['leaks']} training queries are near-duplicates of the build's tests "
            f"({', '.join(f'{name} {number}' for name, number in training.items())}); see "
            f"{report.out / 'leakage.json'}. Do not train on these sets as they are.",
            err=True,
        )
        raise typer.Exit(1)


build_app.command(_PIPELINE, no_args_is_help=True)(build)


def forecast_text(forecast: Forecast) -> str:
    """Return the forecast as text: a line per step and LLM, and the sum.

    Args:
        forecast: Result of `medteb_mteb.curation.pipeline.forecast`.
    """
    width = max(len(step.name) for step in forecast.steps)
    lines = []
    for step in forecast.steps:
        lines.append(f"{step.name:{width}}  {step.fate:8}  {_writes(step)}".rstrip())
        lines += [
            f"{'':{width}}  {'' if charge.exact else 'about '}{charge.requests:,} requests to "
            f"{charge.name}, {charge.tokens_in:,} tokens in, {charge.tokens_out:,} out, "
            f"cost {charge.cost:.2f}"
            + (f" ({charge.known:,} answers in the journal)" if charge.known else "")
            + (f"; at most {charge.checks:,} more to check positives" if charge.checks else "")
            for charge in step.charges
        ]
    total = forecast.to_json()
    lines.append(
        f"in all {'' if total['exact'] else 'about '}{total['requests']:,} requests, "
        f"{total['tokens_in']:,} tokens in, {total['tokens_out']:,} out, cost {total['cost']:.2f}; "
        "nothing was sent"
    )
    if not total["exact"]:
        lines.append("(about: no text dropped, all pools full, texts of the mean length)")
    if any(step.fate == "changed" for step in forecast.steps):
        lines.append("--redo runs changed steps again")
    return "\n".join(lines)


def _writes(step: Planned) -> str:
    volume = step.writes
    if volume is None or not volume.items:
        return step.step
    most = "" if volume.exact else "at most "
    what = {"texts": "texts", "pools": "pairs", "judgements": "pairs", "labels": "pairs"}
    return f"{step.step}: {most}{volume.items:,} {what.get(step.kind, step.kind)}"


def report_text(report: BuildReport) -> str:
    """Return the report as text, a line per step.

    Args:
        report: Result of `medteb_mteb.curation.pipeline.build`.
    """
    width = max((len(step.name) for step in report.steps), default=0)
    lines = [
        f"{step.name:{width}}  {step.fate:7}  {step.seconds:7.1f} s  {summary(step.result)}".rstrip()
        for step in report.steps
    ]
    data = report.data
    if data is not None:
        tasks = [path.parent.name for path in sorted(data.glob("*/manifest.json"))]
        if tasks:
            place = shlex.quote(str(data))
            lines.append(f"score models on it: MEDTEB_DATA={place} mteb run -t {' '.join(tasks)} -m MODEL")
    return "\n".join(lines)


def summary(result: dict[str, Any]) -> str:
    """Return the numbers of a step in one line.

    Args:
        result: Result of the step, as stored in `build.json`.
    """
    parts = []
    for name, value in result.items():
        if isinstance(value, bool):
            continue
        if isinstance(value, int):
            parts.append(f"{value:,} {name}")
        elif name in ("dropped", "labels", "identifiers") and isinstance(value, dict) and value:
            parts.append(f"{name}: " + ", ".join(f"{number:,} {what}" for what, number in value.items()))
        elif name == "editions":
            parts += [
                f"{task} ({', '.join(f'{number:,} {what}' for what, number in one['counts'].items())})"
                for task, one in value.items()
            ]
    return "; ".join(parts)
