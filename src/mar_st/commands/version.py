"""The option `--version` of both programs."""

from __future__ import annotations

from typing import Annotated

import typer


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version  # lazy: importlib.metadata

        typer.echo(f"medteb {version('medteb')}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
]
