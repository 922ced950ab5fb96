"""Step `mar-small-gpu` of `benchmarks/gpu.py`: its recipe, made-up data if none are given, its figures."""

from __future__ import annotations

import json
import os
import time
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_steps import Context

#: Rows of the data that the recipe is made for.
PAIRS, TEXTS = 30_462, 84_221


def run(context: Context) -> None:
    """Train the recipe, and report its figures with every line that the training says."""
    from mar_st.runs.train import train

    recipe, made_up = recipe_and_data(context.work, context.data, tiny=context.tiny)
    folder = context.work / "mar-small-gpu"

    def say(line: str) -> None:
        print(line, flush=True)
        context.report(summary(recipe, folder, made_up=made_up))

    started = time.perf_counter()
    train(recipe, folder, say=say)
    seconds = time.perf_counter() - started
    context.report({**summary(recipe, folder, made_up=made_up), "seconds": seconds})


def recipe_and_data(work: Path, data: Path | None, *, tiny: bool) -> tuple[Any, bool]:
    """The recipe, and whether its data are made up; the process moves to the folder of the data."""
    from mar_st.recipes.load import load_recipe

    folder = data or write_data(work / "small-data", tiny=tiny)
    os.chdir(folder)
    recipe = load_recipe("mar-small-gpu")
    if tiny:
        from mar_st.recipes.schema import Recipe
        from mar_st.rehearsal.tiny import shrink

        content = shrink(recipe).model_dump()
        content["evaluation"] = recipe.evaluation.model_dump() if recipe.evaluation else None
        for stage in content["stages"]:
            stage |= {"max_steps": 4}
        recipe = Recipe.model_validate(content)
    return recipe, data is None


def write_data(folder: Path, *, tiny: bool) -> Path:
    """Files of the recipe's names and sizes, made of the packaged edition: speed is real, scores are not."""
    from mar_st.data import read_source
    from mar_st.recipes.schema import Data
    from mar_st.rehearsal.tiny import write_evaluation

    done = folder / "done"
    if done.is_file():
        return folder
    source = read_source(Data(name="rows", path="package:medteb_mteb/MedTEBRetrieval/train", prompt=""), 0)
    triples = [triple for triple in source.triples if triple.negatives]
    pairs, texts = (64, 64) if tiny else (PAIRS, TEXTS)
    repeated = list(islice(cycle(triples), pairs))
    rows = [
        # The number keeps repeated texts apart.
        {
            "query": f"{triple.query}{number}",
            "positives": [f"{triple.positives[0]}{number}"],
            "negatives": list(triple.negatives),
        }
        for number, triple in enumerate(repeated)
    ]
    queries = [{"text": f"{triple.query}{n}"} for n, triple in enumerate(islice(cycle(triples), texts))]
    plain = [{"query": row["query"], "positives": row["positives"]} for row in rows]
    for name, content in (
        ("data/pairs.jsonl", plain),
        ("mined/triples.jsonl", rows),
        ("data/unlabeled.jsonl", queries),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in content)
        path.write_text("".join(lines), encoding="utf-8")
    sizes = (5, 20) if tiny else (200, 2000)
    write_evaluation(folder / "eval" / "toyhom-retrieval", queries=sizes[0], documents=sizes[1])
    done.touch()
    return folder


def summary(recipe: Any, run: Path, *, made_up: bool) -> dict[str, Any]:
    """Speed and last scores of every stage that there are records of."""
    from mar_st.stages.monitor import evaluation_results, read_metrics

    stages = {}
    for number, stage in enumerate(recipe.stages, 1):
        records = read_metrics(run / f"{number:02d}-{stage.name}" / "metrics.jsonl")
        steps = [row for row in records if "texts_per_second" in row]
        if not steps:
            continue
        # The first record holds compilation and warm-up.
        kept = steps[1:] or steps
        scores = evaluation_results(records)
        ends = [row for row in records if "train_runtime" in row]
        stages[stage.name] = {
            "steps": steps[-1]["step"],
            "seconds": ends[-1]["train_runtime"] if ends else None,
            **{
                name: _mean(kept, name)
                for name in ("texts_per_second", "tokens_per_second", "mfu", "padding")
            },
            "memory_gb": max(row["peak_memory_gb"] for row in steps),
            "loss": steps[-1].get("loss"),
            "scores": scores[-1][1] if scores else None,
        }
    return {"made_up": made_up, "stages": stages}


def _mean(rows: list[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return sum(values) / len(values) if values else None
