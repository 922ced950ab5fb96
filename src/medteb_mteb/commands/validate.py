"""`medteb validate`: an edition as a reviewer would look at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def validate(
    edition: Annotated[str, typer.Argument(help="A task's name, or a retrieval or reranking folder.")],
    runs: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            help="Run (TREC, JSON, mteb's predictions), bm25-char-bigram (default) or bm25-jieba; repeat.",
        ),
    ] = None,
    build: Annotated[
        Path | None,
        typer.Option(help="Folder of the build that made it: its pools, judgements and training sets."),
    ] = None,
    pools: Annotated[Path | None, typer.Option(help="Pools of 'medteb pool', file or folder.")] = None,
    judgements: Annotated[
        Path | None, typer.Option(help="Judgements of 'medteb judge', file or folder.")
    ] = None,
    second: Annotated[
        Path | None, typer.Option(help="Judgements of the same judges, asked a second time.")
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option("--against", help="Training set, file or folder; repeat for more.")
    ] = None,
    split: Annotated[str, typer.Option(help="The split to look at.")] = "test",
    html: Annotated[bool, typer.Option("--html", help="Print HTML in place of Markdown.")] = False,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="Write JSON to this file, too.", metavar="FILE")
    ] = None,
) -> None:
    """Print a verdict on every point of an edition.

    Each has its number and its reason, on one page. Looked at are files, ids, size and power, duplicates,
    what was judged of a run, pool bias, judges, leaks, slices and the card. What the data do not tell is
    called "not known". Exit code 1: a point fails.
    """
    from medteb_mteb.commands.edition import resolve
    from medteb_mteb.commands.errors import UserError
    from medteb_mteb.validate import Sources, read_material, to_html, to_markdown
    from medteb_mteb.validate import validate as run
    from medteb_mteb.validate.build import of_build
    from medteb_mteb.validate.runs import BASELINE

    folder = Path(edition).expanduser()
    sources = Sources(
        runs=runs or [BASELINE],
        pools=pools,
        judgements=judgements,
        second=second,
        against=against or (),
        split=split,
    )
    if build is not None:
        sources = of_build(build, sources)
    report = run(read_material(folder if folder.exists() else resolve(edition).path, sources))
    if as_json is not None:
        content = json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
        try:
            as_json.parent.mkdir(parents=True, exist_ok=True)
            as_json.write_text(content, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{as_json} cannot be written ({error.strerror})") from None
    typer.echo(to_html(report) if html else to_markdown(report), nl=False)
    if report.failed:
        raise typer.Exit(1)
