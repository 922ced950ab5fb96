"""Size and building time (processor seconds) of a site of 100 models x 60 tasks with random scores.

    python -m benchmarks.site OUT [--models 100] [--tasks 60] [--queries 300]

Writes results in mteb's layout to OUT/results and the site to OUT/site.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from mar_st.files import write_json, write_text
from medteb_mteb.compare.read import read_results
from medteb_mteb.site import write_site


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--queries", type=int, default=300)
    options = parser.parse_args()
    results = options.out / "results"
    if not results.exists():
        write_results(results, options.models, options.tasks, options.queries)
    times = [time.process_time()]
    read = read_results([results])
    times.append(time.process_time())
    outcome = write_site(read, options.out / "site")
    times.append(time.process_time())
    index = (options.out / "site" / "index.html").stat().st_size
    vendor = sum(path.stat().st_size for path in (options.out / "site" / "vendor").iterdir())
    seconds = {"read_s": round(times[1] - times[0], 1), "write_s": round(times[2] - times[1], 1)}
    print(json.dumps({**outcome.to_json(), "index_bytes": index, "vendor_bytes": vendor, **seconds}))


def write_results(out: Path, models: int, tasks: int, queries: int) -> None:
    """Write random results: a level per model and task, and noise per query that models share in part."""
    rng = np.random.default_rng(0)
    difficulty = rng.uniform(0.3, 0.8, tasks)
    common = rng.normal(0, 0.2, (tasks, queries))
    for model in range(models):
        name, revision = f"lab-{model % 7}/model-{model:03}", f"{model:040x}"
        folder = out / "results" / name.replace("/", "__") / revision
        write_json(
            folder / "model_meta.json",
            {
                "name": name,
                "revision": revision,
                "n_parameters": int(10 ** rng.uniform(6, 10)),
                "embed_dim": int(rng.choice([128, 256, 384, 768, 1024, 2560])),
                "license": str(rng.choice(["apache-2.0", "mit", "cc-by-nc-4.0"])),
                "training_datasets": [f"Task{task:02}" for task in range(model % 5)],
            },
        )
        for task in range(tasks):
            level = difficulty[task] + 0.002 * (models / 2 - model) + rng.normal(0, 0.02)
            values = np.clip(level + common[task] + rng.normal(0, 0.15, queries), 0, 1).round(4)
            write_task(out, folder, f"Task{task:02}", values)


def write_task(out: Path, folder: Path, task: str, values: np.ndarray) -> None:
    score = round(float(values.mean()), 5)
    revision = f"{task}-1"
    result = {"main_score": score, "ndcg_at_10": score, "hf_subset": "default", "languages": ["cmn-Hans"]}
    write_json(
        folder / f"{task}.json",
        {
            "dataset_revision": revision,
            "task_name": task,
            "mteb_version": "2.26.24",
            "evaluation_time": 1.0,
            "scores": {"test": [result]},
        },
    )
    items = {
        "metric": "ndcg_at_10",
        "dataset_revision": revision,
        "ids": [f"q{number:04}" for number in range(len(values))],
        "kind": "mean",
        "values": values.tolist(),
    }
    path = out / "items" / folder.relative_to(out / "results") / f"{task}.json"
    write_text(path, json.dumps(items))


if __name__ == "__main__":
    main()
