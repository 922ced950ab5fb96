"""Synthetic vectors with the neighbourhoods of real ones, for `benchmarks/index.py`, which describes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BLOCK = 8192

#: Results that recall is measured at.
RECALL_CUTOFF = 10


def unit(vectors):
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def real_vectors(given, cache):
    from mar_st.encode.encoding import encode_corpus
    from mar_st.encode.folder import VectorFolder

    if given is None:
        given = cache / "real"
        if not (given / "manifest.json").is_file():
            encode_corpus("mar-mini", ROOT / "tasks" / "MedTEBRetrieval", given)
    return unit(VectorFolder.open(given)[:])


class Lift:
    """Makes vectors of `dim` dimensions that lie as real ones do."""

    def __init__(self, real, dim, noise):
        import faiss

        self.real, self.dim = real, dim
        _, near = faiss.knn(real, real, 11, metric=faiss.METRIC_INNER_PRODUCT)
        self.near = near[:, 1:]
        values, basis = np.linalg.eigh(np.cov(real.T))
        values, basis = values[::-1].clip(1e-12), basis[:, ::-1]
        width = real.shape[1]
        if dim < width:
            self.turn = basis[:, :dim].astype(np.float32)  # the dimensions that say most
            self.spread = np.sqrt(values[:dim])
            self.axes = np.eye(dim, dtype=np.float32)
        else:
            generator = np.random.default_rng(17)
            turn, _ = np.linalg.qr(generator.standard_normal((dim, dim)))
            self.turn = turn[:width].astype(np.float32)
            # Eigenvalues of encoders fall by a power of their rank; the first and last few are left out.
            ranks = np.arange(1, width + 1)
            middle = slice(width // 20, width - width // 5)
            slope, level = np.polyfit(np.log(ranks[middle]), np.log(values[middle]), 1)
            more = np.exp(level + slope * np.log(np.arange(width + 1, dim + 1)))
            self.spread = np.sqrt(np.concatenate([values, np.minimum(more, values[-1])]))
            self.axes = np.concatenate(
                [basis.T.astype(np.float32) @ self.turn, turn[width:].astype(np.float32)]
            )
        self.noise = noise

    def make(self, count, rows, seed):
        generator = np.random.default_rng(seed)
        first = rows[generator.integers(0, len(rows), count)]
        second = self.near[first, generator.integers(0, self.near.shape[1], count)]
        share = generator.random((count, 1), dtype=np.float32)
        mixed = (1 - share) * self.real[first] + share * self.real[second]
        return self.lifted(mixed, generator)

    def lifted(self, vectors, generator):
        drawn = generator.standard_normal((len(vectors), self.dim), dtype=np.float32)
        noise = (drawn * (self.noise * self.spread).astype(np.float32)) @ self.axes
        return unit(vectors @ self.turn + noise)


def prepare(options, cache):
    """The vectors, the queries and the exact results, each in a file."""
    from mar_st.index import flat

    paths = [cache / f"{name}.npy" for name in ("vectors", "queries", "exact")]
    if not all(path.is_file() for path in paths[:2]):
        real = real_vectors(options.vectors, cache)
        lift = Lift(real, options.dim, options.noise)
        rows = np.random.default_rng(3).permutation(len(real))
        held, used = rows[: max(20, len(rows) // 50)], rows[max(20, len(rows) // 50) :]
        if options.query_vectors is not None:
            given = unit(np.load(options.query_vectors).astype(np.float32))[: options.queries]
            queries = lift.lifted(given, np.random.default_rng(5))
        else:
            queries = lift.make(options.queries, held, 5)
        part = cache / "vectors.part"
        shape = (options.n, options.dim)
        kept = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=shape)
        for start in range(0, options.n, BLOCK):
            count = min(BLOCK, options.n - start)
            kept[start : start + count] = lift.make(count, used, 1000 + start)
        kept.flush()
        np.save(paths[1], queries)
        part.replace(paths[0])
    vectors, queries = np.load(paths[0], mmap_mode="r"), np.load(paths[1])
    if not paths[2].is_file():
        _, exact = flat.search(queries, vectors.view(np.ndarray), RECALL_CUTOFF)
        np.save(paths[2], exact)
    return vectors, queries, np.load(paths[2])
