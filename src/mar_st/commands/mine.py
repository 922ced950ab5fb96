"""`mar mine`: hard negatives for training pairs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mar_st.commands.options import AsJson, Dtype, EncodeBatchSize, Seed, Store

FORMS = "auto, triples, scored-pairs, labelled-pairs, nli"


def mine(
    data: Annotated[
        str,
        typer.Argument(help="Training data: file, folder, or package: or hub: name, as 'path' in a recipe."),
    ],
    out: Annotated[Path, typer.Argument(help="Folder to write triples.jsonl and manifest.json to.")],
    model: Annotated[
        list[str],
        typer.Option(help="Retriever: bm25, bm25:jieba, a model folder or a Hub name; may be repeated."),
    ],
    num_negatives: Annotated[
        int, typer.Option(help="Number of negatives per query; 0 only filters the pairs.", min=0)
    ] = 7,
    top: Annotated[
        int | None,
        typer.Option(
            help="Number of candidates per query and retriever; default: 100, or --range-max.", min=1
        ),
    ] = None,
    range_min: Annotated[int, typer.Option(help="Number of best-ranked candidates to skip.", min=0)] = 0,
    range_max: Annotated[
        int | None, typer.Option(help="Last rank to sample from; default: all candidates.", min=1)
    ] = None,
    absolute_margin: Annotated[
        float | None,
        typer.Option(
            help="Minimum distance of a negative's score below the lowest positive's; default: none."
        ),
    ] = None,
    relative_margin: Annotated[
        float | None,
        typer.Option(
            help="The same distance as a share of the positive's score (NV-Retriever: 0.05); default: none."
        ),
    ] = None,
    max_score: Annotated[
        float | None, typer.Option(help="Maximum score of a negative; default: none.")
    ] = None,
    min_score: Annotated[
        float | None, typer.Option(help="Minimum score of a negative; default: none.")
    ] = None,
    near_duplicate: Annotated[
        float,
        typer.Option(
            help="Drop candidates with at least this 3-gram similarity to a positive; 0: keep them.", max=1
        ),
    ] = 0.8,
    sampling_strategy: Annotated[
        Literal["random", "top"], typer.Option(help="How to sample from the remaining candidates.")
    ] = "random",
    no_fill: Annotated[
        bool,
        typer.Option("--no-fill", help="Do not fill up with random documents if too few candidates remain."),
    ] = False,
    no_keep_labelled: Annotated[
        bool,
        typer.Option(
            "--no-keep-labelled",
            help="Treat the data's own negatives as candidates; default: keep them before the mined ones.",
        ),
    ] = False,
    consistent: Annotated[
        int | None,
        typer.Option(
            help="Keep only pairs whose positive is in the top K of the first retriever; default: keep all.",
            min=1,
        ),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="Model whose scores the margins apply to, or cross:NAME (a cross-encoder); default: the "
            "first --model."
        ),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Corpus to search; default: the documents of the data.")
    ] = None,
    form: Annotated[str, typer.Option(help=f"Form of the data: {FORMS}.")] = "auto",
    column: Annotated[
        list[str] | None,
        typer.Option(help="Rename a column, as OURS=THEIRS, e.g. query=title; may be repeated."),
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="Use only rows with COLUMN=VALUE; may be repeated.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Maximum number of triples, sampled at random; default: all.", min=1)
    ] = None,
    symmetric: Annotated[
        bool,
        typer.Option("--symmetric", help="Treat the pairs as paraphrases: search among the queries too."),
    ] = False,
    prompt: Annotated[
        str | None, typer.Option(help="Prompt that dense models put before queries; default: their own.")
    ] = None,
    store: Store = None,
    batch_size: EncodeBatchSize = 64,
    dtype: Dtype = "float32",
    seed: Seed = 42,
    as_json: AsJson = False,
) -> None:
    """Mine hard negatives for training pairs.

    An interrupted run resumes where it stopped.
    """
    from pydantic import ValidationError  # lazy: pydantic

    from mar_st.mining import MiningError, Rules, mine_to  # lazy: torch
    from mar_st.recipes.schema import Data  # lazy: pydantic

    rules = Rules(
        num_negatives=num_negatives,
        top=top or max(Rules.top, range_max or 0),
        range_min=range_min,
        range_max=range_max,
        absolute_margin=absolute_margin,
        relative_margin=relative_margin,
        max_score=max_score,
        min_score=min_score,
        near_duplicate=near_duplicate or None,
        sampling_strategy=sampling_strategy,
        fill=not no_fill,
        keep_labelled=not no_keep_labelled,
        consistent=consistent,
        seed=seed,
    )
    if form == "texts":
        raise MiningError(f"Mining needs pairs, and texts have no positives; the forms are {FORMS}.")
    values: dict[str, list[str]] = {}
    for name, value in _pairs(where, "--where COLUMN=VALUE"):
        values.setdefault(name, []).append(value)
    content: dict[str, Any] = {
        "name": "data", "path": data, "form": form, "limit": limit, "symmetric": symmetric,
        "columns": dict(_pairs(column, "--column OURS=THEIRS")), "where": values,
        "prompt": "", "instruction": "{instruction}",
    }  # fmt: skip
    try:
        entry = Data.model_validate(content)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, item['loc'])) or 'the options'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()
        )
        raise MiningError("; ".join(problems)) from error
    manifest = mine_to(
        entry,
        out,
        model,
        rules=rules,
        teacher=teacher,
        corpus=corpus,
        store=store,
        prompt=prompt,
        dtype=dtype,
        batch_size=batch_size,
        say=lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True),
    )
    typer.echo(json.dumps(manifest, ensure_ascii=False, indent=2) if as_json else _as_text(manifest))


def _pairs(items: list[str] | None, usage: str) -> list[tuple[str, str]]:
    from mar_st.mining import MiningError  # lazy: torch

    pairs = []
    for item in items or []:
        name, separator, value = item.partition("=")
        if not separator:
            raise MiningError(f"expected {usage}, got {item!r}.")
        pairs.append((name, value))
    return pairs


def _as_text(manifest: dict[str, Any]) -> str:
    lines = []
    for part in ("counts", "candidates"):
        lines += [f"{number:>10,}  {name}" for name, number in manifest[part].items() if number]
        lines.append("")
    lines += [f"{value:>10.4f}  {name}" for name, value in manifest["scores"].items()]
    return "\n".join(lines).rstrip()
