"""`medteb trec`: runs and judgements to and from TREC's formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.options import TaskOrFolder

trec_app = typer.Typer(
    help="Convert runs and qrels to TREC's formats.", no_args_is_help=True, rich_markup_mode=None
)


@trec_app.command("run", no_args_is_help=True)
def run(
    source: Annotated[
        Path, typer.Argument(help="Run: mteb's predictions, a run of `mar search`, or a TREC run.")
    ],
    out: Annotated[Path, typer.Argument(help="File to write to: *.trec or *.run for TREC, *.json for JSON.")],
    split: Annotated[
        str | None, typer.Option(help="Split of mteb's predictions; default: the only one.")
    ] = None,
    subset: Annotated[str, typer.Option(help="Subset of mteb's predictions.")] = "default",
    tag: Annotated[str, typer.Option(help="Run tag (name of the system) on each line.")] = "medteb",
) -> None:
    """Convert a run between TREC's format and JSON.

    `medteb run --save-predictions` saves mteb's predictions, which are also accepted.
    """
    from mar_st.data.trec import check_run_name, read_run, write_run  # lazy: transformers
    from mar_st.files import counted  # lazy: numpy

    check_run_name(out)
    rankings = read_run(source, split=split, subset=subset)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_run(out, rankings, tag)
    results = sum(map(len, rankings.values()))
    typer.echo(
        f"{counted(len(rankings), 'query', 'queries')}, {counted(results, 'result')}, written to {out}"
    )


@trec_app.command("qrels", no_args_is_help=True)
def qrels(
    source: TaskOrFolder,
    out: Annotated[Path, typer.Argument(help="File to write to.")],
    split: Annotated[str, typer.Option(help="Split of the qrels.")] = "test",
) -> None:
    """Write the qrels of an edition or data folder as TREC qrels."""
    from mar_st.data.trec import write_qrels  # lazy: transformers
    from mar_st.files import counted  # lazy: numpy
    from medteb_mteb.commands.edition import resolve  # lazy: start-up
    from medteb_mteb.folders import read_folder  # lazy: yaml

    folder = Path(source).expanduser()
    content = read_folder(folder if folder.is_dir() else resolve(source).path, split)
    if content.retrieval is None:
        raise UserError(f"{source}: is of type {content.type}, which has no qrels; give a retrieval folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_qrels(out, content.retrieval.qrels)
    grades = sum(map(len, content.retrieval.qrels.values()))
    queries = counted(len(content.retrieval.qrels), "query", "queries")
    typer.echo(f"{queries}, {counted(grades, 'judgement')}, written to {out}")
