"""`medteb triples`: training triples from pools, whose documents an LLM sorts into two lists."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.against import held_out_of_training
from medteb_mteb.commands.options import (
    AgainstTests,
    AlreadyAnonymous,
    AnswersJournal,
    AsJson,
    DocumentsSource,
    DryRun,
    LlmFile,
    OutFolder,
    QueriesSource,
    Quiet,
    RetryFailed,
    Seed,
    TestSimilarity,
)
from medteb_mteb.commands.repairing import RepairFlag, repair_answers

if TYPE_CHECKING:
    from medteb_mteb.curation.llm import Cost
    from medteb_mteb.curation.training import TriplesReport

__all__ = ["triples"]


def triples(
    queries: QueriesSource,
    documents: DocumentsSource,
    pools: Annotated[Path, typer.Argument(help="File pools.jsonl written by 'medteb pool', or its folder.")],
    out: OutFolder,
    llm: LlmFile,
    depth: Annotated[int, typer.Option(help="Number of top-ranked documents of a pool to judge.")] = 50,
    documents_per_prompt: Annotated[
        int, typer.Option("--documents", help="Maximum number of documents per prompt.")
    ] = 10,
    prompt_tokens: Annotated[int, typer.Option(help="Maximum number of tokens per prompt.")] = 16_000,
    control_rate: Annotated[
        float, typer.Option(help="Share of the prompts that include a control document.")
    ] = 1.0,
    negatives: Annotated[int, typer.Option(help="Maximum number of negatives per triple.")] = 15,
    choose: Annotated[
        str, typer.Option(help="Which negatives to keep if there are more: top or random.")
    ] = "top",
    against: AgainstTests = None,
    threshold: TestSimilarity = 0.6,
    seed: Seed = 42,
    journal: AnswersJournal = None,
    dry_run: DryRun = False,
    already_anonymous: AlreadyAnonymous = False,
    retry_failed: RetryFailed = False,
    repair: RepairFlag = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make training triples by having an LLM judge documents.

    The LLM says which documents of a query's pool answer it and which do not.

    The exit code is 1 if requests are left to send; answers are kept, and the same command resumes.
    """
    from medteb_mteb.curation import training  # lazy: numpy

    how = training.TwoLists(
        depth=depth,
        documents=documents_per_prompt,
        prompt_tokens=prompt_tokens,
        control_rate=control_rate,
        negatives=negatives,
        choose=choose,  # type: ignore[arg-type]
        seed=seed,
    )
    if repair:
        repair_answers(out, journal)
    held_out = held_out_of_training(against, threshold)
    if dry_run:
        cost = training.estimate_triples(
            queries,
            documents,
            pools,
            out,
            llm,
            how,
            held_out=held_out,
            journal=journal,
            retry_failed=retry_failed,
        )
        typer.echo(json.dumps(asdict(cost), ensure_ascii=False, indent=2) if as_json else cost_text(cost))
        return
    report = training.make_triples(
        queries,
        documents,
        pools,
        out,
        llm,
        how,
        held_out=held_out,
        journal=journal,
        already_anonymous=already_anonymous,
        retry_failed=retry_failed,
        show_progress=not quiet,
    )
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2) if as_json else report_text(report))
    if not report.complete:
        typer.echo(f"medteb: stopped: {report.stopped}. Run the same command again to resume.", err=True)
        raise typer.Exit(1)


def cost_text(cost: Cost) -> str:
    """Return the estimate as one line of text.

    Args:
        cost: Result of `medteb_mteb.curation.training.estimate_triples`.
    """
    of = f" of {cost.budget:g}" if cost.budget is not None else ""
    return (
        f"{cost.prompts} prompts, {cost.known} in the journal, {cost.failed} failed before; "
        f"{cost.requests} requests, about {cost.tokens_in} tokens in, {cost.tokens_out} out, cost "
        f"{cost.cost:.2f} (spent "
        f"{cost.spent:.2f}{of}); nothing was sent"
    )


def report_text(report: TriplesReport) -> str:
    """Return the report as some lines of text.

    Args:
        report: Result of `medteb_mteb.curation.training.make_triples`.
    """
    counts = report.counts
    lines = [
        f"{counts.get('queries', 0):,} queries: {counts.get('triples', 0):,} triples, "
        f"{counts.get('pairs', 0):,} pairs without a negative",
        f"{counts.get('positives', 0):,} positives, {counts.get('negatives', 0):,} negatives, "
        f"{counts.get('unlabelled', 0):,} documents that an answer left out",
        f"{counts.get('prompts', 0):,} prompts: {report.bought:,} new answers, "
        f"{report.known:,} from the journal",
    ]
    lines += [f"  dropped: {number:,} queries, {reason}" for reason, number in report.dropped.items()]
    if report.failed:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in report.failed.items())
        lines.append(f"  failed: {reasons}; --retry-failed sends them again")
    paid = report.account
    if paid.answers:
        lines.append(
            f"paid over all runs: {paid.answers:,} answers, {paid.tokens_in:,} tokens in, "
            f"{paid.tokens_out:,} out, cost {paid.cost:.4g}"
        )
    lines += report.notes
    return "\n".join([*lines, str(report.folder) if report.complete else "not complete"])
