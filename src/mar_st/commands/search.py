"""`mar search`: search an index."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mar_st.commands.options import AsJson, Encoder, IndexAddress, QueryEncoder, Threads

if TYPE_CHECKING:
    from mar_st.index import Hit, Hits, Searcher

Query = Annotated[str | None, typer.Argument(help="Text of the query; alternatively give --queries.")]
K = Annotated[
    int | None,
    typer.Option("-k", help="Number of documents per query; default: 10, or 100 with --queries.", min=1),
]
Where = Annotated[
    str | None, typer.Option(help="Metadata filter, e.g. 'department=心内科|儿科,date>=2024', or JSON.")
]
Hybrid = Annotated[bool, typer.Option("--hybrid", help="Fuse the results with BM25.")]
Rerank = Annotated[str | None, typer.Option(help="Cross-encoder that reranks the best documents.")]
RerankTop = Annotated[int | None, typer.Option(help="Number of documents to rerank; default: 50.", min=1)]
Queries = Annotated[str | None, typer.Option(help="JSONL of queries (_id, text) to search for.")]
Out = Annotated[
    Path | None, typer.Option(help="File to write the run of --queries to: *.trec (TREC) or *.json.")
]
Qrels = Annotated[
    Path | None, typer.Option(help="Qrels of --queries to score the run with, e.g. qrels/test.tsv.")
]


def search(
    index: IndexAddress,
    query: Query = None,
    encoder: Encoder = None,
    query_encoder: QueryEncoder = None,
    k: K = None,
    where: Where = None,
    hybrid: Hybrid = False,
    rerank: Rerank = None,
    rerank_top: RerankTop = None,
    queries: Queries = None,
    out: Out = None,
    qrels: Qrels = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Search an index for one query or for a file of queries.

    The run of a file of queries can be written (--out) and scored (--qrels).
    """
    if (query is None) == (queries is None):
        raise typer.BadParameter("give a query or --queries FILE.")
    if query is not None and not query.strip():
        raise typer.BadParameter("the query is blank; give a text.")
    if queries is None and (out is not None or qrels is not None):
        raise typer.BadParameter("--out and --qrels require --queries.")
    if rerank_top is not None and rerank is None:
        raise typer.BadParameter("--rerank-top requires --rerank MODEL.")
    if out is not None:
        from mar_st.data.trec import check_run_name  # lazy: transformers

        check_run_name(out)  # before anything is searched
    from mar_st.index import Searcher  # lazy: numpy
    from mar_st.index.base import Index as AnyIndex  # lazy: numpy

    opened = AnyIndex.open(index)
    searcher = Searcher.open(
        opened,
        encoder if encoder is not None else opened.model_source(),
        query=query_encoder,
        reranker=rerank,
        threads=threads,
    )
    if queries is not None:
        _run(
            searcher, queries, k or 100, where, out, qrels, hybrid=hybrid, rerank=rerank_top, as_json=as_json
        )
        return
    hits = searcher.search([query or ""], k or 10, where=where, hybrid=hybrid, rerank=rerank_top)[0]
    _print(hits, searcher, as_json=as_json)


def _run(
    searcher: Searcher,
    queries: str,
    k: int,
    where: str | None,
    out: Path | None,
    qrels: Path | None,
    *,
    hybrid: bool,
    rerank: int | None,
    as_json: bool,
) -> None:

    from mar_st.data.trec import write_run  # lazy: transformers
    from mar_st.index.runs import evaluate, read_qrels, read_queries, search_all  # lazy: tqdm

    texts = read_queries(queries)
    grades = None if qrels is None else read_qrels(qrels)
    run = search_all(
        searcher, texts, k, where=where, hybrid=hybrid, rerank=rerank, progress=sys.stderr.isatty()
    )
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_run(out, run, tag="mar")
    scores = {} if grades is None else evaluate(run, grades, k)
    if as_json:
        typer.echo(json.dumps({"queries": len(texts), "k": k, **scores}))
        return
    typer.echo(f"{len(texts)} queries, {k} documents each" + (f", written to {out}" if out else ""))
    for name, value in scores.items():
        typer.echo(f"{name:12} {value:.0f}" if name == "queries" else f"{name:12} {value:.5f}")


def _print(hits: Hits, searcher: Searcher, *, as_json: bool) -> None:

    match = searcher.match(hits)
    if as_json:
        answer = {"match": match, "hits": [hit.to_json() for hit in hits]}
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        return
    if not hits:
        typer.echo("nothing was found")
    elif match == "doubtful" and searcher.calibrated is not None:
        typer.echo(
            f"no good match: the nearest document scores {hits.nearest:.4f}, below the calibrated "
            f"{searcher.calibrated['threshold']:.4f}"
        )
    for hit in hits:
        _show(hit)


def _show(hit: Hit) -> None:
    """Print a hit without characters that control a terminal: documents may come from anyone."""
    legs = ", ".join(f"{name} {leg.rank}" for name, leg in hit.legs.items())
    _echo(f"{hit.rank:3}  {hit.score:.4f}  {hit.id}  {hit.title}  [{legs}]")
    if hit.metadata:
        _echo("     " + ", ".join(f"{name}={value}" for name, value in hit.metadata.items()))
    if hit.snippet:
        _echo(f"     {hit.snippet}")


def _echo(line: str) -> None:
    from mar_st.files import printable  # lazy: numpy

    typer.echo(printable(line))
