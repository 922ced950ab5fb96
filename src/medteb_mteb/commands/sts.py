"""`medteb sts`: pairs of questions, from a dictionary of synonyms and queries that an LLM rewrites."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.against import held_out
from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.options import (
    AgainstTraining,
    AlreadyAnonymous,
    AnswersJournal,
    AsJson,
    DataFolder,
    DryRun,
    EditionName,
    EditionVersion,
    KeepAway,
    License,
    LlmFile,
    QueriesSource,
    QuerySimilarity,
    Quiet,
    RetryFailed,
    Seed,
    TestSize,
)
from medteb_mteb.commands.repairing import RepairFlag, repair_answers
from medteb_mteb.commands.sources import SourceOption, parse_sources

if TYPE_CHECKING:
    from medteb_mteb.curation.sts import StsEstimate, StsReport

__all__ = ["sts"]


def sts(
    dictionary: Annotated[
        Path,
        typer.Argument(help="Dictionary of synonyms: TSV, CSV or JSONL with columns origin and replace."),
    ],
    queries: QueriesSource,
    out: DataFolder,
    llm: LlmFile,
    name: EditionName,
    licence: License,
    version: EditionVersion = "1.0.0",
    test: TestSize = 0.2,
    probabilities: Annotated[
        str,
        typer.Option(
            help="Probabilities that a test query is paired with positive, negative-1 or negative-2."
        ),
    ] = "1/3,1/3,1/3",
    tolerance: Annotated[
        float, typer.Option(help="Share of the query's length by which the positive's length may differ.")
    ] = 0.3,
    per_entry: Annotated[
        int | None, typer.Option(help="Maximum number of queries per dictionary entry; default: all.", min=1)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Maximum number of queries to rewrite; default: all.", min=1)
    ] = None,
    training: AgainstTraining = None,
    keep_away: KeepAway = None,
    text_source: SourceOption = None,
    threshold: QuerySimilarity = 0.6,
    seed: Seed = 42,
    journal: AnswersJournal = None,
    dry_run: DryRun = False,
    already_anonymous: AlreadyAnonymous = False,
    retry_failed: RetryFailed = False,
    repair: RepairFlag = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make an STS edition by having an LLM rewrite queries.

    The LLM replaces a term by its synonym; training rows are written too.

    The exit code is 1 if requests are left to send; answers are kept, and the same command resumes.
    """
    from medteb_mteb.curation import sts as building  # lazy: numpy
    from medteb_mteb.curation.training import training_queries  # lazy: numpy

    if repair:
        repair_answers(out, journal)
    shares = parse_probabilities(probabilities)
    how = building.StsSettings(
        name, licence, version, test, shares, tolerance, per_entry, limit, threshold, seed
    )
    if dry_run:
        estimate = building.estimate(
            dictionary, queries, out, llm, how, journal=journal, retry_failed=retry_failed
        )
        _show(estimate, estimate_text(estimate), as_json=as_json)
        return
    report = building.sts(
        dictionary,
        queries,
        out,
        llm,
        how,
        journal=journal,
        already_anonymous=already_anonymous,
        retry_failed=retry_failed,
        training_queries=[query for path in training or () for query in training_queries(path)],
        held_out=held_out(keep_away, threshold),
        sources=parse_sources(text_source),
        show_progress=not quiet,
    )
    _show(report, report_text(report), as_json=as_json)
    if not report.complete:
        typer.echo(f"medteb: stopped: {report.stopped}. Run the same command again to resume.", err=True)
        raise typer.Exit(1)


def _show(report: StsEstimate | StsReport, text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2) if as_json else text)


def parse_probabilities(text: str) -> tuple[float, float, float]:
    """Return three comma-separated numbers, each a decimal or a fraction such as 1/3.

    Raises:
        UserError: The text is something else.
    """
    try:
        first, second, third = (float(Fraction(part.strip())) for part in text.split(","))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise UserError(
            f"--probabilities takes three comma-separated numbers, such as 0.5,0.25,0.25; got {text!r}"
        ) from None
    return first, second, third


def estimate_text(estimate: StsEstimate) -> str:
    """Return the estimate as text."""
    cost = estimate.cost
    dropped = ", ".join(f"{reason} {count:,}" for reason, count in estimate.dropped.items()) or "none"
    limit = f" (spent {cost.spent:.2f} of {cost.budget:g})" if cost.budget is not None else ""
    return (
        f"{estimate.queries:,} queries, {estimate.entries:,} dictionary entries; dropped: {dropped}\n"
        f"{cost.prompts:,} rewrites of three questions, {cost.known:,} in the journal, "
        f"{cost.failed:,} failed before; {cost.requests:,} requests, about {cost.tokens_in:,} tokens in, "
        f"{cost.tokens_out:,} out, cost "
        f"{cost.cost:.2f}{limit}; nothing was sent"
    )


def report_text(report: StsReport) -> str:
    """Return the report as text."""
    lines = [f"answers: {report.bought:,} new, {report.known:,} from the journal; {report.journal}"]
    for kind, outcomes in report.rewrites.items():
        counts = ", ".join(f"{reason} {count:,}" for reason, count in outcomes.items())
        lines.append(f"{kind}: {counts}")
    if report.edition is None:
        return "\n".join([*lines, "nothing is written yet"])
    counts = ", ".join(f"{number:,} {what}" for what, number in report.edition.counts.items())
    lines.append(f"{report.edition.task}: {counts}; revision {report.edition.digest[:12]}")
    lines.append(f"training triples: {report.triples:,}; {report.folder / 'train' / 'sts.jsonl'}")
    lines += [f"  {what}: {number:,}" for what, number in report.statistics.items()]
    lines.append(
        f"score models on it: MEDTEB_DATA={report.folder} mteb run -t {report.edition.task} -m MODEL"
    )
    return "\n".join(lines)
