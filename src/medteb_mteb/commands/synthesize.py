"""`medteb synthesize`: have an LLM write training data, queries for documents or whole examples of tasks."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.against import AgainstOption, ThresholdOption, held_out
from medteb_mteb.commands.columns import ColumnOption, parse_columns
from medteb_mteb.commands.repairing import RepairFlag, repair_answers

if TYPE_CHECKING:
    from medteb_mteb.build.llm import Cost
    from medteb_mteb.build.synthetic import SynthesisReport

__all__ = ["synthesize_app"]

synthesize_app = typer.Typer(
    help="Have an LLM write training data.", no_args_is_help=True, rich_markup_mode=None
)

LLMOption = Annotated[Path, typer.Option("--llm", help="YAML file that names the LLM.")]
LanguageOption = Annotated[str, typer.Option(help="zh or en: what is written.")]
SeedOption = Annotated[int, typer.Option(help="Seed of all that is drawn.")]
JournalOption = Annotated[
    Path | None,
    typer.Option(help="Where answers are kept; default $MEDTEB_ANSWERS or answers.sqlite beside OUT."),
]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would be asked for, and what that costs.")
]
RetryFlag = Annotated[bool, typer.Option("--retry-failed", help="Ask again for what failed in earlier runs.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietFlag = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]


@synthesize_app.command("queries", no_args_is_help=True)
def queries_command(
    documents: Annotated[str, typer.Argument(help="Documents: a file, a folder, or hub:ORG/NAME.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    llm: LLMOption,
    per_document: Annotated[int, typer.Option(help="Queries for each document.", min=1, max=20)] = 1,
    language: LanguageOption = "zh",
    form: Annotated[
        list[str] | None,
        typer.Option(
            help="FORM=WEIGHT of question, keywords, case; repeat for more. "
            "Default: question=0.6, keywords=0.25, case=0.15."
        ),
    ] = None,
    sample: Annotated[int | None, typer.Option(help="Documents at most, drawn.", min=1)] = None,
    shortest: Annotated[
        int, typer.Option(help="Characters from which a document is worth a query.", min=1)
    ] = 20,
    longest: Annotated[int, typer.Option(help="Characters of a document that are sent.", min=100)] = 4000,
    instruction: Annotated[str, typer.Option(help="Task sentence put into every row.")] = "",
    source: Annotated[str, typer.Option(help="What the rows call their source.")] = "synthetic-queries",
    against: AgainstOption = None,
    threshold: ThresholdOption = 0.6,
    seed: SeedOption = 42,
    column: ColumnOption = None,
    journal: JournalOption = None,
    dry_run: DryRunFlag = False,
    already_anonymous: Annotated[
        bool, typer.Option("--already-anonymous", help="Send documents that have passed no anonymiser.")
    ] = False,
    retry_failed: RetryFlag = False,
    repair: RepairFlag = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write queries that documents answer; the pairs are training data.

    Exit code 1: something is left to ask for; what was answered is kept, and the same command resumes.
    """
    from medteb_mteb.build import synthetic

    if repair:
        repair_answers(out, journal)
    settings = synthetic.QuerySettings(
        language=synthetic.checked(language),
        per_document=per_document,
        forms=synthetic.parse_forms(form),
        shortest=shortest,
        longest=longest,
        sample=sample,
        seed=seed,
        source=source,
        instruction=instruction,
    )
    columns = parse_columns(column)
    if dry_run:
        cost = synthetic.estimate_queries(
            documents, out, llm, settings, columns=columns, journal=journal, retry_failed=retry_failed
        )
        _print_cost(cost, as_json=as_json)
        return
    report = synthetic.synthesize_queries(
        documents,
        out,
        llm,
        settings,
        columns=columns,
        held_out=held_out(against, threshold),
        journal=journal,
        already_anonymous=already_anonymous,
        retry_failed=retry_failed,
        show_progress=not quiet,
    )
    _print_report(report, as_json=as_json)


@synthesize_app.command("tasks", no_args_is_help=True)
def tasks_command(
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    llm: LLMOption,
    tasks: Annotated[int, typer.Option(help="Tasks that the LLM thinks of.", min=1)] = 20,
    pairs_per_task: Annotated[int, typer.Option(help="Examples of each task.", min=1)] = 10,
    tasks_from: Annotated[
        Path | None, typer.Option(help="Text file of tasks, one on a line, instead of a brainstorm.")
    ] = None,
    language: LanguageOption = "zh",
    source: Annotated[str, typer.Option(help="What the rows call their source.")] = "synthetic-tasks",
    against: AgainstOption = None,
    threshold: ThresholdOption = 0.6,
    seed: SeedOption = 42,
    journal: JournalOption = None,
    dry_run: DryRunFlag = False,
    retry_failed: RetryFlag = False,
    repair: RepairFlag = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Think of retrieval tasks and write examples of each: a query, a positive, a hard negative.

    Exit code 1: something is left to ask for; what was answered is kept, and the same command resumes.
    """
    from medteb_mteb.build import synthetic

    if repair:
        repair_answers(out, journal)
    settings = synthetic.TaskSettings(
        language=synthetic.checked(language),
        tasks=tasks,
        pairs_per_task=pairs_per_task,
        tasks_from=tasks_from,
        seed=seed,
        source=source,
    )
    if dry_run:
        cost = synthetic.estimate_tasks(out, llm, settings, journal=journal, retry_failed=retry_failed)
        _print_cost(cost, as_json=as_json)
        return
    report = synthetic.synthesize_tasks(
        out,
        llm,
        settings,
        held_out=held_out(against, threshold),
        journal=journal,
        retry_failed=retry_failed,
        show_progress=not quiet,
    )
    _print_report(report, as_json=as_json)


def _print_cost(cost: Cost, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(cost), ensure_ascii=False, indent=2))
        return
    spent = "" if cost.budget is None else f" (spent {cost.spent:.4g} of {cost.budget:g})"
    typer.echo(
        f"{cost.prompts} prompts, {cost.known} known, {cost.failed} failed before; {cost.requests} requests, "
        f"about {cost.tokens_in} tokens in, {cost.tokens_out} out, cost {cost.cost:.4g}{spent}; nothing was "
        "sent"
    )


def _print_report(report: SynthesisReport, *, as_json: bool) -> None:
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2) if as_json else _text(report))
    if not report.complete:
        typer.echo(f"medteb: stopped: {report.stopped}. Run the same command again to resume.", err=True)
        raise typer.Exit(1)


def _text(report: SynthesisReport) -> str:
    where = str(report.rows) if report.complete else "not complete"
    counts = ", ".join(f"{count} {name}" for name, count in report.details.items() if count)
    lines = [f"{report.kept} rows: {where}", f"  {counts}"]
    for name, found in (("dropped", report.dropped), ("failed", report.failed)):
        if found:
            reasons = ", ".join(f"{reason} {count}" for reason, count in found.items())
            lines.append(f"  {name}: {sum(found.values())} ({reasons})")
    if report.account.answers:
        paid = report.account
        lines.append(
            f"  {report.bought} answers bought, {report.known} known; paid over all runs: {paid.answers} "
            f"answers, {paid.tokens_in} tokens in, {paid.tokens_out} out, {paid.cost:.4g}"
        )
    return "\n".join([*lines, *report.notes])
