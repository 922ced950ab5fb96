"""`medteb round-trip`: keep the pairs whose document a retriever finds for their query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.against import held_out_of_training
from medteb_mteb.commands.options import (
    AgainstTests,
    AsJson,
    BatchSize,
    OutFolder,
    Quiet,
    SampleSeed,
    TestSimilarity,
    VectorStore,
)

if TYPE_CHECKING:
    from medteb_mteb.curation.training import RoundTripReport

__all__ = ["round_trip"]


def round_trip(
    pairs: Annotated[Path, typer.Argument(help="Pairs or triples, in any form that 'mar train' reads.")],
    out: OutFolder,
    retriever: Annotated[
        str,
        typer.Option(
            "-r", "--retriever", help="Retriever: bm25, bm25:jieba, mar-mini, a folder or a Hub name."
        ),
    ],
    documents: Annotated[
        str | None, typer.Option(help="Corpus to search; default: the documents of the pairs.")
    ] = None,
    depth: Annotated[int, typer.Option(help="Keep a pair if its document is ranked within this depth.")] = 3,
    negatives: Annotated[int, typer.Option(help="Number of hard negatives to add to a row.")] = 0,
    top: Annotated[
        int, typer.Option(help="Number of top ranks to search; negatives are sampled from them.")
    ] = 100,
    against: AgainstTests = None,
    threshold: TestSimilarity = 0.6,
    seed: SampleSeed = 42,
    store: VectorStore = None,
    batch_size: BatchSize = 64,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Keep pairs whose document is retrieved for its query."""
    from mar_st.teachers.store import store_root  # lazy: torch
    from medteb_mteb.curation.pooling.pool import open_retriever  # lazy: yaml
    from medteb_mteb.curation.training import RoundTrip  # lazy: numpy
    from medteb_mteb.curation.training import round_trip as run  # lazy: numpy

    how = RoundTrip(depth=depth, negatives=negatives, top=top, seed=seed)
    report = run(
        pairs,
        out,
        open_retriever(
            retriever, store=store or store_root(out), batch_size=batch_size, show_progress=not quiet
        ),
        how,
        documents=documents,
        held_out=held_out_of_training(against, threshold),
        show_progress=not quiet,
    )
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2) if as_json else report_text(report))


def report_text(report: RoundTripReport) -> str:
    """Return the report as some lines of text.

    Args:
        report: Result of `medteb_mteb.curation.training.round_trip`.
    """
    share = report.kept / report.read if report.read else 0.0
    lines = [f"{report.kept:,} of {report.read:,} pairs kept ({share:.1%}), {report.rows['kept']:,} rows"]
    lines += [f"  dropped: {number:,} {reason}" for reason, number in report.dropped.items()]
    ranks = ", ".join(f"{rank}: {number:,}" for rank, number in report.ranks.items())
    lines.append(f"found up to rank {ranks}; in {report.rows['documents']:,} documents")
    if report.rows["negatives"]:
        without = report.rows["without a negative"]
        lines.append(f"{report.rows['negatives']:,} negatives; {without:,} rows without any")
    return "\n".join([*lines, str(report.folder)])
