"""Recall of an index for real queries, generated queries and documents as queries, by search effort.

    python benchmarks/made_queries.py --model MODEL --texts TEXTS.jsonl --queries QUERIES.jsonl

`mar index build` chooses the search effort by recall. Without queries it generates some
(`mar_st.index.tune.made_queries`). This benchmark shows how close their recall is to that of real queries,
for a graph and for binary codes. Texts and queries are lines with `text`, `query` or `_id` and `text`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from mar_st.encode import Engine
from mar_st.index.registry import kind_of
from mar_st.index.source import RowsSource
from mar_st.index.tune import MAX_RECALL_QUERIES, exact_results, made_queries, recall


def texts_of(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return list(dict.fromkeys(row.get("text") or row["query"] for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    args = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(args.model, device="cpu")
    documents, queries = texts_of(args.texts), texts_of(args.queries)
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(queries), min(MAX_RECALL_QUERIES, len(queries)), replace=False)
    vectors = Engine(model, "document").encode(documents, show_progress=True)
    source = RowsSource([(vectors, np.arange(len(vectors)))])
    vectors_by_kind = {
        "real": Engine(model, "query").encode([queries[row] for row in chosen]),
        "made": made_queries(source),
        "documents": vectors[rng.choice(len(vectors), MAX_RECALL_QUERIES, replace=False)],
    }
    trials = {name: exact_results(source, query_vectors) for name, query_vectors in vectors_by_kind.items()}
    print(f"{len(documents)} texts, {len(chosen)} queries, {vectors.shape[1]} dimensions")
    for kind, params in (("hnsw", {"M": 16}), ("binary", {})):
        with tempfile.TemporaryDirectory() as name:
            built = kind_of(kind).settings(params, vectors.shape[1], len(vectors))
            kind_of(kind).construct(Path(name), source, built, progress=True)
            searchable = kind_of(kind)(Path(name))
            for setting in searchable.LADDER:
                recalls = {name: recall(searchable, one, setting) for name, one in trials.items()}
                print(kind, setting, *(f"{name} {value:.3f}" for name, value in recalls.items()), flush=True)


if __name__ == "__main__":
    main()
