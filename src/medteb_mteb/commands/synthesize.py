"""`medteb synthesize`: have an LLM write training data, queries for documents or whole examples of tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.against import held_out_of_training
from medteb_mteb.commands.columns import ColumnOption, parse_columns
from medteb_mteb.commands.costs import print_cost
from medteb_mteb.commands.options import (
    AgainstTests,
    AlreadyAnonymous,
    AnswersJournal,
    AsJson,
    DocumentsSource,
    DryRun,
    LlmFile,
    OutFolder,
    Quiet,
    RetryFailed,
    Seed,
    TestSimilarity,
)
from medteb_mteb.commands.repairing import RepairFlag, repair_answers

if TYPE_CHECKING:
    from medteb_mteb.curation.synthetic import SynthesisReport

__all__ = ["synthesize_app"]

synthesize_app = typer.Typer(
    help="Have an LLM write training data.", no_args_is_help=True, rich_markup_mode=None
)

SourceName = Annotated[str, typer.Option(help="Name of the source in the rows.")]
LanguageOption = Annotated[str, typer.Option(help="Language to write in: zh or en.")]


@synthesize_app.command("queries", no_args_is_help=True)
def queries_command(
    documents: DocumentsSource,
    out: OutFolder,
    llm: LlmFile,
    per_document: Annotated[int, typer.Option(help="Number of queries per document.", min=1, max=20)] = 1,
    language: LanguageOption = "zh",
    form: Annotated[
        list[str] | None,
        typer.Option(
            help="Weight of a form (question, keywords or case) as FORM=WEIGHT; may be repeated; "
            "default: question=0.6, keywords=0.25, case=0.15."
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(help="Maximum number of documents, sampled at random.", min=1)
    ] = None,
    shortest: Annotated[int, typer.Option(help="Minimum number of characters of a document.", min=1)] = 20,
    longest: Annotated[
        int, typer.Option(help="Maximum number of characters of a document to send.", min=100)
    ] = 4000,
    instruction: Annotated[str, typer.Option(help="Instruction (task sentence) to put into every row.")] = "",
    source: SourceName = "synthetic-queries",
    against: AgainstTests = None,
    threshold: TestSimilarity = 0.6,
    seed: Seed = 42,
    column: ColumnOption = None,
    journal: AnswersJournal = None,
    dry_run: DryRun = False,
    already_anonymous: AlreadyAnonymous = False,
    retry_failed: RetryFailed = False,
    repair: RepairFlag = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write queries that given documents answer.

    The pairs of query and document are training data.

    The exit code is 1 if requests are left to send; answers are kept, and the same command resumes.
    """
    from medteb_mteb.curation import synthetic  # lazy: numpy

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
        print_cost(cost, as_json=as_json)
        return
    report = synthetic.synthesize_queries(
        documents,
        out,
        llm,
        settings,
        columns=columns,
        held_out=held_out_of_training(against, threshold),
        journal=journal,
        already_anonymous=already_anonymous,
        retry_failed=retry_failed,
        show_progress=not quiet,
    )
    _print_report(report, as_json=as_json)


@synthesize_app.command("tasks", no_args_is_help=True)
def tasks_command(
    out: OutFolder,
    llm: LlmFile,
    tasks: Annotated[int, typer.Option(help="Number of tasks for the LLM to brainstorm.", min=1)] = 20,
    pairs_per_task: Annotated[int, typer.Option(help="Number of examples per task.", min=1)] = 10,
    tasks_from: Annotated[
        Path | None, typer.Option(help="Text file of tasks, one per line, instead of a brainstorm.")
    ] = None,
    language: LanguageOption = "zh",
    source: SourceName = "synthetic-tasks",
    against: AgainstTests = None,
    threshold: TestSimilarity = 0.6,
    seed: Seed = 42,
    journal: AnswersJournal = None,
    dry_run: DryRun = False,
    retry_failed: RetryFailed = False,
    repair: RepairFlag = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Brainstorm retrieval tasks and write examples of each.

    An example is a query, a positive and a hard negative.

    The exit code is 1 if requests are left to send; answers are kept, and the same command resumes.
    """
    from medteb_mteb.curation import synthetic  # lazy: numpy

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
        print_cost(cost, as_json=as_json)
        return
    report = synthetic.synthesize_tasks(
        out,
        llm,
        settings,
        held_out=held_out_of_training(against, threshold),
        journal=journal,
        retry_failed=retry_failed,
        show_progress=not quiet,
    )
    _print_report(report, as_json=as_json)


def _print_report(report: SynthesisReport, *, as_json: bool) -> None:
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2) if as_json else _text(report))
    if not report.complete:
        typer.echo(f"medteb: stopped: {report.stopped}. Run the same command again to resume.", err=True)
        raise typer.Exit(1)


def _text(report: SynthesisReport) -> str:
    where = str(report.rows) if report.complete else "not complete"
    counts = ", ".join(f"{count} {name}" for name, count in report.details.items() if count)
    lines = [f"{report.kept} rows: {where}", f"  {counts}"]
    for name, by_reason in (("dropped", report.dropped), ("failed", report.failed)):
        if by_reason:
            reasons = ", ".join(f"{reason} {count}" for reason, count in by_reason.items())
            lines.append(f"  {name}: {sum(by_reason.values())} ({reasons})")
    if report.account.answers:
        paid = report.account
        lines.append(
            f"  {report.bought} new answers, {report.known} from the journal; paid over all runs: "
            f"{paid.answers} answers, {paid.tokens_in} tokens in, {paid.tokens_out} out, cost {paid.cost:.4g}"
        )
    return "\n".join([*lines, *report.notes])
