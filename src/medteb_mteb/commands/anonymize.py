"""`medteb anonymize`: replace personal identifiers in texts, or measure how well that works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.columns import ColumnOption, parse_columns
from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.options import AsJson, Quiet
from medteb_mteb.commands.sources import SourceOption, parse_sources

if TYPE_CHECKING:
    from medteb_mteb.curation.anonymize.evaluate import Quality
    from medteb_mteb.curation.anonymize.step import Anonymised


def anonymize(
    source: Annotated[
        str | None, typer.Argument(metavar="IN", help="Texts: a file, a folder, or hub:ORG/NAME.")
    ] = None,
    out: Annotated[Path | None, typer.Argument(metavar="OUT", help="Folder to write to.")] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="Replacement: placeholder ([姓名]) or surrogate (another name, the same for each "
            "occurrence)."
        ),
    ] = "placeholder",
    kinds: Annotated[
        list[str] | None,
        typer.Option(help="Replace only this kind, e.g. PHONE; comma-separated, or may be repeated."),
    ] = None,
    column: ColumnOption = None,
    text_source: SourceOption = None,
    keep_meta: Annotated[
        list[str] | None,
        typer.Option(help="Additional column to keep, anonymised; others are left out; may be repeated."),
    ] = None,
    ids: Annotated[
        str,
        typer.Option(
            help="Text ids: check (refuse identifiers in them), keep, or digest (replace by new ids)."
        ),
    ] = "check",
    known: Annotated[
        Path | None,
        typer.Option(
            help="File of known identifiers, one per line: a name, or an identifier, a tab and its kind."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also replace dates and doubtful names and numbers.")
    ] = False,
    review: Annotated[
        Path | None,
        typer.Option(help="Write a CSV sheet of doubtful values to this file instead; omit OUT."),
    ] = None,
    reviewed: Annotated[
        Path | None, typer.Option(help="Sheet of --review with yes or no in its first column.")
    ] = None,
    salt: Annotated[
        Path | None,
        typer.Option(
            help="File of the secret for surrogates and --known; default: OUT.salt, created if missing."
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Measure precision and recall on hand-labelled sentences instead.")
    ] = None,
    errors: Annotated[
        bool, typer.Option("--errors", help="With --check: show each false negative and false positive.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Replace personal identifiers in texts.

    Everything runs on this machine, and an interrupted run resumes.
    """
    wanted = [name for part in kinds for name in part.split(",") if name] if kinds else None
    if check is not None:
        if source is not None or out is not None:
            raise UserError("--check measures on a marked file; leave IN and OUT away")
        _check(check, wanted, known, strict=strict, errors=errors, as_json=as_json)
        return
    if errors:
        raise UserError("--errors goes with --check")
    if review is not None:
        if source is None or out is not None:
            raise UserError("--review writes a sheet: expected IN and no OUT")
        _review(source, review, wanted, known, column, quiet=quiet)
        return
    if source is None or out is None:
        raise UserError("expected IN and OUT, or --check FILE")
    from medteb_mteb.curation.anonymize.step import anonymize as run  # lazy: yaml

    result = run(
        source,
        out,
        mode=mode,  # type: ignore[arg-type]  # checked there
        kinds=wanted,
        salt=salt,
        keep_meta=keep_meta or (),
        ids=ids,  # type: ignore[arg-type]
        known=known,
        strict=strict,
        reviewed=reviewed,
        columns=parse_columns(column),
        sources=parse_sources(text_source),
        show_progress=not quiet,
    )
    if as_json:
        typer.echo(json.dumps({"out": str(out), **result.to_json()}, ensure_ascii=False, indent=2))
    else:
        typer.echo(as_text(result))


def as_text(result: Anonymised) -> str:
    """Return the result as text for a terminal."""
    report = result.report
    total = sum(result.identifiers.values())
    lines = [
        f"{report.folder}: {report.kept} texts, {total} identifiers replaced in {result.texts_with} of them"
    ]
    lines += [f"  {kind:14}{count:>9}" for kind, count in result.identifiers.items()]
    if result.left_out:
        lines.append(f"columns left out (--keep-meta NAME keeps one): {', '.join(result.left_out)}")
    return "\n".join(lines)


def _review(
    source: str,
    sheet: Path,
    kinds: list[str] | None,
    known: Path | None,
    column: list[str] | None,
    *,
    quiet: bool,
) -> None:
    from medteb_mteb.curation.anonymize.known import read_known  # lazy: regex
    from medteb_mteb.curation.anonymize.sheet import write_sheet  # lazy: yaml

    listed = read_known(known) if known is not None else None
    count = write_sheet(
        source, sheet, kinds=kinds, known=listed, columns=parse_columns(column), show_progress=not quiet
    )
    typer.echo(
        f"{sheet}: {count} doubtful values. Write yes or no into the first column, then run again with "
        f"--reviewed {sheet}. The sheet holds identifiers; keep it where the source is."
    )


def _check(
    file: Path, kinds: list[str] | None, known: Path | None, *, strict: bool, errors: bool, as_json: bool
) -> None:
    from medteb_mteb.curation.anonymize.evaluate import quality, read_marked  # lazy: start-up
    from medteb_mteb.curation.anonymize.find import Finder  # lazy: start-up
    from medteb_mteb.curation.anonymize.known import read_known  # lazy: regex

    sentences = read_marked(file)
    finder = Finder(kinds, read_known(known) if known is not None else None, strict=strict)
    result = quality(sentences, finder, kinds=finder.kinds)
    if as_json:
        shown = {**result.to_json(), **({"errors": result.errors} if errors else {})}
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    typer.echo(quality_table(result))
    if errors:
        typer.echo("\n".join(result.errors))


def quality_table(result: Quality) -> str:
    """Return precision and recall by kind, as text for a terminal."""
    rows = result.to_json()
    head = (
        f"{'kind':14}{'marked':>8}{'found':>7}{'precision':>11}{'recall':>8}{'exact p.':>10}{'exact r.':>10}"
    )
    lines = [head]
    for kind, row in [*rows["kinds"].items(), ("all", rows["all"])]:
        lines.append(
            f"{kind:14}{row['marked']:>8}{row['found']:>7}{row['precision']:>11.3f}{row['recall']:>8.3f}"
            f"{row['precision_exact']:>10.3f}{row['recall_exact']:>10.3f}"
        )
    lines.append(
        f"{rows['sentences']} sentences; of {rows['plain']} without identifiers {rows['disturbed']} were "
        f"changed; {rows['covered']:.1%} of the identifiers' characters were found.\n"
        "Right: same kind, and at least "
        f"{rows['overlap']:.0%} of the longer span in common; exact: same kind, start and end."
    )
    return "\n".join(lines)
