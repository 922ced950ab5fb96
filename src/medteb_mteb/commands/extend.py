"""`medteb edition extend`: judge what new systems retrieve, as a new version of an edition."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medteb_mteb.commands.options import (
    AlreadyAnonymous,
    AsJson,
    Quiet,
    RetryFailed,
    TaskOrEdition,
    VectorStore,
)

if TYPE_CHECKING:
    from medteb_mteb.curation.edition.extend import Extension, SystemScores


def extend(
    edition: TaskOrEdition,
    out: Annotated[Path, typer.Argument(help="Folder to write to; the edition is not changed.")],
    retriever: Annotated[
        list[str],
        typer.Option(
            "-r",
            "--retriever",
            help="System: a run ([NAME=]FILE.trec), or a retriever as for 'medteb pool'; may be repeated.",
        ),
    ],
    judges: Annotated[Path, typer.Option(help="YAML file of the edition's judges.")],
    depth: Annotated[int, typer.Option(help="Number of top documents to judge per system.", min=1)] = 10,
    edition_version: Annotated[
        str | None, typer.Option("--version", help="Version of the new edition; default: the next minor one.")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="Rule of agreement, as for 'medteb consensus'; default: that of the edition."),
    ] = None,
    other_panel: Annotated[
        bool, typer.Option("--other-panel", help="Accept judges that are not those of the edition.")
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(
            help="Journal of paid judgements; default: $MEDTEB_JOURNAL or judgements.sqlite in OUT."
        ),
    ] = None,
    already_anonymous: AlreadyAnonymous = False,
    retry_failed: RetryFailed = False,
    store: VectorStore = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Judge documents that new systems find.

    Writes a new version of an edition.

    The judges of the edition grade those of a system's top documents that are not judged yet. All earlier
    labels stay, so the new version can also score runs of earlier systems.

    The exit code is 1 if judgements are missing. Answers are kept, and the same command resumes.
    """
    from mar_st.teachers.store import store_root  # lazy: torch
    from medteb_mteb.commands.edition import resolve  # lazy: start-up
    from medteb_mteb.curation.edition.extend import extend as run  # lazy: numpy
    from medteb_mteb.curation.labels.consensus import ConsensusRule  # lazy: start-up

    base = resolve(edition)
    extension = run(
        base.path,
        out,
        retriever,
        judges,
        depth=depth,
        version=edition_version,
        rule=None if rule is None else ConsensusRule(rule),  # type: ignore[arg-type]  # checked there
        other_panel=other_panel,
        journal=journal,
        store=store or store_root(out),
        already_anonymous=already_anonymous,
        retry_failed=retry_failed,
        show_progress=not quiet,
    )
    typer.echo(
        json.dumps(_as_json(extension), ensure_ascii=False, indent=2) if as_json else _as_text(extension)
    )
    if extension.judging is not None and extension.judging["stopped"]:
        typer.echo(f"medteb: stopped: {extension.judging['stopped']}", err=True)
        typer.echo("medteb: judgements are missing; the same command resumes", err=True)
        raise typer.Exit(1)


def _as_json(extension: Extension) -> dict[str, Any]:
    return {
        "edition": None
        if extension.edition is None
        else {
            "path": str(extension.edition.path),
            "version": extension.edition.version,
            "digest": extension.edition.digest,
        },
        "change": None if extension.change is None else extension.change.to_json(),
        "before": {name: asdict(scores) for name, scores in extension.before.items()},
        "after": {name: asdict(scores) for name, scores in extension.after.items()},
    }


def _as_text(extension: Extension) -> str:
    lines = [f"{'system':30} {'labels':8} {'nDCG@10 [95 %]':28} {'judged@10':>10} {'condensed':>10}"]
    for name, scores in extension.before.items():
        lines.append(_row(name, "before", scores))
        if name in extension.after:
            lines.append(_row("", "after", extension.after[name]))
    if extension.edition is not None and extension.change is not None:
        counts = ", ".join(f"{number:,} {what}" for what, number in extension.change.counts.items())
        lines.append(f"{extension.change.pairs:,} pairs judged: {counts}")
        lines.append(
            f"version {extension.edition.version}, revision {extension.edition.digest[:12]}: "
            f"{extension.edition.path}"
        )
    elif extension.judging is None:
        lines.append("all these documents are judged already, so no new version was written")
    return "\n".join(lines)


def _row(name: str, labels: str, scores: SystemScores) -> str:
    from mar_st.files import printable  # lazy: numpy

    share = "-" if scores.judged is None else f"{scores.judged:.1%}"
    interval = f"{scores.ndcg:.4f} [{scores.low:.4f}, {scores.high:.4f}]"
    return f"{printable(name):30} {labels:8} {interval:28} {share:>10} {scores.condensed:10.4f}"
