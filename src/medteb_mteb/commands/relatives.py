"""`medteb build fetch` and `relatives`: data of published English sets, from open APIs and raw files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.options import AsJson, Quiet

__all__ = ["build_fetch", "build_medte_pairs", "build_relatives"]


def build_relatives(
    name: Annotated[str, typer.Argument(help="Name of the task, such as MedQuADLiveQARetrieval.")],
    source: Annotated[
        Path, typer.Argument(help="Folder of the raw files; archives in it are read as they are.")
    ],
    out: Annotated[Path, typer.Argument(help="Root of editions, as in MEDTEB_DATA.")],
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", metavar="NAME=VALUE", help="Option of the set; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build the data of a published English set from raw files.

    Writes an edition to OUT/NAME, or a file into OUT/MedTEB-eng for tasks of English MedTEB, with the digests
    of the raw files. The same files and options give the same bytes; tasks built before are kept. A name
    that is not known lists those that are.
    """
    from medteb_mteb.curation.relatives import SNAPSHOT_TASKS, build_set, build_snapshot_task  # lazy: yaml

    options = dict(_split(one) for one in option or [])
    if name in SNAPSHOT_TASKS:
        _tell_snapshot(name, *build_snapshot_task(name, source, out, options), out=out, as_json=as_json)
        return
    edition, before = build_set(name, source, out, options)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "task": edition.task,
                    "digest": edition.digest,
                    "path": str(edition.path),
                    "counts": edition.counts,
                    "left_out": edition.extra.get("left_out", {}),
                    "built_before": before,
                },
                ensure_ascii=False,
                indent=2,
            )
        )
        return
    counts = ", ".join(f"{number:,} {kind}" for kind, number in edition.counts.items())
    typer.echo(f"{edition.task}  {edition.digest[:12]}  {counts}{'  (built before)' if before else ''}")
    for reason, number in edition.extra.get("left_out", {}).items():
        typer.echo(f"  left out: {number:,} {reason}")
    typer.echo(f"score models on it: MEDTEB_DATA={out} medteb run -t {edition.task} -m MODEL")


def _tell_snapshot(
    name: str, path: Path, found: dict[str, Any], before: bool, *, out: Path, as_json: bool
) -> None:
    if as_json:
        content = {"task": name, "path": str(path), **found, "built_before": before}
        typer.echo(json.dumps(content, ensure_ascii=False, indent=2))
        return
    typer.echo(
        f"{name}  {found['sha256'][:12]}  {found['rows']:,} rows{'  (built before)' if before else ''}"
    )
    typer.echo(f"  differs from the published data: {found['differs']}")
    typer.echo(f"score models on it: MEDTEB_DATA={out} medteb run -t {name} -m MODEL")


def build_fetch(
    source: Annotated[str, typer.Argument(help="wikipedia, pmc, pubmed or clinical-trials.")],
    folder: Annotated[Path, typer.Argument(help="Folder of the responses; frozen when complete.")],
    contact: Annotated[
        str | None,
        typer.Option(
            help="Your e-mail address or web page, which the servers' operators require; default: "
            "$MEDTEB_CONTACT.",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("-t", "--task", help="Task to fetch for; may be repeated; default: all of the source."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            help="Most pages of a category, articles of a term, or studies; default: as published.",
            min=1,
        ),
    ] = None,
    per_second: Annotated[
        float | None, typer.Option(help="Most requests per second; default: what the operators allow.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Address of a mirror of the API.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fetch what an open API publishes, for English MedTEB.

    Writes every response to FOLDER as it comes; the same command continues a fetch that was stopped. When all
    are there, FOLDER/fetched.json lists them with their digests, and nothing more is fetched into FOLDER.
    Build the tasks from it with `medteb build relatives TASK FOLDER DATA`. $NCBI_API_KEY is used for pmc and
    pubmed if it is set.
    """
    from medteb_mteb.curation.relatives.fetch import fetch_source  # lazy: yaml

    found = fetch_source(
        source,
        folder,
        contact=contact,
        tasks=task or (),
        most=most,
        per_second=per_second,
        address=address,
        say=lambda line: None if quiet else typer.echo(line, err=True),
    )
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    typer.echo(
        f"{source}  {found['sha256'][:12]}  {found['responses']:,} responses"
        f"{'  (fetched before)' if found['fetched_before'] else ''}"
    )


def _split(option: str) -> tuple[str, str]:
    name, sign, value = option.partition("=")
    if not sign:
        raise UserError(f"--option takes NAME=VALUE; got {option!r}")
    return name, value


def build_medte_pairs(
    source: Annotated[
        Path, typer.Argument(help="Folder with a folder of raw files per source, such as pubmed.")
    ],
    out: Annotated[Path, typer.Argument(help="Folder of the pairs, such as data for the recipe medte.")],
    form: Annotated[
        str, typer.Option(help="Pairs of the paper or of the authors' code: paper or code.")
    ] = "paper",
    against: Annotated[
        Path | None,
        typer.Option(help="Root of editions with MedTEB-eng: pairs with a text of it are dropped."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write MedTE's training pairs from raw files of ten sources.

    The sources that are there are read; the same command continues where it was stopped. Train on them with
    `mar train medte`.
    """
    from medteb_mteb.curation.relatives import build_pairs  # lazy: yaml

    found = build_pairs(
        source, out, form=form, against=against, say=lambda line: None if as_json else typer.echo(line)
    )
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    for name, one in found.items():
        for reason, number in one["left_out"].items():
            typer.echo(f"  {name}: left out: {number:,} {reason}")
