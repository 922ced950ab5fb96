"""`medteb edition`: the command group; `edition.py` implements its commands, imported late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from medteb_mteb.commands.extend import extend
from medteb_mteb.commands.options import AsJson, EditionName, EditionVersion, License, TaskOrEdition

edition_app = typer.Typer(
    help="Manage editions: the data that tasks are scored on.", no_args_is_help=True, rich_markup_mode=None
)
edition_app.command("extend", no_args_is_help=True)(extend)


@edition_app.command("list")
def edition_list(as_json: AsJson = False) -> None:
    """List the active edition of each task.

    Editions in $MEDTEB_DATA take precedence over the packaged ones.
    """
    from medteb_mteb.commands import edition as commands  # lazy: start-up

    in_force = commands.editions()
    if as_json:
        typer.echo(
            json.dumps([commands.as_json(edition) for edition in in_force], ensure_ascii=False, indent=2)
        )
        return
    for edition in in_force:
        counts = ", ".join(f"{count} {kind}" for kind, count in edition.counts.items())
        identity = f"{edition.name} {edition.version}  {edition.digest[:12]}"
        _print_line(f"{edition.task}  {identity}  {counts}  {edition.path}")


@edition_app.command("show")
def edition_show(name: TaskOrEdition, as_json: AsJson = False) -> None:
    """Show the licence, counts, digest and files of an edition."""
    from medteb_mteb.commands import edition as commands  # lazy: start-up

    edition = commands.resolve(name)
    if as_json:
        typer.echo(json.dumps(commands.as_json(edition), ensure_ascii=False, indent=2))
        return
    _print_line(f"{edition.task}, edition {edition.name} {edition.version}")
    for label, value in (("digest", edition.digest), ("licence", edition.licence), ("path", edition.path)):
        _print_line(f"{label:8} {value}")
    for kind, count in edition.counts.items():
        _print_line(f"{count:>10} {kind}")
    for key, content in edition.extra.items():
        shown = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        _print_line(f"{key}: {shown}")
    for relative, entry in edition.files.items():
        _print_line(f"{entry.sha256[:12]}  {entry.bytes:>10}  {relative}")


def _print_line(line: str) -> None:
    """Print an untrusted line without characters that control a terminal."""
    from mar_st.files import printable  # lazy: numpy

    typer.echo(printable(line))


@edition_app.command("croissant")
def edition_croissant(
    name: TaskOrEdition,
    url: Annotated[str, typer.Option(help="Where the edition is published.")] = "",
) -> None:
    """Print an edition's Croissant metadata."""
    from medteb_mteb.commands import edition as commands  # lazy: start-up
    from medteb_mteb.curation.edition.croissant import croissant  # lazy: start-up

    typer.echo(json.dumps(croissant(commands.resolve(name), url=url), ensure_ascii=False, indent=2))


@edition_app.command("datasheet")
def edition_datasheet(
    name: TaskOrEdition,
    build: Annotated[Path | None, typer.Option(help="Folder of the build that made the edition.")] = None,
) -> None:
    """Print how an edition was made, as Markdown.

    Lists judges, rule, agreement, retrievers, anonymiser, licences and leaks, if recorded.
    """
    from medteb_mteb.commands import edition as commands  # lazy: start-up
    from medteb_mteb.validate.datasheet import datasheet  # lazy: scipy

    for line in datasheet(commands.resolve(name), build).split("\n")[:-1]:
        _print_line(line)


@edition_app.command("verify")
def edition_verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Task names or edition folders; default: all active editions."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the data files of editions with their manifests."""
    from medteb_mteb.commands import edition as commands  # lazy: start-up
    from medteb_mteb.editions import EditionError  # lazy: start-up

    outcomes = commands.verify_all(names or [])
    problems = [problem for _, problem in outcomes if problem]
    if as_json:
        report = [
            {"task": e.task, "digest": e.digest, "path": str(e.path), "problem": p or None}
            for e, p in outcomes
        ]
        typer.echo(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        for edition, problem in outcomes:
            if not problem:
                typer.echo(f"{edition.task}  {edition.digest[:12]}  ok, {len(edition.files)} files")
    if problems:
        raise EditionError(" | ".join(problems))


@edition_app.command("write")
def edition_write(
    folder: Annotated[Path, typer.Argument(help="Folder of the data files.")],
    licence: License,
    task: Annotated[
        str | None, typer.Option(help="Task name; default: the card's, or the folder's name.")
    ] = None,
    name: EditionName = "local",
    edition_version: EditionVersion = "1",
) -> None:
    """Check a folder's data and write its manifest.

    The manifest holds the digest of every data file.
    """
    from medteb_mteb.commands import edition as commands  # lazy: start-up

    edition = commands.write(folder, task, name, edition_version, licence)
    typer.echo(f"{edition.task}  {edition.digest}  {len(edition.files)} files")


@edition_app.command("stats")
def edition_stats(
    names: Annotated[
        list[str] | None, typer.Argument(help="Task names or data folders; default: all active editions.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Compute the statistics again even if they exist.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compute mteb's descriptive statistics of data folders.

    They are stored beside the data, by the data's digest.
    """
    from medteb_mteb.commands import edition as commands  # lazy: start-up

    rows = commands.statistics(names or [], overwrite=overwrite)
    if as_json:
        typer.echo(json.dumps({task: stats for task, _, stats in rows}, ensure_ascii=False, indent=2))
        return
    for task, path, stats in rows:
        samples = ", ".join(f"{split} {entry['num_samples']:,} samples" for split, entry in stats.items())
        typer.echo(f"{task}  {samples}  {path}")
