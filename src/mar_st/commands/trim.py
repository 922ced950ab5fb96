"""`mar trim`: cut the vocabulary of a model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def trim(
    source: Annotated[
        str,
        typer.Argument(help="Folder or Hub name of an encoder or a MAR."),
    ],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    keep: Annotated[int, typer.Option(help="Pieces to keep at most, special tokens included.", min=1)],
    texts: Annotated[
        list[str],
        typer.Option(help="File or folder of texts whose pieces are kept first; may be given several times."),
    ],
    route: Annotated[
        list[str] | None,
        typer.Option(help="Encoder of a MAR; several times for several; default all with more pieces."),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hub name.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Cut the vocabulary of a model to the pieces that texts use; their vectors do not change."""
    from mar_st.data import Texts
    from mar_st.vocabulary import file_texts
    from mar_st.vocabulary import trim as run

    done = run(
        source,
        out,
        keep=keep,
        texts=Texts.joined([file_texts(name) for name in texts]),
        routes=route or (),
        revision=revision,
        overwrite=overwrite,
        show_progress=not as_json,
    )
    if as_json:
        typer.echo(json.dumps([asdict(part) for part in done], indent=2))
        return
    for part in done:
        typer.echo(f"{out / part.folder}: {part.line()}")
