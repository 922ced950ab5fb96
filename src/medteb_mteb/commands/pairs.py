"""`medteb pairs`: queries and documents, each paired with itself, for the `align` stage."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from medteb_mteb.commands.against import held_out_of_training
from medteb_mteb.commands.columns import ColumnOption, parse_columns
from medteb_mteb.commands.options import AgainstTests, AsJson, OutFolder, Quiet, TestSimilarity

__all__ = ["pairs"]


def pairs(
    out: OutFolder,
    queries: Annotated[
        list[str] | None,
        typer.Option(
            "--queries", help="Queries: SOURCE, or SOURCE=SHARE for a random sample of it; may be repeated."
        ),
    ] = None,
    documents: Annotated[
        list[str] | None,
        typer.Option(
            "--documents",
            help="Documents: SOURCE, or SOURCE=SHARE for a random sample of it; may be repeated.",
        ),
    ] = None,
    column: ColumnOption = None,
    against: AgainstTests = None,
    threshold: TestSimilarity = 0.6,
    seed: Annotated[int, typer.Option(help="Seed of the random samples.")] = 42,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the texts to align a query encoder on.

    Each text is written once, and several sources are mixed evenly.
    """
    from medteb_mteb.curation.training import alignment_sets, weighted  # lazy: numpy

    report = alignment_sets(
        out,
        [weighted(source) for source in queries or ()],
        [weighted(source) for source in documents or ()],
        columns=parse_columns(column),
        held_out=held_out_of_training(against, threshold),
        seed=seed,
        show_progress=not quiet,
    )
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2))
        return
    for source in report.sources:
        dropped = "".join(f", {number:,} {reason}" for reason, number in source["dropped"].items())
        typer.echo(f"{source['role']}: {source['kept']:,} of {source['read']:,} {source['source']}{dropped}")
    typer.echo("for the recipe:")
    for line in report.data():
        typer.echo(f"  {line}")
