"""Accuracy against queries per second, after Figure 1 of the MAR paper, for encoders of the true shapes.

    python benchmarks/pareto.py --queries queries.jsonl
    python benchmarks/pareto.py --queries queries.jsonl --gpu
    python benchmarks/pareto.py --queries queries.jsonl --shapes 24M --limit 64    # a try

Queries per second are measured here, with random weights of each shape (speed does not depend on values):
through `SentenceTransformer.encode_query` (float32 on a CPU, bfloat16 on a GPU) and, on a CPU, through the
exported int8 encoder in all its forms. nDCG@10 is not: it is the column "Retr" of the published Table 3, and
of Table 4 for the symmetric 4B and 8B encoders. A MAR answers queries with its 305M encoder, at that
shape's speed. 4B and 8B, which are not exported, run in bfloat16 on a CPU, too; 8B takes 20 GB.

Each shape is measured in a process of its own. Shapes in `OUT/pareto.json` are not measured again; the figure
`OUT/pareto.png` shows all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from query import tokenizer_of
from query_sides import read_queries

_BERT = {"model_type": "bert", "vocab_size": 21128, "max_position_embeddings": 512}
_QWEN = {"model_type": "qwen3", "vocab_size": 151936, "num_key_value_heads": 8, "head_dim": 128,
         "max_position_embeddings": 40960, "tie_word_embeddings": True}  # fmt: skip


def _sizes(hidden: int, layers: int, heads: int, inner: int) -> dict[str, int]:
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": inner,
    }  # fmt: skip


#: Shapes that are measured in bfloat16, and not exported.
LARGE_SHAPES = ("4B", "8B")

#: Query encoders by their parameters.
SHAPES: dict[str, dict[str, Any]] = {
    "24M": _BERT | _sizes(512, 4, 8, 2048),
    "102M": _BERT | _sizes(768, 12, 12, 3072),
    "305M": {
        "model_type": "gte", "vocab_size": 250048, "max_position_embeddings": 8192, "type_vocab_size": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 160000.0},
    } | _sizes(768, 12, 12, 3072),
    "326M": _BERT | _sizes(1024, 24, 16, 4096),
    "568M": {"model_type": "xlm-roberta", "vocab_size": 250002, "max_position_embeddings": 8194,
             "type_vocab_size": 1} | _sizes(1024, 24, 16, 4096),
    "596M": _QWEN | _sizes(1024, 28, 16, 3072),
    "4B": _QWEN | _sizes(2560, 36, 32, 9728),
    "8B": _QWEN | _sizes(4096, 36, 32, 12288) | {"tie_word_embeddings": False},
}  # fmt: skip

#: Model, shape of its query encoder, published nDCG@10 (mean over the retrieval tasks), and the table.
MODELS = (
    ("bge-small-zh-v1.5", "24M", 44.33, 3),
    ("bge-base-zh-v1.5", "102M", 49.16, 3),
    ("gte-base-zh", "102M", 52.62, 3),
    ("stella-base-zh-v3-1792d", "102M", 53.31, 3),
    ("bge-large-zh-v1.5", "326M", 50.32, 3),
    ("Conan-embedding-v1", "326M", 52.75, 3),
    ("gte-large-zh", "326M", 52.93, 3),
    ("bge-m3", "568M", 51.35, 3),
    ("gte-multilingual-base", "305M", 53.37, 3),
    ("Qwen3-Embedding-0.6B", "596M", 54.42, 3),
    ("MAR-0.3B-4B", "305M", 55.91, 3),
    ("MAR-0.3B-8B", "305M", 56.75, 3),
    ("symmetric 4B", "4B", 56.85, 4),
    ("symmetric 8B", "8B", 57.79, 4),
)


def build(shape: str, texts: list[str], device: str) -> Any:
    """A sentence-transformers model of a shape, with random weights."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from transformers import AutoConfig

    from mar_st.model.encoders import load_encoder

    config = dict(SHAPES[shape])
    causal = config["model_type"] == "qwen3"
    tokenizer = tokenizer_of(texts, config["vocab_size"])
    config |= {"pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    role: Any = "document" if causal else "query"
    if device == "cuda" or shape in LARGE_SHAPES:
        torch.set_default_dtype(
            torch.bfloat16
        )  # not made in float32 first, which would take twice the memory
    modules = load_encoder((AutoConfig.for_model(**config), tokenizer), role)
    return SentenceTransformer(modules=[*modules, Normalize()], device=device).eval()


def per_second(call: Any, texts: list[str], seconds: float) -> float:
    """Queries per second of a call with all texts, after one call."""
    call(texts)
    count, started = 0, time.perf_counter()
    while not count or time.perf_counter() - started < seconds:
        call(texts)
        count += len(texts)
    return round(count / (time.perf_counter() - started), 2)


def measure(shape: str, options: argparse.Namespace) -> dict[str, Any]:
    """Speed of one shape."""
    import torch

    device = "cuda" if options.gpu else "cpu"
    if not options.gpu:
        torch.set_num_threads(options.threads)
    texts = read_queries(options.queries)[: options.limit]
    model = build(shape, texts, device)
    figures: dict[str, Any] = {
        "shape": shape,
        "parameters": sum(p.numel() for p in model.parameters()),
        "device": torch.cuda.get_device_name() if options.gpu else f"CPU, {options.threads} threads",
        "queries": len(texts),
        "tokens_mean": round(float(np.mean([len(model.tokenizer(t)["input_ids"]) for t in texts])), 1),
    }
    speeds = []
    for size in (32, 256) if options.gpu else (8, 32):
        encode = partial(model.encode_query, batch_size=size)
        speeds.append(per_second(encode, texts, options.seconds))
    figures["sentence_transformers_per_second"] = max(speeds)
    if options.gpu or shape in LARGE_SHAPES:
        return figures
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save(str(folder / "model"))
        del model, encode
        from mar_st.export import ExportSettings, export
        from mar_st.online import load_query_encoder

        listing = export(
            ExportSettings(model=str(folder / "model"), out=folder / "out", threads=options.threads)
        )
        for variant in listing.variants:
            encoder = load_query_encoder(folder / "out", backend=variant, threads=options.threads)
            figures[f"{variant}_per_second"] = per_second(encoder.encode, texts, options.seconds)
            figures[f"{variant}_p50_ms"] = listing.variants[variant].report["p50_ms"]
    return figures


def draw(measured: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw all that was measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    sides: dict[str, tuple[str, str, str]] = {
        "sentence_transformers_per_second": ("sentence-transformers", "none", "o")
    }
    exported = "exported_per_second"
    for entry in measured.values():
        speeds = [value for key, value in entry.items() if key.endswith("_per_second") and "-" in key]
        if speeds:
            entry[exported] = max(speeds)
            sides[exported] = ("mar export, the fastest int8 form", "tab:blue", "o")
    for key, (label, face, marker) in sides.items():
        points = [
            (measured[s][key], score, name, key == exported or exported not in measured[s])
            for name, s, score, _ in MODELS
            if key in measured.get(s, {})
        ]
        if not points:
            continue
        axes.scatter([point[0] for point in points], [point[1] for point in points], facecolor=face,
                     edgecolor="tab:blue", marker=marker, label=label)  # fmt: skip
        for x, y, name, named in points:
            if named:
                bold = "bold" if name.startswith("MAR") else "normal"
                axes.annotate(
                    name, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7, weight=bold
                )
    axes.set_xscale("log")
    axes.margins(x=0.2)
    devices = ", ".join(sorted({entry["device"] for entry in measured.values()}))
    axes.set_xlabel(f"queries per second, measured here with random weights of the shape ({devices})")
    axes.set_ylabel("nDCG@10, retrieval, as published (Tables 3 and 4)")
    axes.legend(loc="lower left")
    axes.grid(alpha=0.3)
    part = path.with_suffix(".part.png")
    figure.savefig(part, dpi=150)
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queries", required=True, help="JSONL of queries")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"))
    parser.add_argument("--shapes", help="with commas; default all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=512, help="queries")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--one", choices=SHAPES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    name = "pareto-gpu" if options.gpu else "pareto"
    listing = options.out / f"{name}.json"
    kept = json.loads(listing.read_text(encoding="utf-8"))["measured"] if listing.is_file() else {}
    for shape in options.shapes.split(",") if options.shapes else SHAPES:
        if shape not in kept:
            command = [sys.executable, __file__, "--one", shape, *sys.argv[1:]]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            kept[shape] = json.loads(done.stdout.strip().splitlines()[-1])
            print(json.dumps(kept[shape]), flush=True)
        rows = [
            {"model": model, "shape": size, "ndcg@10": score, "ndcg@10 source": f"published, Table {table}"}
            for model, size, score, table in MODELS
        ]
        content = {"measured": kept, "models": rows}
        part = listing.with_suffix(".part")
        part.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        part.replace(listing)
    draw(kept, options.out / f"{name}.png")


if __name__ == "__main__":
    main()
