"""Measures how much of its teacher a lookup encoder keeps, and how long a query takes.

    python benchmarks/lookup.py --model models/multilingual-e5-small-zh --texts data/train/pairs.jsonl \\
        --task data/eval/huatuo-retrieval --out runs/lookup

The teacher encodes the queries of `--texts` (JSONL with `query` or `text`), and queries and documents of the
task, once; vectors are kept in `--out`. An encoder is fitted for each `--scales`, and its nDCG@10 is given in
relation to the teacher's. Then the last one is timed, one thread, texts cut to `--length` characters, one by
one: the module in sentence-transformers, and its exported form in numpy. One JSON line per row goes to
`OUT/results.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from loss_task import LossTask
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router

from mar_st import MAR
from mar_st.evaluation.tasks import Task, load_task
from mar_st.export import ExportSettings, export
from mar_st.lookup.fit import fit_lookup
from mar_st.online.encoders import load_query_encoder

if TYPE_CHECKING:
    from collections.abc import Callable


def kept(path: Path, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Vectors of a file, computed where it is not there."""
    if not path.is_file():
        np.save(path, compute())
    vectors: np.ndarray = np.load(path).astype(np.float32)
    return vectors


def as_mar(encoder: Any) -> MAR:
    """A MAR whose query route is the encoder."""
    return MAR(modules=[Router({"query": [encoder, Normalize()]}, default_route="query")], device="cpu")


def main() -> None:
    """Measure, and write rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0, 2.0, 3.0])
    parser.add_argument("--length", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in options.texts.read_text(encoding="utf-8").splitlines()]
    texts = list(dict.fromkeys(row.get("query") or row["text"] for row in rows))
    task = load_task(Task(name="task", path=options.task, metric="ndcg@10"))
    teacher = SentenceTransformer(options.model, device="cpu").float()
    query_texts = list(task.queries.values())
    vectors = kept(options.out / "texts.npy", lambda: teacher.encode_query(texts, show_progress_bar=True))
    queries = kept(options.out / "queries.npy", lambda: teacher.encode_query(query_texts))
    documents = kept(
        options.out / "documents.npy",
        lambda: teacher.encode_document(list(task.corpus.values()), show_progress_bar=True),
    )
    judge = LossTask(task, documents)
    best = judge.ndcg(queries)
    results: list[dict[str, Any]] = [{"row": "teacher", "ndcg@10": best}]
    for scale in options.scales:
        started = time.perf_counter()
        encoder = fit_lookup(texts, vectors, scale=scale)
        spent = time.perf_counter() - started
        model = as_mar(encoder).eval()
        score = judge.ndcg(model.encode_queries(query_texts))
        results.append(
            {"row": f"scale {scale:g}", "texts": len(texts), "features": len(encoder.features),
             "fit_s": spent, "ndcg@10": score, "retention": score / best}
        )  # fmt: skip
    model.save_pretrained(str(options.out / "model"), create_model_card=False)
    short = [text[: options.length] for text in query_texts if len(text) >= options.length][:300]
    timed: dict[str, Any] = {"sentence-transformers": lambda some: model.encode_queries(some)}
    folder = options.out / "int8"
    shutil.rmtree(folder, ignore_errors=True)
    listing = export(ExportSettings(model=str(options.out / "model"), out=folder))
    exported = load_query_encoder(folder)
    timed["numpy int8"] = exported.encode
    score = judge.ndcg(exported.encode(query_texts))
    results.append({"row": "numpy int8", "retention": score / best, **listing.report})
    for name, call in timed.items():
        seconds = []
        for text in short * 3:
            started = time.perf_counter()
            call([text])
            seconds.append(time.perf_counter() - started)
        results.append({"row": f"{name}, one by one", "p50_us": 1e6 * float(np.median(seconds)),
                      "p90_us": 1e6 * float(np.quantile(seconds, 0.9))})  # fmt: skip
    with (options.out / "results.jsonl").open("w", encoding="utf-8") as stream:
        for row in results:
            line = json.dumps({key: round(value, 4) if isinstance(value, float) else value
                               for key, value in row.items()})  # fmt: skip
            stream.write(f"{line}\n")
            print(line)


if __name__ == "__main__":
    main()
