"""The project's own results, which the documentation shows as pages: scores, rankings and latency.

    python -m benchmarks.results WORK [--model FOLDER ...] [--halves DATA] [--latency]

Runs every model that runs on a laptop, and further model folders, on the packaged edition and the sample of
mar-zh, in WORK (finished scores are kept there), and copies what the pages need to benchmarks/results: mteb's
results, scores per query, and the first ten documents of each query. The small query encoders of mar-zh take
part by the rankings of `mar search` on the vectors of the sample. `--halves` adds the test halves of the
Chinese sets of `benchmarks/chinese.py`, without rankings; `models/mar-zh/test-log.tsv` lists each use of them
by hand. `--latency` measures the median time of one
query of the sample through `encode_query`, with one thread, and writes it to benchmarks/results/about.yaml;
the other facts there are written by hand.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median

import torch
import yaml
from benchmarks.chinese import COLUMNS, half
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.data import read_rows
from mar_st.data.trec import read_run, write_run

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks" / "results"
SAMPLE = ROOT / "models" / "mar-zh" / "src" / "mar_zh" / "sample"
MODELS = ("mar-zh", "mar-mini", "bm25-jieba", "bm25-char-bigram")
#: Rankings of `mar search`, by the query encoder of mar-zh.
ENCODERS = {"query-2": "mar-zh-2-layers", "query-lookup": "mar-zh-lookup"}


def call(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True)


def run(work: Path, folders: list[Path]) -> None:
    """Score all models; finished scores are reused."""
    options = ["--trec", "--output-folder", work / "results"]
    models = [word for model in (*MODELS, *folders) for word in ("-m", model)]
    call("medteb", "run", "-b", "MedTEB(cmn, mini)", "--data", SAMPLE, *models, *options)
    if not (work / "index").is_dir():
        call("mar", "index", "build", SAMPLE / "vectors", work / "index")
    for encoder, name in ENCODERS.items():
        ranking = work / f"{name}.trec"
        queries = ["--queries", SAMPLE / "queries.jsonl", "--query-encoder", encoder]
        call("mar", "search", work / "index", *queries, "--out", ranking)
        call("medteb", "run", "--data", SAMPLE, "-m", ranking, *options)


def run_halves(work: Path, data: Path, folders: list[Path]) -> None:
    """Score all models on the test halves of the Chinese retrieval sets."""
    halves = [write_half(data / sets[0], work / "halves" / f"{name}-test") for name, sets in COLUMNS.items()]
    sources = [word for folder in halves for word in ("--data", folder)]
    models = [word for model in (*MODELS, *folders) for word in ("-m", model)]
    call("medteb", "run", *sources, *models, "--output-folder", work / "results")


def write_half(source: Path, out: Path) -> Path:
    """Write a data folder with the questions of the test half and all documents."""
    queries = [row.values for row in read_rows(source / "queries.jsonl")]
    chosen = {str(row["_id"]) for row in queries if half(str(row["text"])) == "test"}
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "corpus.jsonl", out / "corpus.jsonl")
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in queries if str(row["_id"]) in chosen]
    (out / "queries.jsonl").write_text("".join(lines), encoding="utf-8")
    header, *rows = (source / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [row for row in rows if row.partition("\t")[0] in chosen]
    (out / "qrels" / "test.tsv").write_text("".join([header, *kept]), encoding="utf-8")
    return out


def copy(work: Path) -> None:
    """Copy results and scores per query, and cut the rankings."""
    for part in ("results", "items", "trec"):
        shutil.rmtree(OUT / part, ignore_errors=True)
    for path in sorted((work / "results").rglob("*")):
        place = OUT / path.relative_to(work / "results")
        if path.suffix == ".json" and path.parts[-4] in ("results", "items"):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        elif path.suffix == ".trec" and "Reranking" not in path.name:
            place.parent.mkdir(parents=True, exist_ok=True)
            full = read_run(path)
            write_run(place, {query: dict(list(row.items())[:10]) for query, row in full.items()})


def latency(folders: list[Path]) -> None:
    """Measure the encoding of one query, and note it."""
    torch.set_num_threads(1)
    # Half precision, as some folders store it, is several times slower on a CPU.
    models: dict[str, tuple[SentenceTransformer, str]] = {
        f"local/{folder.name}": (SentenceTransformer(str(folder), device="cpu").float(), "query")
        for folder in folders
    }
    models["medteb/mar-mini"] = MAR("mar-mini", device="cpu"), "query"
    models["medteb/mar-zh"] = (zh := MAR("mar-zh", device="cpu")), "query"
    models |= {f"run/{name}": (zh, encoder) for encoder, name in ENCODERS.items()}
    queries = [str(row.values["text"]) for row in read_rows(SAMPLE / "queries.jsonl")]
    about = yaml.safe_load((OUT / "about.yaml").read_text(encoding="utf-8"))
    for name, (model, encoder) in models.items():
        times = []
        for query in queries[:20] + queries:
            begin = time.perf_counter()
            if encoder == "query":
                model.encode_query([query], show_progress_bar=False)
            else:
                model.encode([query], task=encoder, show_progress_bar=False)
            times.append(1000 * (time.perf_counter() - begin))
        about.setdefault(name, {})["latency_ms"] = float(f"{median(times[20:]):.2g}")
    (OUT / "about.yaml").write_text(yaml.safe_dump(about, allow_unicode=True), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--model", type=Path, action="append", default=[], dest="folders")
    parser.add_argument("--halves", type=Path)
    parser.add_argument("--latency", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    run(options.work, options.folders)
    if options.halves:
        run_halves(options.work, options.halves, options.folders)
    copy(options.work)
    if options.latency:
        latency(options.folders)


if __name__ == "__main__":
    main()
