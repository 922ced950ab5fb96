"""`medteb diversify`: drop texts that have too many near neighbours among earlier texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from medteb_mteb.commands.columns import ColumnOption, parse_columns
from medteb_mteb.commands.options import AsJson, OutFolder, Quiet, TextsSource, VectorStore
from medteb_mteb.commands.sources import SourceOption, parse_sources

if TYPE_CHECKING:
    from medteb_mteb.curation.diversify import TextVectors

#: The encoder that the published filter uses.
MODEL = "Alibaba-NLP/gte-multilingual-base"


def diversify(
    source: TextsSource,
    out: OutFolder,
    kind: Annotated[
        Literal["queries", "documents"],
        typer.Option(help="Kind of texts; sets the default threshold and the model's prompt."),
    ],
    model: Annotated[
        str, typer.Option("-m", "--model", help="Model that encodes the texts: folder or Hub name.")
    ] = MODEL,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Existing vectors: an .npy file in the order of IN, or a folder with ids."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Similarity above which a neighbour counts; default: 0.85 for queries, 0.78 for documents."
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Number of nearest neighbours to compare with.", min=1)] = 5,
    tolerated: Annotated[
        int, typer.Option(help="Number of neighbours above the threshold that a kept text may have.", min=0)
    ] = 1,
    seed_size: Annotated[
        int, typer.Option(help="Number of texts at the start that are kept without a check.", min=0)
    ] = 5000,
    index: Annotated[
        Literal["exact", "ivf"],
        typer.Option(
            help="Search for neighbours; ivf is approximate, and its error is measured and printed."
        ),
    ] = "exact",
    lists: Annotated[int, typer.Option(help="Number of lists of ivf; 0: by the number of texts.", min=0)] = 0,
    probes: Annotated[int, typer.Option(help="Number of lists that ivf searches.", min=1)] = 8,
    sample: Annotated[
        int, typer.Option(help="Number of decisions of ivf to check by exact search.", min=1)
    ] = 1000,
    store: VectorStore = None,
    batch_size: Annotated[int, typer.Option(help="Number of texts per forward pass.", min=1)] = 64,
    column: ColumnOption = None,
    text_source: SourceOption = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Drop texts with too many near neighbours.

    A text is dropped if more than --tolerated of the texts kept before it are more similar than --threshold;
    the first --seed-size texts are always kept. Dropped texts are written to a separate file, with their
    nearest neighbour. An interrupted run resumes.
    """
    from medteb_mteb.curation.diversify import (  # lazy: torch
        THRESHOLDS,
        Encoded,
        PrecomputedVectors,
        Search,
        SelectionRule,
        run_diversify,
    )
    from medteb_mteb.curation.files.read import read_texts  # lazy: yaml

    rule = SelectionRule(THRESHOLDS[kind] if threshold is None else threshold, k, tolerated, seed_size)
    search = Search(index, lists, probes)
    columns = parse_columns(column)
    text_vectors: TextVectors
    if vectors is not None:
        text_vectors = PrecomputedVectors(vectors, [text.id for text in read_texts(source, columns)])
    else:
        from mar_st.teachers.store import store_root  # lazy: torch

        text_vectors = Encoded(
            model, kind, store or store_root(out), batch_size=batch_size, show_progress=not quiet
        )
    report, measured = run_diversify(
        source,
        out,
        text_vectors,
        rule,
        search,
        columns=columns,
        sources=parse_sources(text_source),
        sample=sample,
        show_progress=not quiet,
    )
    if as_json:
        content: dict[str, Any] = {
            "folder": str(report.folder),
            "read": report.read,
            "kept": report.kept,
            "dropped": report.dropped,
            "resumed": report.resumed,
        }
        if measured is not None:
            content["disagreement"] = measured.to_json()
        typer.echo(json.dumps(content, ensure_ascii=False, indent=2))
        return
    share = 1 - report.kept / report.read
    typer.echo(f"{report.kept:,} of {report.read:,} texts kept, {share:.1%} dropped: {report.folder}")
    if measured is not None:
        low, high = measured.interval
        typer.echo(
            f"ivf decided otherwise than an exact search in {measured.share:.2%} [{low:.2%}, {high:.2%}] of "
            f"{measured.sampled:,} sampled decisions"
        )
