"""`mar trim`: cut the vocabulary of a model."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from mar_st.commands.options import AsJson, NewFolder, Overwrite


def trim(
    source: Annotated[
        str,
        typer.Argument(help="Encoder or MAR: folder or Hub name."),
    ],
    out: NewFolder,
    keep: Annotated[
        int, typer.Option(help="Maximum number of tokens to keep, including special tokens.", min=1)
    ],
    texts: Annotated[
        list[str],
        typer.Option(help="File or folder of texts whose tokens are kept first; may be repeated."),
    ],
    route: Annotated[
        list[str] | None,
        typer.Option(
            help="Encoder of a MAR to trim; may be repeated; default: all with larger vocabularies."
        ),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a model on the Hub.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Reduce a model's vocabulary to the tokens that texts use.

    Vectors of texts that need no other tokens do not change.
    """
    from mar_st.data import Texts  # lazy: transformers
    from mar_st.vocabulary import file_texts  # lazy: torch
    from mar_st.vocabulary import trim as run  # lazy: torch

    trimmed = run(
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
        typer.echo(json.dumps([asdict(part) for part in trimmed], indent=2))
        return
    for part in trimmed:
        typer.echo(f"{out / part.folder}: {part.line()}")
