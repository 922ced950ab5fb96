"""`medteb build fetch` and `relatives`: data of published English sets, from open APIs and raw files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medteb_mteb.commands.costs import print_cost
from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.options import AnswersJournal, AsJson, DryRun, Quiet, RetryFailed
from medteb_mteb.commands.repairing import RepairFlag, repair_answers

if TYPE_CHECKING:
    from medteb_mteb.curation.relatives import Drafts, WriterSettings

__all__ = ["build_fetch", "build_medte_pairs", "build_relatives"]


def build_relatives(
    name: Annotated[str, typer.Argument(help="Name of the task, such as MedQuADLiveQARetrieval.")],
    source: Annotated[Path, typer.Argument(help="Folder of the raw files; archives need not be unpacked.")],
    out: Annotated[Path, typer.Argument(help="Root of editions, as in MEDTEB_DATA.")],
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", metavar="NAME=VALUE", help="Option of the set; may be repeated."),
    ] = None,
    llm: Annotated[
        Path | None,
        typer.Option("--llm", help="YAML file of the LLM that writes the texts of six tasks."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of texts to show the LLM, sampled; default: as many as the task has rows.",
            min=2,
        ),
    ] = None,
    journal: AnswersJournal = None,
    dry_run: DryRun = False,
    retry_failed: RetryFailed = False,
    repair: RepairFlag = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Build the data of a published English set from raw files.

    Writes an edition to OUT/NAME, or a file into OUT/MedTEB-eng for tasks of English MedTEB, with the digests
    of the raw files. The same files and options give the same bytes; tasks built before are kept. An
    unknown name prints the known ones.

    With --llm, the LLM writes the texts that an LLM wrote for the published set. The exit code is 1 if
    requests are left to send; answers are kept, and the same command resumes.
    """
    from medteb_mteb.curation.relatives import SNAPSHOT_TASKS, build_set, build_snapshot_task  # lazy: yaml

    options = dict(_split(one) for one in option or [])
    if llm is not None:
        from medteb_mteb.curation.llm import answers_path, load_llm  # lazy: numpy
        from medteb_mteb.curation.relatives import WriterSettings  # lazy: yaml
        from medteb_mteb.english.snapshot import FOLDER  # lazy: yaml

        if repair:
            repair_answers(out.expanduser() / FOLDER, journal)
        answers = answers_path(out.expanduser() / FOLDER, journal)
        writer = WriterSettings(load_llm(llm), answers, most, retry_failed, show_progress=not quiet)
        _build_written(name, source, out, options, writer, dry_run=dry_run, as_json=as_json)
        return
    if given := [flag for flag, value in (
        ("--most", most), ("--journal", journal), ("--dry-run", dry_run),
        ("--retry-failed", retry_failed), ("--repair", repair),
    ) if value]:  # fmt: skip
        raise UserError(f"{given[0]} is of no use without --llm FILE, the YAML file of an LLM")
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


def _build_written(
    name: str,
    source: Path,
    out: Path,
    options: dict[str, str],
    writer: WriterSettings,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Build a task whose texts an LLM writes, or estimate its cost."""
    from medteb_mteb.curation.relatives import build_written_task, estimate_written_task  # lazy: yaml

    if dry_run:
        print_cost(estimate_written_task(name, source, writer), as_json=as_json)
        return
    drafts, built = build_written_task(name, source, out, writer, options)
    if built is not None:
        _tell_snapshot(name, *built, out=out, as_json=as_json, run=_run_of(drafts))
    elif as_json:
        typer.echo(json.dumps({"task": name, **_run_of(drafts)}, ensure_ascii=False, indent=2))
    if not as_json:
        _tell_drafts(drafts)
    if built is None:
        typer.echo(f"medteb: stopped: {drafts.made.stopped}. Run the same command again to resume.", err=True)
        raise typer.Exit(1)


def _run_of(drafts: Drafts) -> dict[str, Any]:
    """Return the answers and cost of a run, which differ between runs with the same result."""
    generation = drafts.made
    stopped = {"stopped": generation.stopped} if generation.stopped else {}
    run = {
        "known": generation.known,
        "bought": generation.bought,
        "faults": generation.faults,
        "paid": asdict(generation.account),
    }
    return {**run, "failed": dict(drafts.written["failed"]), **stopped}


def _tell_drafts(drafts: Drafts) -> None:
    generation, written = drafts.made, drafts.written
    paid = generation.account
    typer.echo(
        f"  {generation.bought:,} new answers, {generation.known:,} from the journal; paid over all runs: "
        f"{paid.answers:,} answers, {paid.tokens_in:,} tokens in, {paid.tokens_out:,} out, cost "
        f"{paid.cost:.4g}"
    )
    for reason, number in written["failed"].items():
        typer.echo(f"  failed: {number:,} {reason}")
    if written["suspicious"]:
        typer.echo(
            f"  {written['suspicious']:,} texts look as if they wanted to instruct an LLM; each was alone in "
            "its prompt"
        )
    if "key_words_kept" in written:
        typer.echo(f"  {written['key_words_kept']:,} answers kept a key word of their question")


def _tell_snapshot(
    name: str,
    path: Path,
    snapshot: dict[str, Any],
    before: bool,
    *,
    out: Path,
    as_json: bool,
    run: dict[str, Any] | None = None,
) -> None:
    if as_json:
        content = {"task": name, "path": str(path), **snapshot, **(run or {}), "built_before": before}
        typer.echo(json.dumps(content, ensure_ascii=False, indent=2))
        return
    typer.echo(
        f"{name}  {snapshot['sha256'][:12]}  {snapshot['rows']:,} rows{'  (built before)' if before else ''}"
    )
    typer.echo(f"  differs from the published data: {snapshot['differs']}")
    typer.echo(f"score models on it: MEDTEB_DATA={out} medteb run -t {name} -m MODEL")


def build_fetch(
    source: Annotated[
        str, typer.Argument(help="clinical-trials, wikipedia, pmc, pubmed, biorxiv or medrxiv.")
    ],
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
            help="Maximum number of pages per category, articles per term, studies or preprints; default: as "
            "published.",
            min=1,
        ),
    ] = None,
    per_second: Annotated[
        float | None, typer.Option(help="Maximum requests per second; default: the operators' limit.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Address of a mirror of the API.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fetch data of an open API for English MedTEB.

    Writes every response to FOLDER as it arrives; the same command resumes an interrupted fetch. When all
    are there, FOLDER/fetched.json lists them with their digests, and nothing more is fetched into FOLDER.
    Build the tasks from it with `medteb build relatives TASK FOLDER DATA`. $NCBI_API_KEY is used for pmc and
    pubmed if it is set.
    """
    from medteb_mteb.curation.relatives.fetch import fetch_source  # lazy: yaml

    fetched = fetch_source(
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
        typer.echo(json.dumps(fetched, ensure_ascii=False, indent=2))
        return
    typer.echo(
        f"{source}  {fetched['sha256'][:12]}  {fetched['responses']:,} responses"
        f"{'  (fetched before)' if fetched['fetched_before'] else ''}"
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

    Missing sources are skipped; the same command resumes an interrupted run. Train on the pairs with
    `mar train medte`.
    """
    from medteb_mteb.curation.relatives import build_pairs  # lazy: yaml

    reports = build_pairs(
        source, out, form=form, against=against, say=lambda line: None if as_json else typer.echo(line)
    )
    if as_json:
        typer.echo(json.dumps(reports, ensure_ascii=False, indent=2))
        return
    for name, one in reports.items():
        for reason, number in one["left_out"].items():
            typer.echo(f"  {name}: left out: {number:,} {reason}")
