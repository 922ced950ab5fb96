"""`medteb pool`: candidates of several retrievers for each query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medteb_mteb.commands.options import (
    AsJson,
    BatchSize,
    DocumentsSource,
    QueriesSource,
    Quiet,
    VectorStore,
)

if TYPE_CHECKING:
    from mar_st.mining.retrievers import Retriever


def pool(
    queries: QueriesSource,
    documents: DocumentsSource,
    out: Annotated[Path, typer.Argument(help="Folder to write pools.jsonl to.")],
    retriever: Annotated[
        list[str],
        typer.Option(
            "-r",
            "--retriever",
            help="Retriever: bm25, bm25:jieba, mar-mini, a folder, a Hub name, or a run "
            "([NAME=]FILE.trec); may be repeated.",
        ),
    ],
    size: Annotated[int, typer.Option(help="Maximum number of documents in a pool.")] = 500,
    depth: Annotated[int, typer.Option(help="Number of documents taken from each retriever.")] = 500,
    merge: Annotated[
        str, typer.Option(help="How to merge rankings: rrf (reciprocal rank fusion) or union.")
    ] = "rrf",
    store: VectorStore = None,
    batch_size: BatchSize = 64,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Search with several retrievers and merge their results.

    The pools are written as one row per query. An existing run, in TREC's format or the JSON of `mar search`,
    can take the place of a retriever.
    """
    from mar_st.data.trec import is_run  # lazy: transformers
    from mar_st.teachers.store import store_root  # lazy: torch
    from medteb_mteb.curation.files.folder import read_json  # lazy: yaml
    from medteb_mteb.curation.files.read import MANIFEST, read_texts  # lazy: yaml
    from medteb_mteb.curation.pooling.pool import Pooling, open_retriever  # lazy: yaml
    from medteb_mteb.curation.pooling.pool import pool as run  # lazy: yaml

    how = Pooling(size=size, depth=depth, merge=merge)  # type: ignore[arg-type]
    vectors = store or store_root(out)
    query_texts, corpus = list(read_texts(queries)), list(read_texts(documents))
    ids = ([text.id for text in query_texts], [text.id for text in corpus])

    def opened(spec: str) -> Retriever:
        name, equals, file = spec.partition("=")
        source = file if equals and is_run(file) else None
        return open_retriever(
            name if source else spec,
            source=source,
            store=vectors,
            batch_size=batch_size,
            show_progress=not quiet,
            ids=ids,
        )

    path = run(
        query_texts,
        corpus,
        [opened(name) for name in retriever],
        out,
        how,
        show_progress=not quiet,
        say=lambda line: None if as_json or quiet else typer.echo(line),
    )
    manifest = read_json(out / MANIFEST)
    if as_json:
        typer.echo(json.dumps(manifest, ensure_ascii=False, indent=2))
        return
    typer.echo(f"{manifest['pairs']:,} pairs of {manifest['queries']:,} queries in {path}")
    for name, number in manifest["found by one alone"].items():
        typer.echo(f"  {name}: {number:,} found by no other retriever")
