"""Writes results as `medteb run`, HAKARI-Bench and retrieval toolkits do."""

from __future__ import annotations

import json

import numpy as np


def write_result(root, model, task, values, *, ids=None, data="data-1", revision="r1", **facts):
    """Write a result of `medteb run`: `values` are scores per query, or a score alone."""
    place = f"{model.replace('/', '__')}/{revision}"
    score = float(np.mean(values))
    scores = {"main_score": score, "ndcg_at_10": score, "hf_subset": "default", "languages": ["zho-Hans"]}
    result = {
        "dataset_revision": data, "task_name": task, "mteb_version": "2.26.24", "scores": {"test": [scores]},
        "evaluation_time": None, "kg_co2_emissions": None,
    }  # fmt: skip
    write(root / f"results/{place}/{task}.json", result)
    write(root / f"results/{place}/model_meta.json", {"name": model, "revision": revision, **facts})
    if np.ndim(values):
        ids = ids or [f"q{number}" for number in range(len(values))]
        items = {"metric": "ndcg_at_10", "dataset_revision": data, "ids": ids, "kind": "mean"}
        write(root / f"items/{place}/{task}.json", {**items, "values": list(map(float, values))})
    return root


def write_hakari(path, model, task, run, qrels, score):
    """Write a result file of HAKARI-Bench; `run` lists documents by query, `qrels` the relevant ones."""
    rankings = [
        {"name": "dense", "ranking_kind": "all", "query_id": query, "corpus_ids": documents}
        for query, documents in run.items()
    ]
    relevant = [{"query_id": query, "relevant_corpus_ids": ids} for query, ids in qrels.items()]
    content = {
        "model": {"id": model, "source": {"revision": "abc"}},
        "target": {"dataset_id": "hakari-bench/NanoCMTEB", "task_name": task, "dataset_revision": "d1"},
        "evaluation": {"aggregate_metric": "ndcg@10", "aggregate_metric_value": score},
        "artifacts": {"top_rankings": {"schema_version": 2, "qrels": relevant, "rankings": rankings}},
    }
    return write(path, content)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
