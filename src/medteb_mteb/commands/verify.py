"""`medteb verify`: check journals of paid answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from medteb_mteb.commands.options import AsJson

__all__ = ["verify"]


def verify(
    journals: Annotated[
        list[Path], typer.Argument(help="Journals of judgements, answers or decisions.", metavar="JOURNAL...")
    ],
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair damaged journals; every intact row is kept.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check every row of journals against its checksum.

    The exit status is 1 if a row is damaged. For models, vectors, indexes and stores of teacher vectors, use
    'mar verify'; for editions, 'medteb edition verify'.
    """
    from medteb_mteb.curation.journals import repair_damaged, verify_journal  # lazy: torch

    results = [verify_journal(path) for path in journals]
    if repair:
        for place, result in enumerate(results):
            if not result.whole:
                typer.echo(repair_damaged(result), err=True)
                results[place] = verify_journal(result.folder)
    if as_json:
        shown = [result.to_json() for result in results]
        typer.echo(json.dumps(shown[0] if len(shown) == 1 else shown, ensure_ascii=False, indent=2))
    else:
        for result in results:
            state = "whole" if result.whole else f"{len(result.problems)} damaged"
            typer.echo(f"{result.folder}: {result.kind}, {result.bytes / 1e6:.1f} MB, {state}")
            for problem in result.problems:
                typer.echo(f"  {problem.found}\n    {problem.do}")
            for note in result.notes:
                typer.echo(f"  note: {note}")
    if not all(result.whole for result in results):
        raise typer.Exit(1)
