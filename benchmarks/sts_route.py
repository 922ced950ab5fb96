"""Compare the routes for the two texts of an STS pair by Pearson correlation on a *train* split.

python benchmarks/sts_route.py [MODEL] [PAIRS]
"""

from __future__ import annotations

import json
import sys

import numpy as np

from mar_st import MAR
from mar_st.data import locate


def pearson(left: np.ndarray, right: np.ndarray, scores: np.ndarray) -> float:
    """Pearson correlation of the cosine of row pairs with the scores."""
    cosine = (left * right).sum(1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))
    return float(np.corrcoef(cosine, scores)[0, 1])


def main() -> None:
    """Print both correlations."""
    model = MAR.from_pretrained(sys.argv[1] if len(sys.argv) > 1 else "mar-mini")
    pairs = locate(sys.argv[2] if len(sys.argv) > 2 else "package:medteb_mteb/MedTEBSTS/train.jsonl")
    rows = [json.loads(line) for line in pairs.read_text(encoding="utf-8").splitlines()]
    first = [row["sentence1"] for row in rows]
    second = [row["sentence2"] for row in rows]
    scores = np.array([row["score"] for row in rows])
    queries = model.encode_queries(first, task="sts", batch_size=128)
    print(f"{len(rows)} pairs of {pairs}")
    for name, other in (
        ("query-query", model.encode_queries(second, task="sts", batch_size=128)),
        ("query-document", model.encode_corpus(second, batch_size=128)),
    ):
        print(f"{name:16} Pearson {pearson(queries, other, scores):.4f}")


if __name__ == "__main__":
    main()
