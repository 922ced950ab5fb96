"""`medteb dedup`: drop texts that are nearly the same as an earlier one."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from medteb_mteb.commands.columns import ColumnOption, parse_columns
from medteb_mteb.commands.options import AsJson, OutFolder, Quiet, TextsSource
from medteb_mteb.commands.sources import SourceOption, parse_sources


def dedup(
    source: TextsSource,
    out: OutFolder,
    threshold: Annotated[
        float, typer.Option(help="Drop texts with at least this Jaccard similarity of character n-grams.")
    ] = 0.8,
    width: Annotated[int, typer.Option(help="Number of characters of an n-gram.", min=1)] = 3,
    column: ColumnOption = None,
    text_source: SourceOption = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Drop texts that nearly repeat an earlier one.

    Texts are compared by their character n-grams. An interrupted run resumes.
    """
    from medteb_mteb.curation.files.step import run_step  # lazy: yaml
    from medteb_mteb.curation.texts.near_duplicates import NearDuplicates  # lazy: start-up

    step = NearDuplicates(threshold, width)
    report = run_step(
        step,
        source,
        out,
        columns=parse_columns(column),
        sources=parse_sources(text_source),
        show_progress=not quiet,
    )
    if as_json:
        content = {
            "folder": str(report.folder),
            "read": report.read,
            "kept": report.kept,
            "dropped": report.dropped,
            "resumed": report.resumed,
        }
        typer.echo(json.dumps(content, ensure_ascii=False, indent=2))
        return
    share = 1 - report.kept / report.read
    typer.echo(f"{report.kept:,} of {report.read:,} texts kept, {share:.1%} dropped: {report.folder}")
