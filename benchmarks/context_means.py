"""Measure how close an encoder cut to its last layers is to the whole one before it is trained.

    python benchmarks/context_means.py --model teacher --texts queries.jsonl --task data/eval/huatuo-retrieval

The encoder keeps its last `--layers`. Its token embeddings are its own, or mean hidden states over that many
`--texts` (see `mar_st.model.context_means`): with fitted position embeddings, with zero position embeddings,
or with vectors of the `--pairs` most frequent token pairs. For each, the nDCG@10 of the task is printed
in relation to that of the whole encoder on the same documents, with the mean cosine between the query vectors
of both. One JSON line per row goes to `--out`.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from mar_st.data import read_texts
from mar_st.evaluation.scored_set import Task
from mar_st.evaluation.tasks import load_task
from mar_st.export.judge import LossTask
from mar_st.model.context_means import HiddenMeans
from mar_st.model.layers import keep_layers


def cut_model(model: SentenceTransformer, layers: int, means: HiddenMeans | None, *, positions: bool) -> Any:
    """Return a copy of a model with its last layers."""
    smaller = copy.deepcopy(model)
    depth = int(smaller[0].model.config.num_hidden_layers)
    keep_layers([smaller[0]], range(depth - layers, depth))
    if means is not None:
        smaller[0] = means.write(smaller[0], depth - layers)
    table = getattr(getattr(smaller[0].model, "embeddings", None), "position_embeddings", None)
    if means is not None and not positions and table is not None:
        torch.nn.init.zeros_(table.weight)
    return smaller


def main() -> None:
    """Measure, and print rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--numbers", type=int, nargs="+", default=[2048, 8192, 32768])
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("context_means.jsonl"))
    options = parser.parse_args()
    model = SentenceTransformer(options.model, device="cpu").float()
    model.max_seq_length = options.max_length
    task = load_task(Task(name="task", path=options.task, metric="ndcg@10"))
    queries = list(task.queries.values())
    whole = model.encode_query(queries)
    documents = model.encode_document(list(task.corpus.values()), show_progress_bar=True)
    judge = LossTask("task", task.digest, list(task.corpus), documents, dict(task.queries), task.qrels, True)
    full = judge.ndcg(whole)
    texts = [(model.prompts.get("query") or "") + text for text in read_texts(options.texts)]
    depth = int(model[0].model.config.num_hidden_layers)

    def row(layers: int, number: int, means: HiddenMeans | None, *, positions: bool = True) -> None:
        vectors = cut_model(model, layers, means, positions=positions).encode_query(queries)
        figures = {
            "layers": layers,
            "texts": number,
            "positions": positions,
            "pairs": 0 if means is None or means.pairs is None else len(means.pairs),
            "retention": round(judge.ndcg(vectors) / full, 4),
            "cosine": round(float((vectors * whole).sum(axis=1).mean()), 4),
        }
        print(json.dumps(figures), flush=True)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**figures, "model": options.model, "task": options.task}) + "\n")

    for layers in options.layers:
        row(layers, 0, None)
    for number in options.numbers:
        means = HiddenMeans.of(model[0], [depth - layers for layers in options.layers], texts[:number])
        for layers in options.layers:
            row(layers, number, means)
            if number == max(options.numbers):
                row(layers, number, means, positions=False)
        if options.pairs:
            firsts = [depth - layers for layers in options.layers]
            means = HiddenMeans.of(model[0], firsts, texts[:number], pairs=options.pairs)
            for layers in options.layers:
                row(layers, number, means)


if __name__ == "__main__":
    main()
