"""`medteb validate`: check an edition as a reviewer would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.options import AgainstTraining, AsJson, TaskOrFolder


def validate(
    edition: TaskOrFolder,
    runs: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            help="Run (TREC, JSON, mteb's predictions), bm25-char-bigram (default) or bm25-jieba; may "
            "be repeated.",
        ),
    ] = None,
    build: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the build that made the edition, with pools, judgements and training sets."
        ),
    ] = None,
    pools: Annotated[
        Path | None, typer.Option(help="Pools written by 'medteb pool': file or folder.")
    ] = None,
    judgements: Annotated[
        Path | None, typer.Option(help="Judgements written by 'medteb judge': file or folder.")
    ] = None,
    second: Annotated[
        Path | None, typer.Option(help="Judgements of the same judges, asked a second time: file or folder.")
    ] = None,
    review: Annotated[
        Path | None,
        typer.Option(help="Sheet written by 'medteb review plan' or 'export', with its key beside it."),
    ] = None,
    answered: Annotated[
        list[Path] | None, typer.Option(help="Sheet that an expert filled in; may be repeated.")
    ] = None,
    decided: Annotated[
        Path | None,
        typer.Option(help="Sheet of disagreements, written by 'medteb review adjudicate' and filled in."),
    ] = None,
    against: AgainstTraining = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Field of the queries to compare scores by, such as department; may be repeated."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split to validate.")] = "test",
    html: Annotated[bool, typer.Option("--html", help="Print HTML instead of Markdown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the quality of an edition and print a report.

    The report has one page with a verdict, number and reason per point: files, ids, size and power,
    duplicates, judged share of a run, pool bias, judges, leaks, slices and the card. A point that the data
    cannot answer is "not known". The exit code is 1 if a point fails.
    """
    if as_json and html:
        raise UserError("choose one of --json and --html")
    from medteb_mteb.commands.editions import resolve  # lazy: start-up
    from medteb_mteb.validate import Sources, read_material, to_html, to_markdown  # lazy: scipy
    from medteb_mteb.validate import validate as run  # lazy: scipy
    from medteb_mteb.validate.build import of_build  # lazy: scipy
    from medteb_mteb.validate.runs import BASELINE  # lazy: scipy

    folder = Path(edition).expanduser()
    sources = Sources(
        runs=runs or [BASELINE],
        pools=pools,
        judgements=judgements,
        second=second,
        review=review,
        answered=tuple(answered or ()),
        decided=decided,
        against=against or (),
        by=tuple(by or ()),
        split=split,
    )
    if build is not None:
        sources = of_build(build, sources)
    report = run(read_material(folder if folder.exists() else resolve(edition).path, sources))
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        from mar_st.files import printable  # lazy: numpy

        # The report quotes texts of the edition, which may hold characters that control a terminal.
        shown = to_html(report) if html else "\n".join(map(printable, to_markdown(report).split("\n")))
        typer.echo(shown, nl=False)
    if report.failed:
        raise typer.Exit(1)
