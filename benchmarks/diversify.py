"""Diversification beside the loop that defines it: one search of FAISS's IndexFlatIP per vector.

    python benchmarks/diversify.py --n 100000      # the loop on the last 5,000, extrapolated
    python benchmarks/diversify.py --n 1000000 --no-loop

The vectors are random, in groups. Prints seconds of both, their ratio, and whether the decisions agree.
"""

from __future__ import annotations

import argparse
import time

import faiss
import numpy as np

from medteb_mteb.curation.diversify import DynamicIndexFilter

SEED_SIZE, LOOPED = 5000, 5000


def drawn(n: int, dim: int) -> np.ndarray:
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((n // 2, dim), dtype=np.float32)
    vectors = np.empty((n, dim), dtype=np.float32)
    for start in range(0, n, 50_000):
        part = vectors[start : start + 50_000]
        part[:] = draw.standard_normal(part.shape, dtype=np.float32) * draw.uniform(0.2, 1.5, (len(part), 1))
        part += centres[draw.integers(0, len(centres), len(part))]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def loop(vectors: np.ndarray, threshold: float, kept: np.ndarray) -> tuple[float, int]:
    """Seconds per search at the end, where the index is largest, and number of differing decisions."""
    index = faiss.IndexFlatIP(vectors.shape[1])
    start = len(vectors) - LOOPED
    index.add(vectors[:start][kept[:start]])
    begin, different = time.perf_counter(), 0
    for row in range(start, len(vectors)):
        near, _ = index.search(vectors[row : row + 1], 5)
        keep = bool((near[0] > np.float32(threshold)).sum() <= 1)
        different += keep != kept[row]
        if kept[row]:
            index.add(vectors[row : row + 1])
    return (time.perf_counter() - begin) / LOOPED, different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--threshold", type=float, default=0.78)
    parser.add_argument("--no-loop", action="store_true")
    arguments = parser.parse_args()
    vectors = drawn(arguments.n, arguments.dim)
    begin = time.perf_counter()
    kept = DynamicIndexFilter(arguments.threshold, seed_size=SEED_SIZE).feed(vectors).kept
    seconds = time.perf_counter() - begin
    print(f"{arguments.n:,} x {arguments.dim}: {seconds:.1f} s, {1 - kept.mean():.1%} dropped")
    if not arguments.no_loop:
        last, different = loop(vectors, arguments.threshold, kept)
        total = last * (arguments.n - SEED_SIZE) / 2  # a search grows with the index, from none to the last
        print(
            f"loop: {total:.0f} s (extrapolated), {total / seconds:.0f} x; {different} of {LOOPED:,} differ"
        )


if __name__ == "__main__":
    main()
