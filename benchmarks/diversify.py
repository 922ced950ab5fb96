"""Speed of diversification: the exact filter and the approximate one against the one-by-one FAISS loop.

    python benchmarks/diversify.py --n 100000                 # the loop on its first 20,000, extrapolated
    python benchmarks/diversify.py --n 100000 --full-loop
    python benchmarks/diversify.py --growth 50000 100000 200000 400000 800000
    python benchmarks/diversify.py --n 1000000 --no-loop --threads 2

The vectors are made, not read: a common direction, 300 topics, and families of near-duplicates whose sizes
follow a power law, on a decaying spectrum, so that random pairs have a similarity of about .35 and 20 to 40 %
of the vectors are dropped. Every measurement runs in a process of its own; it reads the vectors from a mapped
file. Wall and processor time are both given, since only the latter means much on a machine that does other
work. The peak of memory counts pages of the mapped file, which the system could take back; `anonymous` is
what it could not (at the end of the run).

The loop's time for more vectors than it was run on: the time of a query is fitted as a + b * (vectors in the
index), and summed up over the index sizes that the exact run had. Its decisions about the first vectors are
those of a run over all, so they are compared even then.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TOPICS = 300
CHUNK = 20_000
#: Share of vectors that start a family of near-duplicates.
FAMILY_SHARE = 0.45
#: Range of the similarity of a vector to the first of its family.
FAMILY_SIMILARITY = (0.84, 0.999)


def make(path: Path, n: int, dim: int, seed: int = 0) -> Path:
    """Writes `(n, dim)` float32 of length 1, a chunk at a time; the first rows do not depend on n."""
    if path.is_file():
        return path
    part = path.with_suffix(".part")
    out = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=(n, dim))
    spectrum = (1 + np.arange(dim)) ** -0.35
    spectrum = (spectrum / np.sqrt((spectrum**2).sum())).astype(np.float32)
    shared = np.random.default_rng(seed)
    common, topics = (shared.standard_normal((m, dim), dtype=np.float32) * spectrum for m in (1, TOPICS))
    root = np.arange(n)
    for start in range(0, n, CHUNK):
        rng = np.random.default_rng([seed, start])
        m = CHUNK  # all of a chunk is drawn, so that a shorter file holds the same
        first, pick, topic = rng.random(m) < FAMILY_SHARE, rng.random(m), rng.integers(0, TOPICS, m)
        close = rng.uniform(*FAMILY_SIMILARITY, (m, 1)).astype(np.float32)
        own, noise = (rng.standard_normal((m, dim), dtype=np.float32) * spectrum for _ in range(2))
        vectors = 0.9 * common + 0.7 * topics[topic] + 0.9 * own
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        m = min(CHUNK, n - start)
        out[start : start + m] = vectors[:m]
        for row in range(start, start + m):
            if row and not first[row - start]:
                root[row] = root[int(pick[row - start] * row)]  # large families grow faster
        member = np.flatnonzero(root[start : start + m] != np.arange(start, start + m))
        centre = out[root[start + member]]
        near = close[member] * centre + np.sqrt(1 - close[member] ** 2) * noise[member]
        out[start + member] = near / np.linalg.norm(near, axis=1, keepdims=True)
    out.flush()
    part.replace(path)
    return path


def run_loop(vectors: np.ndarray, threshold: float, seed_size: int) -> dict:
    """The definition: one search of an exact index per vector."""
    import faiss

    from medteb_mteb.curation.diversify import unit

    vectors = unit(vectors)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors[:seed_size])
    kept = np.ones(len(vectors), dtype=bool)
    sizes, seconds = [], []
    limit = np.float32(threshold)
    for start in range(seed_size, len(vectors), 500):
        before, size = time.perf_counter(), index.ntotal
        for row in range(start, min(start + 500, len(vectors))):
            near, _ = index.search(vectors[row : row + 1], 5)
            kept[row] = (near[0] > limit).sum() <= 1
            if kept[row]:
                index.add(vectors[row : row + 1])
        queries = min(500, len(vectors) - start)
        sizes.append((size + index.ntotal) / 2)
        seconds.append((time.perf_counter() - before) / queries)
    slope, base = np.polyfit(sizes, seconds, 1) if len(sizes) > 1 else (0.0, seconds[0])
    return {"kept": kept, "slope": float(slope), "base": float(base)}


def measure(arguments: argparse.Namespace) -> None:
    """One measurement, in this process; the result goes to `--result`."""
    import torch

    from medteb_mteb.curation.diversify import Search, SelectionRule, diversify, measure_disagreement

    torch.set_num_threads(arguments.threads)
    rule = SelectionRule(arguments.threshold, seed_size=arguments.seed_size)
    vectors = np.load(arguments.vectors, mmap_mode="r")[: arguments.n]
    wall, cpu = time.perf_counter(), time.process_time()
    figures: dict = {}
    if arguments.method == "loop":
        figures = run_loop(vectors, rule.threshold, rule.seed_size)
        kept = figures.pop("kept")
    else:
        kind = "ivf" if arguments.method == "ivf" else "exact"
        search = Search(kind, lists=arguments.lists, probes=arguments.probes)
        dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(arguments.method)
        kept = diversify(
            vectors, threshold=rule.threshold, seed_size=rule.seed_size, search=search, dtype=dtype,
            show_progress=sys.stderr.isatty(),
        )  # fmt: skip
    figures |= {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    figures |= {
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "anonymous_gib": int(status["RssAnon"].split()[0]) / 2**20,
        "dropped": float(1 - kept.mean()),
    }
    if arguments.method == "ivf":
        before = time.perf_counter()
        figures["disagreement"] = measure_disagreement(vectors, kept, rule).to_json()
        figures["measuring"] = time.perf_counter() - before
    np.save(arguments.result + ".npy", kept)
    Path(arguments.result).write_text(json.dumps(figures), encoding="utf-8")


def child(arguments: argparse.Namespace, method: str, n: int, vectors: Path, folder: Path) -> dict:
    """Measure in a process of its own."""
    result = folder / f"{method}-{n}.json"
    options = [
        "--method", method, "--n", n, "--vectors", vectors, "--result", result,
        "--threads", arguments.threads, "--threshold", arguments.threshold,
        "--seed-size", arguments.seed_size, "--lists", arguments.lists, "--probes", arguments.probes,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    command = [sys.executable, __file__, *map(str, options)]
    subprocess.run(command, env=environment, check=True)
    return {**json.loads(result.read_text("utf-8")), "mask": np.load(f"{result}.npy")}


def show(name: str, n: int, figures: dict, note: str = "") -> None:
    peak = f"{figures['peak_gib']:5.1f} GiB peak ({figures['anonymous_gib']:.1f} anonymous)"
    print(
        f"{name:9} {n:9,}  {figures['wall']:9.1f} s wall {figures['cpu']:9.1f} s cpu  {peak}  "
        f"{figures['dropped']:.1%} dropped  {note}",
        flush=True,
    )


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    n = arguments.n
    vectors = make(folder / f"vectors-{n}-{arguments.dim}.npy", n, arguments.dim)
    results = {}
    for method in arguments.methods:
        results[method] = child(arguments, method, n, vectors, folder)
        show(method, n, results[method])
    mask = results[arguments.methods[0]]["mask"]
    if not arguments.no_loop:
        first = n if arguments.full_loop else min(n, arguments.loop)
        loop = child(arguments, "loop", first, vectors, folder)
        show("loop", first, loop)
        sizes = np.maximum(np.cumsum(mask) - mask, arguments.seed_size)[arguments.seed_size :]
        whole = loop["wall"] if first == n else float((loop["base"] + loop["slope"] * sizes).sum())
        if first < n:
            print(f"loop      {n:9,}  {whole:9.1f} s wall, extrapolated from {first:,}")
        for method, other in results.items():
            same = int((other["mask"][:first] != loop["mask"]).sum())
            print(f"{method:9} {whole / other['wall']:6.1f} x the loop, {same} of {first:,} decisions differ")
    for method, other in results.items():
        if method == "ivf":
            measured = other["disagreement"]
            low, high = measured["interval"]
            final = (other["mask"] != mask).mean()
            print(
                f"ivf       {measured['share']:.3%} [{low:.3%}, {high:.3%}] of {measured['sampled']:,} "
                f"decisions differ (checked in {other['measuring']:.1f} s); {final:.3%} of the final ones"
            )


def growth(arguments: argparse.Namespace, folder: Path) -> None:
    largest = max(arguments.growth)
    vectors = make(folder / f"vectors-{largest}-{arguments.dim}.npy", largest, arguments.dim)
    for method in arguments.methods:
        runs = [child(arguments, method, n, vectors, folder) for n in arguments.growth]
        for n, one in zip(arguments.growth, runs, strict=True):
            show(method, n, one)
        for clock in ("wall", "cpu"):
            times = np.log([one[clock] for one in runs])
            print(f"{method:9} {clock} grows as n^{np.polyfit(np.log(arguments.growth), times, 1)[0]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--threshold", type=float, default=0.85)
    parser.add_argument("--seed-size", type=int, default=5000)
    parser.add_argument("--loop", type=int, default=20_000, help="vectors that the loop is run on")
    parser.add_argument("--full-loop", action="store_true")
    parser.add_argument("--no-loop", action="store_true")
    parser.add_argument(
        "--methods", nargs="+", default=["exact", "ivf"], help="exact, float32, bfloat16, ivf"
    )
    parser.add_argument("--growth", type=int, nargs="+")
    parser.add_argument("--lists", type=int, default=0)
    parser.add_argument("--probes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the vectors are kept; default a temporary folder")
    parser.add_argument("--method", help=argparse.SUPPRESS)
    parser.add_argument("--vectors", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.method:
        measure(arguments)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        (growth if arguments.growth else compare)(arguments, folder)


if __name__ == "__main__":
    main()
