"""`medteb anonymize`: take identifiers of persons out of texts, or measure how well that goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.columns import ColumnOption, parse_columns

if TYPE_CHECKING:
    from medteb_mteb.build.anonymize.evaluate import Quality
    from medteb_mteb.build.anonymize.step import Anonymised


def anonymize(
    source: Annotated[
        str | None, typer.Argument(metavar="IN", help="File or folder of texts, or hub:ORG/NAME.")
    ] = None,
    out: Annotated[Path | None, typer.Argument(metavar="OUT", help="Folder to write.")] = None,
    mode: Annotated[
        str, typer.Option(help="placeholder: [姓名]; surrogate: another name, always the same for the same.")
    ] = "placeholder",
    kinds: Annotated[
        list[str] | None, typer.Option(help="Only this kind, e.g. PHONE; repeat, or separate with commas.")
    ] = None,
    column: ColumnOption = None,
    keep_meta: Annotated[
        list[str] | None, typer.Option(help="Further column to keep, anonymised; all others are left out.")
    ] = None,
    ids: Annotated[
        str, typer.Option(help="Given ids: check (refuse identifiers), keep, or digest (new ones).")
    ] = "check",
    known: Annotated[
        Path | None,
        typer.Option(
            help="File of identifiers that are known: one on a line, a name, or with a tab and a kind."
        ),
    ] = None,
    salt: Annotated[
        Path | None,
        typer.Option(
            help="File with the secret of surrogates and --known; default OUT.salt, made if missing."
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Measure precision and recall on sentences marked by hand instead.")
    ] = None,
    errors: Annotated[
        bool, typer.Option("--errors", help="With --check: show each miss and false find.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
) -> None:
    """Replace identifiers of persons in texts; an interrupted run resumes. Nothing is sent anywhere."""
    from medteb_mteb.commands.errors import UserError

    wanted = [name for part in kinds for name in part.split(",") if name] if kinds else None
    if check is not None:
        if source is not None or out is not None:
            raise UserError("--check measures on a marked file; leave IN and OUT away")
        _check(check, wanted, known, errors=errors, as_json=as_json)
        return
    if source is None or out is None:
        raise UserError("expected IN and OUT, or --check FILE")
    if errors:
        raise UserError("--errors goes with --check")
    from medteb_mteb.build.anonymize.step import anonymize as run

    result = run(
        source,
        out,
        mode=mode,  # type: ignore[arg-type]  # checked there
        kinds=wanted,
        salt=salt,
        keep_meta=keep_meta or (),
        ids=ids,  # type: ignore[arg-type]
        known=known,
        columns=parse_columns(column),
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


def _check(file: Path, kinds: list[str] | None, known: Path | None, *, errors: bool, as_json: bool) -> None:
    from medteb_mteb.build.anonymize.evaluate import quality, read_marked
    from medteb_mteb.build.anonymize.find import Finder
    from medteb_mteb.build.anonymize.known import read_known

    sentences = read_marked(file)
    finder = Finder(kinds, read_known(known) if known is not None else None)
    result = quality(sentences, finder, kinds=finder.kinds)
    if as_json:
        shown = {**result.to_json(), **({"errors": result.errors} if errors else {})}
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    typer.echo(quality_table(result))
    if errors:
        typer.echo("\n".join(result.errors))


def quality_table(result: Quality) -> str:
    """Precision and recall by kind, for a terminal."""
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
