"""`medteb assemble`: editions and training triples from labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from medteb_mteb.commands.against import held_out
from medteb_mteb.commands.options import (
    AgainstTraining,
    AsJson,
    DataFolder,
    DocumentsSource,
    EditionName,
    EditionVersion,
    KeepAway,
    License,
    QueriesSource,
    QuerySimilarity,
    TestSize,
)
from medteb_mteb.commands.sources import SourceOption, parse_sources


def assemble(
    labels: Annotated[
        Path, typer.Argument(help="File labels.jsonl written by 'medteb consensus', or its folder.")
    ],
    queries: QueriesSource,
    documents: DocumentsSource,
    out: DataFolder,
    name: EditionName,
    licence: License,
    version: EditionVersion = "1.0.0",
    test: TestSize = 0.2,
    corpus: Annotated[
        str, typer.Option(help="Documents of the corpus: undisputed, labelled or all.")
    ] = "undisputed",
    list_size: Annotated[int, typer.Option(help="Maximum number of candidates in a reranking list.")] = 100,
    list_positives: Annotated[
        int, typer.Option(help="Maximum number of positives in a reranking list.")
    ] = 10,
    training: AgainstTraining = None,
    keep_away: KeepAway = None,
    text_source: SourceOption = None,
    small: Annotated[
        bool,
        typer.Option("--small", help="Accept a test much smaller than --test asks for, or under 30 queries."),
    ] = False,
    leaks: Annotated[
        str, typer.Option(help="Test queries found in a training set of --against: drop, keep or fail.")
    ] = "drop",
    threshold: QuerySimilarity = 0.6,
    seed: Annotated[int, typer.Option(help="Seed of the split and the reranking lists.")] = 42,
    as_json: AsJson = False,
) -> None:
    """Assemble test editions and training triples from labels.

    Writes a retrieval edition, a reranking edition, and training triples of the remaining queries.
    """
    from medteb_mteb.curation.edition.assemble import Assembly  # lazy: numpy
    from medteb_mteb.curation.edition.assemble import assemble as run  # lazy: numpy
    from medteb_mteb.curation.edition.describe import gathered  # lazy: pydantic
    from medteb_mteb.curation.files.read import read_texts  # lazy: yaml
    from medteb_mteb.curation.labels.grades import read_labels  # lazy: start-up
    from medteb_mteb.curation.training import training_queries  # lazy: numpy

    how = Assembly(
        name=name,
        licence=licence,
        version=version,
        test=test,
        corpus=corpus,  # type: ignore[arg-type]
        list_size=list_size,
        list_positives=list_positives,
        leaks=leaks,  # type: ignore[arg-type]
        threshold=threshold,
        seed=seed,
        small=small,
    )
    built = run(
        read_labels(labels),
        {text.id: text for text in read_texts(queries)},
        {text.id: text for text in read_texts(documents)},
        out,
        how,
        training_queries=[query for path in training or () for query in training_queries(path)],
        held_out=held_out(keep_away, threshold),
        provenance=gathered([queries, documents], parse_sources(text_source), labels),
    )
    if as_json:
        content = {
            "editions": {
                task: {"digest": edition.digest, "counts": edition.counts}
                for task, edition in built.editions.items()
            },
            "triples": built.triples,
            "statistics": built.statistics,
            "notes": built.notes,
        }
        typer.echo(json.dumps(content, ensure_ascii=False, indent=2))
        return
    for task, edition in built.editions.items():
        counts = ", ".join(f"{number:,} {what}" for what, number in edition.counts.items())
        typer.echo(f"{task}: {counts}; revision {edition.digest[:12]}")
    typer.echo(f"training triples: {built.triples:,}")
    for what, number in built.statistics.items():
        typer.echo(f"  {what}: {number:,}")
    for note in built.notes:
        typer.echo(note)
    typer.echo(f"score models on it: MEDTEB_DATA={out} mteb run -t {next(iter(built.editions))} -m MODEL")
