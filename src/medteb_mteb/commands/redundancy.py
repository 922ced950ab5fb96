"""`medteb redundancy` and `medteb leakage`: is a task new, and has a model seen it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from medteb_mteb.commands.options import AsJson, RankedFolder


def redundancy(
    scores: Annotated[
        Path, typer.Argument(help="Scores: CSV with a column 'model' and one per task, or mteb results.")
    ],
    left: Annotated[str, typer.Option(help="Tasks of one group, comma-separated.")],
    right: Annotated[str, typer.Option(help="Tasks of the other group, comma-separated.")],
    as_json: AsJson = False,
) -> None:
    """Measure how similarly two groups of tasks rank models."""
    from medteb_mteb.curation.texts.redundancy import correlation, read_scores  # lazy: numpy

    groups = [[task.strip() for task in group.split(",") if task.strip()] for group in (left, right)]
    report = correlation(read_scores(scores), *groups)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2))
        return
    typer.echo(f"{len(report.models)} models with scores on all, {len(report.left_out)} left out")
    typer.echo(f"Spearman {report.spearman:.3f} [{report.low:.3f}, {report.high:.3f}], p = {report.p:.3f}")
    typer.echo(f"Kendall {report.kendall:.3f}")


def leakage(
    folder: RankedFolder,
    training: Annotated[
        list[str],
        typer.Option(
            "--training",
            help="Training set (triples, pairs or alignment set): file or folder; may be repeated.",
        ),
    ],
    threshold: Annotated[
        float, typer.Option(help="Similarity from which two texts count as near-duplicates.")
    ] = 0.6,
    as_json: AsJson = False,
) -> None:
    """Look for test queries and documents in training sets.

    Only documents that are relevant to a test query are searched for.
    """
    from medteb_mteb.curation.labels.audit import read_benchmark  # lazy: numpy
    from medteb_mteb.curation.texts.redundancy import leakage as run  # lazy: numpy
    from medteb_mteb.curation.training import training_texts  # lazy: numpy

    benchmark = read_benchmark(folder)
    relevant = {name for row in benchmark.qrels.values() for name in row}
    report = run(
        [query.text for query in benchmark.queries.values()],
        [document.full for name, document in benchmark.documents.items() if name in relevant],
        [text for path in training for text in training_texts(path)],
        threshold=threshold,
    )
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2))
        return
    typer.echo(
        f"queries: {report.queries:,}, of which equal {report.equal:,}, near-duplicates {report.near:,}"
    )
    typer.echo(f"relevant documents: {report.documents:,}, of which equal {report.equal_documents:,}")
    for query, other in report.examples:
        typer.echo(f"  {query!r} ~ {other!r}")
