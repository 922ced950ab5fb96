"""`mar index match` calibrates the score from which a document counts as a good match."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from mar_st.commands.options import AsJson, Encoder, IndexAddress, QueryEncoders, Threads

Queries = Annotated[
    str | None,
    typer.Option(
        help="JSONL of queries (_id, text) that the index can answer; default: titles of its documents."
    ),
]
Others = Annotated[
    str | None,
    typer.Option(help="JSONL of queries of another domain, to measure with; default: everyday questions."),
]
FalseReject = Annotated[
    float,
    typer.Option(help="Share of queries with an answer that may be called doubtful.", min=0.001, max=0.5),
]


def index_match(
    index: IndexAddress,
    queries: Queries = None,
    others: Others = None,
    encoder: Encoder = None,
    query: QueryEncoders = None,
    false_reject: FalseReject = 0.05,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Calibrate the score below which a search has no good match.

    Chooses the score below which the nearest document is a doubtful match for a query encoder, measures how
    many queries with and without an answer fall below it, and stores both in the index.
    """
    from mar_st.index import calibrate_match  # lazy: numpy
    from mar_st.index.runs import read_queries  # lazy: tqdm

    texts = None if queries is None else list(read_queries(queries).values())
    foreign = None if others is None else list(read_queries(others).values())
    names: list[str | None] = [*query] if query else [None]
    calibrations: list[dict[str, Any]] = []
    for name in names:
        calibrations.append(
            calibrate_match(
                index, texts, others=foreign, encoder=encoder, query=name, false_reject=false_reject,
                threads=threads,
            )
        )  # fmt: skip
        if not as_json:
            typer.echo(_lines(calibrations[-1], encoder))
    if as_json:
        typer.echo(json.dumps(calibrations, ensure_ascii=False, indent=2))


def _lines(match: dict[str, Any], encoder: str | None) -> str:
    shares = {f"{match['source']} with an answer": match["rejected"], **match["detected"]}
    lines = [
        f"{match['query'] or encoder or 'the encoder'}: doubtful below {match['threshold']:.4f}, chosen on "
        f"{match['chosen_on']} {match['source']} for {100 * match['false_reject']:g} % false rejects"
    ]
    for name, share in shares.items():
        low, high = (100 * end for end in share["interval"])
        lines.append(
            f"  {name + ':':24} {100 * share['share']:5.1f} % of {share['queries']} doubtful "
            f"({low:.1f} to {high:.1f})"
        )
    return "\n".join(lines)
