"""`medteb build nano` and `medteb nano`: build, check and score Nano sets."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.options import AsJson, BatchSize, Quiet
from medteb_mteb.nano.measures import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["build_nano", "nano_app"]

nano_app = typer.Typer(
    help="Check Nano sets, and score saved rankings.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
#: Scores shown for a list.
_SHOWN_SCORES = (
    "ndcg_at_10",
    "hit_at_10",
    "recall_micro_at_100",
    "recall_macro_at_100",
    "mrr_at_10",
    "map_capped_at_100",
)


def build_nano(
    folder: Annotated[Path, typer.Argument(help="Retrieval folder: corpus, queries and qrels.")],
    out: Annotated[Path, typer.Argument(help="Folder of the Nano set; other splits in it stay.")],
    split: Annotated[str, typer.Option(help="Split of the folder's qrels.")] = "test",
    name: Annotated[
        str | None, typer.Option("--as", help="Name of the Nano split; default: the folder's.")
    ] = None,
    dense: Annotated[
        str | None,
        typer.Option(
            "--dense",
            metavar="MODEL",
            help="Dense model: mar-mini, a folder or a Hub name (published: microsoft/harrier-oss-v1-270m). "
            "Without one only BM25's list is built.",
        ),
    ] = None,
    prompt_name: Annotated[
        str | None,
        typer.Option(help="The model's stored prompt for queries (published: web_search_query)."),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(help="Tokenizer of BM25: jieba or regex; default: by language.")
    ] = None,
    queries: Annotated[int, typer.Option(help="Number of queries.", min=1)] = 200,
    documents: Annotated[int, typer.Option(help="Number of documents.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the safeguards.")] = 20260524,
    store: Annotated[Path | None, typer.Option(help="Folder that keeps vectors; default: none.")] = None,
    batch_size: BatchSize = 64,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Build a Nano split from a retrieval folder.

    Follows HAKARI-Bench's protocol: the first 200 queries with a positive; their positives, judged negatives
    and further documents up to 10,000; BM25's and the dense model's 500 best documents, and 100 candidates
    fused from both. Score models on the result with `medteb run --data OUT`.
    """
    from medteb_mteb.curation import nano as building  # lazy: numpy
    from medteb_mteb.curation.nano.build import open_dense  # lazy: numpy

    how = building.NanoSettings(queries=queries, documents=documents, seed=seed, tokens=tokens)  # type: ignore[arg-type]
    model = None
    if dense is not None:
        model = open_dense(
            dense, prompt_name=prompt_name, store=store, batch_size=batch_size, show_progress=not quiet
        )
    built = building.build_nano(
        folder,
        out,
        split=split,
        name=name,
        dense=model,
        settings=how,
        say=lambda line: None if as_json or quiet else typer.echo(line),
    )
    if as_json:
        typer.echo(json.dumps(built, ensure_ascii=False, indent=2))
        return
    typer.echo(
        f"{built['queries']} queries, {built['documents']:,} documents, "
        f"{built['positives']} positives in {out}"
    )
    for reason, number in built["left_out"].items():
        typer.echo(f"  left out: {number:,} {reason}")
    for text in _table(built["lists"]):
        typer.echo(text)
    if "safeguards" in built:
        typer.echo(f"{built['safeguards']} of {built['queries']} lists end with a safeguard")


@nano_app.command("check", no_args_is_help=True)
def nano_check(
    sets: Annotated[
        list[str],
        typer.Argument(help="Names of published sets, or folders; may be repeated.", metavar="SET..."),
    ],
    tolerance: Annotated[
        float, typer.Option(help="Difference of a score that still counts as equal.", min=0)
    ] = TOLERANCE,
    as_json: AsJson = False,
) -> None:
    """Compare Nano sets with the published figures.

    A published set is read from $MEDTEB_DATA if it is there, else from the Hub. A folder is compared if its
    name and splits are published ones, and otherwise only checked. The exit code is 1 if a figure differs.
    """
    from medteb_mteb.nano.compare import compare_set  # lazy: yaml

    rows = [row for one in sets for row in compare_set(one, tolerance)]
    if as_json:
        typer.echo(json.dumps([row.to_json() for row in rows], ensure_ascii=False, indent=2))
    else:
        for row in rows:
            typer.echo(row.to_text())
    if any(not row.agrees for row in rows):
        raise typer.Exit(1)


@nano_app.command("score", no_args_is_help=True)
def nano_score(
    places: Annotated[
        list[Path],
        typer.Argument(help="Saved rankings, or folders that hold some, such as results/rankings."),
    ],
    as_json: AsJson = False,
) -> None:
    """Score saved rankings again, without the model and the data."""
    from medteb_mteb.nano.rankings import SUFFIX, read_rankings  # lazy: numpy

    files = [
        file
        for place in places
        for file in (sorted(place.rglob(f"*{SUFFIX}")) if place.is_dir() else [place])
    ]
    if not files:
        raise UserError(
            f"no saved rankings (*{SUFFIX}) in {', '.join(map(str, places))}; `medteb run` writes them"
        )
    kept = [read_rankings(file) for file in files]
    if as_json:
        rows = [
            {
                "task": one.task,
                "model": one.model,
                "dataset_revision": one.dataset_revision,
                **asdict(one.scores()),
            }
            for one in kept
        ]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for text in _table({f"{one.model}  {one.task}": asdict(one.scores()) for one in kept}):
        typer.echo(text)


def _table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    width = max(map(len, rows))
    lines = [" ".join([" " * width, *(f"{name:>19}" for name in _SHOWN_SCORES)])]
    return lines + [
        " ".join([f"{label:{width}}", *(f"{scores[name]:19.4f}" for name in _SHOWN_SCORES)])
        for label, scores in rows.items()
    ]
