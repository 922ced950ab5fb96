"""`medteb judge`: have several LLMs grade pools of documents."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.options import (
    AlreadyAnonymous,
    AsJson,
    DocumentsSource,
    DryRun,
    OutFolder,
    QueriesSource,
    Quiet,
    RetryFailed,
)
from medteb_mteb.commands.repairing import RepairFlag, repair_judgements

if TYPE_CHECKING:
    from medteb_mteb.curation.judge import Estimate, JudgeReport

__all__ = ["judge"]


def judge(
    queries: QueriesSource,
    documents: DocumentsSource,
    pools: Annotated[
        Path, typer.Argument(help="Pools: JSONL of query-id and corpus-ids, or a folder of it.")
    ],
    out: OutFolder,
    judges: Annotated[Path, typer.Option(help="YAML file of the judges.")],
    gold: Annotated[
        Path | None,
        typer.Option(
            help="Documents known to answer a query, in the form of POOLS: positive control passages."
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            help="Journal of paid judgements; default: $MEDTEB_JOURNAL or judgements.sqlite beside OUT."
        ),
    ] = None,
    dry_run: DryRun = False,
    already_anonymous: AlreadyAnonymous = False,
    retry_failed: RetryFailed = False,
    repair: RepairFlag = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Have LLM judges grade every pair of the pools.

    A judgement in the journal is never paid for again.

    The exit code is 1 if pairs are left to grade or a judge failed on too many pairs. Answers are kept, and
    the same command resumes.
    """
    from medteb_mteb.curation import judge as judging  # lazy: numpy

    if repair:
        repair_judgements(out, journal)
    if dry_run:
        estimates = judging.estimate(
            queries, documents, pools, judges, journal=journal, out=out, gold=gold, retry_failed=retry_failed
        )
        typer.echo(
            json.dumps([asdict(e) for e in estimates], ensure_ascii=False, indent=2)
            if as_json
            else estimate_text(estimates)
        )
        return
    report = judging.judge(
        queries,
        documents,
        pools,
        out,
        judges,
        journal=journal,
        gold=gold,
        already_anonymous=already_anonymous,
        retry_failed=retry_failed,
        show_progress=not quiet,
    )
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2) if as_json else report_text(report))
    for result in report.judges:
        if result.stopped:
            missing = result.outcome.left
            more = (
                f" {missing} of {report.pairs} pairs are left. Run the same command again to resume."
                if missing
                else ""
            )
            typer.echo(f"medteb: {result.name} stopped: {result.stopped}.{more}", err=True)
    if not report.complete:
        raise typer.Exit(1)


def estimate_text(estimates: list[Estimate]) -> str:
    """Return the estimate as text: a line per judge, and the sum.

    Args:
        estimates: The estimate of each judge.
    """
    lines = [
        f"{e.judge}: {e.judgements} judgements, {e.known} in the journal, {e.failed} failed before; "
        f"{e.requests} requests, about {e.tokens_in} tokens in, {e.tokens_out} out, cost {e.cost:.2f}"
        + (f" (spent {e.spent:.2f} of {e.budget:g})" if e.budget is not None else "")
        + (f"; {e.suspicious} passages look like instructions and are judged alone" if e.suspicious else "")
        + (f"; at most {e.checks} more to check positives" if e.checks else "")
        for e in estimates
    ]
    requests, cost = sum(e.requests for e in estimates), sum(e.cost for e in estimates)
    return "\n".join([*lines, f"in all: {requests} requests, cost {cost:.2f}; nothing was sent"])


def report_text(report: JudgeReport) -> str:
    """Return the report as text, some lines per judge.

    Args:
        report: Result of `medteb_mteb.curation.judge.judge`.
    """
    lines = []
    for result in report.judges:
        grades = "  ".join(f"{grade} {count}" for grade, count in result.outcome.grades.items())
        lines.append(f"{result.name}: {grades}  ({result.bought} new, {result.known} from the journal)")
        if result.account.answers:
            a = result.account
            estimated = f", {a.estimated} of them estimated" if a.estimated else ""
            lines.append(
                f"  paid over all runs: {a.answers} answers{estimated}, {a.tokens_in} tokens in, "
                f"{a.tokens_out} out, cost {a.cost:.4g}; control passages: {a.controls}, failed "
                f"{a.controls_failed}"
            )
        if result.outcome.failed:
            failed = result.outcome.failed
            reasons = ", ".join(f"{reason} {count}" for reason, count in failed.most_common())
            lines.append(f"  failed: {failed.total()} ({reasons}); --retry-failed sends them again")
    lines.extend(report.notes)
    where = report.folder / "judgements.jsonl" if report.complete else "not complete"
    return "\n".join([*lines, f"{report.pairs} pairs, {where}"])
