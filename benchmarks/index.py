"""Recall against latency and memory: the kinds of `mar index build`, plain FAISS, Milvus Lite, LanceDB.

    python benchmarks/index.py                                  # 1M x 768; hours on 2 cores, mostly graphs
    python benchmarks/index.py --n 20000 --only faiss-flat mar-exact mar-hnsw
    python benchmarks/index.py --vectors VECTORS --query-vectors QUERIES.npy

Vectors that follow real ones: `--vectors` names a folder that `mar encode` wrote (default: the packaged
edition's corpus, encoded by the packaged model). A new vector lies between a real one and one of its 10
nearest neighbours (anywhere on the line), plus noise with the covariance of the real vectors (`--noise` of
its size). Where more dimensions are asked for than there are, the real space is turned into the wider one by
a fixed random rotation, and the noise in the new dimensions has eigenvalues that continue the decay of the
real ones. Queries are made in the same way from real vectors that no document starts from, or are given
ones, lifted by the same rotation.

Every system is built and measured in processes of its own. Each setting appends a line to `--out`; if the
command is started again, it skips existing ones. Vectors, exact results and indexes stay in `--cache`
(several times 4 x n x dim bytes). Baselines: FAISS as its documentation shows it (IndexFlatIP;
IndexHNSWFlat, M = 32; IndexIVFPQ with 4 sqrt(n) cells and 8 dimensions per byte), loaded with read_index,
Milvus Lite through pymilvus, and LanceDB (to be installed), without an index and with IVF-PQ and rescoring.

Columns: recall@10 against exact search; p50 and p99 of single queries; queries per second in batches of 64;
resident memory that the open index adds after all queries (anonymous, and mapped files); size on disk; build
time. The last column of the table is the p50 of the fastest plain FAISS setting of at least the same recall,
over this one's.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from index_vectors import BLOCK, RECALL_CUTOFF, prepare

HNSW = [{"ef": ef} for ef in (16, 32, 64, 128, 256, 512)]
PROBES = [{"nprobe": probes} for probes in (1, 8, 32, 128)]
SYSTEMS = {
    "faiss-flat": [{}],
    "faiss-hnsw32": HNSW,
    "faiss-ivfpq": PROBES,
    "milvus-lite-flat": [{}],
    "milvus-lite-hnsw": [{"ef": ef} for ef in (64, 256)],
    "lancedb-flat": [{}],
    "lancedb-ivf-pq": [{"nprobes": 32, "refine_factor": 10}, {"nprobes": 128, "refine_factor": 10}],
    "mar-exact": [{}],
    "mar-ivf-pq": [
        {"nprobe": probes, "rescore": again}
        for probes, again in ((8, 5), (16, 10), (32, 10), (64, 20), (128, 20), (256, 50))
    ],
    "mar-hnsw": HNSW,
    "mar-auto": [{}],
}


# -- systems: each gives a function (vectors, k, setting) -> rows, opened as its users open it --


def faiss_plain(name, vectors, folder):
    import faiss

    path, dim = folder / "index", vectors.shape[1]
    built = None
    if not path.is_file():
        started = time.perf_counter()
        if name == "faiss-flat":
            index = faiss.IndexFlatIP(dim)
        elif name == "faiss-hnsw32":
            index = faiss.IndexHNSWFlat(dim, 32, faiss.METRIC_INNER_PRODUCT)
        else:
            cells = max(1, int(4 * len(vectors) ** 0.5))
            quantizer = faiss.IndexFlatIP(dim)
            index = faiss.IndexIVFPQ(quantizer, dim, cells, dim // 8, 8, faiss.METRIC_INNER_PRODUCT)
            index.train(np.array(vectors[: min(len(vectors), 64 * cells)]))
        for start in range(0, len(vectors), 16 * BLOCK):
            index.add(np.array(vectors[start : start + 16 * BLOCK]))
        built = time.perf_counter() - started
        faiss.write_index(index, str(folder / "index.part"))
        (folder / "index.part").replace(path)

    def opened():
        index = faiss.read_index(str(path))

        def ask(queries, k, setting):
            if "ef" in setting:
                index.hnsw.efSearch = setting["ef"]
            if "nprobe" in setting:
                index.nprobe = setting["nprobe"]
            return index.search(queries, k)[1]

        return ask

    return built, opened


def milvus_lite(name, vectors, folder):
    from pymilvus import DataType, MilvusClient

    path, built = folder / "milvus.db", None
    done = folder / "done"
    if not done.is_file():
        shutil.rmtree(path, ignore_errors=True)
        client = MilvusClient(str(path))
        started = time.perf_counter()
        schema = client.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
        client.create_collection("documents", schema=schema)
        for start in range(0, len(vectors), 512):
            block = np.array(vectors[start : start + 512])
            rows = [{"id": start + row, "vector": vector} for row, vector in enumerate(block)]
            client.insert("documents", rows)
        client.flush("documents")
        chosen = client.prepare_index_params()
        kind = "FLAT" if name.endswith("flat") else "HNSW"
        params = {} if kind == "FLAT" else {"M": 32, "efConstruction": 40}
        chosen.add_index("vector", index_type=kind, metric_type="IP", params=params)
        client.create_index("documents", chosen)
        client.load_collection("documents")
        built = time.perf_counter() - started
        client.close()
        done.touch()

    def opened():
        client = MilvusClient(str(path))
        client.load_collection("documents")

        def ask(queries, k, setting):
            results = client.search(
                "documents",
                data=list(queries),
                limit=k,
                anns_field="vector",
                search_params={"params": setting},
            )
            return np.array([[hit["id"] for hit in hits] for hits in results])

        return ask

    return built, opened


def lance(name, vectors, folder):
    import lancedb
    import pyarrow as pa
    from lancedb.index import IvfPq

    built, done, flat = None, folder / "done", name.endswith("flat")
    database = lancedb.connect(str(folder / "database"))
    if not done.is_file():
        started = time.perf_counter()
        vector = pa.list_(pa.float32(), vectors.shape[1])
        schema = pa.schema({"id": pa.int64(), "vector": vector})

        def rows():
            for start in range(0, len(vectors), BLOCK):
                block = np.array(vectors[start : start + BLOCK])
                ids = np.arange(start, start + len(block))
                values = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), type=vector)
                yield pa.record_batch([pa.array(ids), values], schema=schema)

        table = database.create_table("documents", rows(), schema=schema, mode="overwrite")
        if not flat:
            table.create_index("vector", config=IvfPq(distance_type="dot"))
        built = time.perf_counter() - started
        done.touch()

    def opened():
        table = database.open_table("documents")

        def ask(queries, k, setting):
            search = table.search(queries if len(queries) > 1 else queries[0], vector_column_name="vector")
            search = search.distance_type("dot").limit(k).select(["id", "_distance"])
            for option, value in setting.items():
                search = getattr(search, option)(value)
            return search.to_arrow()["id"].to_numpy().reshape(len(queries), k)

        return ask

    return built, opened


def mar_index(name, vectors, folder):
    from mar_st.encode.folder import VectorFolder, write_vectors
    from mar_st.index.base import Index
    from mar_st.index.build import build_index

    source = folder.parent / "folder"
    if not (source / "manifest.json").is_file():
        shutil.rmtree(source, ignore_errors=True)
        names = [str(row) for row in range(len(vectors))]
        write_vectors(source, names, vectors, normalised=True)
    built, out = None, folder / "index"
    if not (out / "manifest.json").is_file():
        started = time.perf_counter()
        kind = name.removeprefix("mar-")
        manifest = build_index(
            VectorFolder.open(source),
            out,
            kind=kind,
            say=lambda line: print(line, file=sys.stderr),
        )
        built = time.perf_counter() - started
        print(manifest["search"], manifest["measured"], file=sys.stderr)

    def opened():
        index = Index.open(out)
        chosen = dict(index.settings)

        def ask(queries, k, setting):
            index.settings = {**chosen, **setting}
            keys, _ = index.search(queries, k)
            return np.array(keys).astype(np.int64)

        return ask

    return built, opened


# -- measuring --


def resident():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    values = {line.split()[0]: int(line.split()[1]) / 1024 for line in lines[1:]}
    return {"anonymous": values["Anonymous:"], "file": values["Rss:"] - values["Anonymous:"]}


def load(name):
    """Import what a system needs, so that the memory of code does not count."""
    if name.startswith("mar"):
        pass
    elif name.startswith("milvus"):
        import milvus_lite  # noqa: F401
        import pymilvus  # noqa: F401
    elif name.startswith("lancedb"):
        import lancedb  # noqa: F401


def measure(options, name, cache):
    """Build (if it is not there) and measure one system in this process; a line per setting."""
    vectors, queries, exact = prepare(options, cache)
    folder = cache / name
    folder.mkdir(exist_ok=True)
    makers = {"faiss": faiss_plain, "milvus": milvus_lite, "lancedb": lance, "mar": mar_index}
    maker = makers[name.partition("-")[0]]
    timing = folder / "built.json"
    built, opened = maker(name, vectors, folder)
    if built is not None:
        # Building leaves memory behind, so a fresh process measures.
        timing.write_text(json.dumps(built))
        return
    del vectors
    load(name)
    before = resident()
    started = time.perf_counter()
    ask = opened()
    ask(queries[:1], RECALL_CUTOFF, SYSTEMS[name][0])
    first = time.perf_counter() - started
    for setting in SYSTEMS[name]:
        rows = np.concatenate(
            [ask(queries[at : at + 64], RECALL_CUTOFF, setting) for at in range(0, len(queries), 64)]
        )
        recall = np.mean(
            [len(set(a) & set(b)) / RECALL_CUTOFF for a, b in zip(rows.tolist(), exact.tolist(), strict=True)]
        )
        times = []
        for query in queries:
            started = time.perf_counter()
            ask(query[None], RECALL_CUTOFF, setting)
            times.append(time.perf_counter() - started)
        started = time.perf_counter()
        for at in range(0, len(queries), 64):
            ask(queries[at : at + 64], RECALL_CUTOFF, setting)
        batched = time.perf_counter() - started
        after = resident()
        line = {
            "system": name, "setting": setting, "n": options.n, "dim": options.dim,
            "recall@10": round(recall, 4),
            "p50_ms": round(1000 * float(np.percentile(times, 50)), 3),
            "p99_ms": round(1000 * float(np.percentile(times, 99)), 3),
            "batched_qps": round(len(queries) / batched, 1), "first_answer_s": round(first, 3),
            "anonymous_mb": round(after["anonymous"] - before["anonymous"], 1),
            "mapped_mb": round(after["file"] - before["file"], 1),
            "disk_mb": round(sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6, 1),
            "build_s": json.loads(timing.read_text()) if timing.is_file() else None,
            "threads": options.threads, "machine": f"{platform.machine()}, {options.threads} threads",
        }  # fmt: skip
        with options.out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def key(line):
    return (
        line["system"],
        json.dumps(line["setting"], sort_keys=True),
        line["n"],
        line["dim"],
        line["threads"],
    )


def read(out):
    if not out.is_file():
        return []
    rows = []
    for line in out.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # cut by a kill; it is measured again
    return rows


def summary(lines):
    """The table, with the ratio to the cheapest plain FAISS setting of at least the same recall."""
    flat = [line for line in lines if line["system"] == "faiss-flat"]
    heads = "".join(f"{head:>9}" for head in ("recall", "p50 ms", "p99 ms", "q/s", "MB", "x FAISS"))
    print(f"{'system':17} {'setting':28}{heads}")
    for line in lines:
        plain = [
            other["p50_ms"]
            for other in lines
            if other["system"].startswith("faiss") and other["recall@10"] >= line["recall@10"] - 0.002
        ] or [other["p50_ms"] for other in flat]
        ratio = f"{min(plain) / line['p50_ms']:.2f}" if plain else "-"
        setting = " ".join(f"{name}={value}" for name, value in line["setting"].items())
        room = line["anonymous_mb"] + line["mapped_mb"]
        figures = (line["recall@10"], line["p50_ms"], line["p99_ms"], line["batched_qps"], room)
        shown = "".join(
            f"{figure:9.{digits}f}" for figure, digits in zip(figures, (4, 3, 3, 1, 0), strict=True)
        )
        print(f"{line['system']:17} {setting:28}{shown}{ratio:>9}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument(
        "--noise", type=float, default=0.5, help="size of the noise over that of the real spread"
    )
    parser.add_argument("--vectors", type=Path, help="folder of real vectors")
    parser.add_argument(
        "--query-vectors", type=Path, help=".npy of real vectors of queries of the same space"
    )
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path("index-benchmark"))
    parser.add_argument("--out", type=Path, default=Path("index-benchmark.jsonl"))
    parser.add_argument("--one", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cache = options.cache / f"{options.n}x{options.dim}-{options.noise}"
    cache.mkdir(parents=True, exist_ok=True)
    if options.one:
        import faiss

        faiss.omp_set_num_threads(options.threads)
        measure(options, options.one, cache)
        return
    for name in options.only:
        there = {key(line) for line in read(options.out)}
        wanted = {
            key(
                {
                    "system": name,
                    "setting": setting,
                    "n": options.n,
                    "dim": options.dim,
                    "threads": options.threads,
                }
            )
            for setting in SYSTEMS[name]
        }
        if wanted <= there:
            continue
        kept = [line for line in read(options.out) if key(line) not in wanted]
        options.out.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        for _ in range(2):  # build, then measure
            done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", name], check=False)
            if done.returncode:
                print(f"{name} failed with exit code {done.returncode}; started again, it is tried again")
                break
            if wanted <= {key(line) for line in read(options.out)}:
                break
    summary([line for line in read(options.out) if (line["n"], line["dim"]) == (options.n, options.dim)])


if __name__ == "__main__":
    main()
