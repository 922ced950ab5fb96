"""`mar index tune` measures how much effort a query encoder needs on an index."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from mar_st.commands.options import AsJson, Encoder, IndexFolder, QueryEncoders, Threads

Queries = Annotated[str, typer.Option(help="JSONL of queries (_id, text), of which at most 1,000 are used.")]
Recall = Annotated[
    float | None,
    typer.Option(
        help="Recall@10 to reach, relative to exact search; default: as in the build.", min=0.01, max=1
    ),
]


def index_tune(
    index: IndexFolder,
    queries: Queries,
    encoder: Encoder = None,
    query: QueryEncoders = None,
    recall: Recall = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Tune the search settings of an index for a query encoder.

    Measures the settings (ef, nprobe, rescore) that reach the recall, and stores them in the index.
    """
    from mar_st.index import tune_effort  # lazy: numpy
    from mar_st.index.runs import read_queries  # lazy: tqdm

    texts = list(read_queries(queries).values())
    names: list[str | None] = [*query] if query else [None]
    efforts: list[dict[str, Any]] = []
    for name in names:
        efforts.append(tune_effort(index, texts, encoder=encoder, query=name, target=recall, threads=threads))
        if not as_json:
            typer.echo(_line(efforts[-1], encoder))
    if as_json:
        typer.echo(json.dumps(efforts, ensure_ascii=False, indent=2))


def _line(effort: dict[str, Any], encoder: str | None) -> str:
    now, before = (
        " ".join(f"{name}={value}" for name, value in settings.items())
        for settings in (effort["search"], effort["before"]["search"])
    )
    missed = "" if effort["reached"] else f", below the target of {effort['target']}"
    return (
        f"{effort['query'] or encoder}: {now} finds {effort['recall@10']:.4f} of the exact results of "
        f"{effort['queries']} queries{missed}; the index's own {before} finds "
        f"{effort['before']['recall@10']:.4f}"
    )
