"""`mar verify`: compare a folder with its digests."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from mar_st.commands.options import AsJson


def verify(
    folders: Annotated[
        list[str],
        typer.Argument(help="Folders of vectors, indexes, exports or models.", metavar="FOLDER..."),
    ],
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild damaged files of vectors and indexes.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            help="Repair from: the corpus for vectors (default: as recorded), the vectors for an index."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare every byte of folders with their digests.

    The exit status is 1 if a file is damaged or missing.
    """
    from mar_st.files import printable  # lazy: numpy
    from mar_st.integrity.verify import verify as run  # lazy: torch

    if source is not None and (not repair or len(folders) != 1):
        raise typer.BadParameter("--source requires --repair and exactly one folder.")
    results = [run(folder) for folder in folders]
    if repair:
        from mar_st.integrity.repair import repair as mend  # lazy: torch

        for place, result in enumerate(results):
            if not result.whole:
                mend(result, source, say=lambda line: typer.echo(line, file=sys.stderr))
                results[place] = run(result.folder)
    if as_json:
        shown = [result.to_json() for result in results]
        typer.echo(json.dumps(shown[0] if len(shown) == 1 else shown, ensure_ascii=False, indent=2))
    else:
        for result in results:
            state = "whole" if result.whole else f"{len(result.problems)} damaged or missing"
            size = f"{result.files} files, {result.bytes / 1e6:.1f} MB"
            typer.echo(printable(f"{result.folder}: {result.kind}, {size}, {state}"))
            for problem in result.problems:
                typer.echo(printable(f"  {problem.file}: {problem.found}"))
                typer.echo(printable(f"    {problem.do}"))
            for note in result.notes:
                typer.echo(printable(f"  note: {note}"))
    if not all(result.whole for result in results):
        raise typer.Exit(1)
