"""The query path: an exported query encoder against `SentenceTransformer.encode_query` in float32.

    python benchmarks/query.py --queries queries.jsonl --out runs/query
    python benchmarks/query.py --queries queries.jsonl --layers 2 --vocabulary 20000 --seconds 2   # a try

Random weights of the 305M `gte` shape (rounded to float16, as it was published), a unigram tokenizer of its
size made of the queries' own characters, real query lengths. Each side runs in a process of its own, with
`--threads` threads; one JSON line per measurement goes to `OUT/results.jsonl`:

- `machine`: bytes read per second from a buffer of the weights' size and from one larger than any cache, and
  operations per second of the best matrix products in float32, bfloat16 and int8.
- `baseline`: one query at a time, `--callers` threads that ask at once, and batches of 32.
- one line per variant: the same through `ExportedEncoder` and `MicroBatcher`, resident memory, seconds from
  the start of the process to the first answer, the ratios, and the bound for the median query: the larger of
  the weights' bytes over the bandwidth and the operations over the peak.

Why batches of 32 gain little in sentence-transformers: real queries differ in length, and a batch is padded
to its longest; once the float32 units are busy, every token costs the same, padding too; callers that come
at once get no batches. The lines `batch32_ms_per_query`, `batch32_equal_ms_per_query`, `padding` and
`per_second` of `baseline` show it. So the way out is fewer bits (bfloat16 and int8 have 10 to 30 times the
operations), no padding, and batches of what waits.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

#: Queries that are timed one by one.
SINGLE = 150


def read_queries(path: str) -> list[str]:
    """Distinct queries of a JSONL file."""
    with Path(path).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    return list(dict.fromkeys(row.get("text") or row["query"] for row in rows))


def tokenizer_of(texts: list[str], size: int) -> Any:
    """A unigram tokenizer: single characters, frequent pairs, and fillers up to the size, ids shuffled."""
    from tokenizers import Tokenizer, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    characters = Counter(char for text in texts for char in text)
    pairs = Counter(text[i : i + 2] for text in texts for i in range(len(text) - 1))
    pieces = dict(characters) | {pair: count for pair, count in pairs.items() if count >= 3}
    total = sum(pieces.values())
    scored = [(piece, math.log(count / total)) for piece, count in pieces.items()][: size - 4]
    scored += [(f"<filler{i}>", -30.0) for i in range(size - 4 - len(scored))]
    order = np.random.default_rng(0).permutation(len(scored))  # so that rows are touched all over the table
    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -20.0)]
    backend = Tokenizer(models.Unigram([*special, *(scored[i] for i in order)], unk_id=3))
    backend.normalizer = normalizers.NFKC()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>",
    )  # fmt: skip


def build(options: argparse.Namespace) -> None:
    """Write the model folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from transformers import AutoConfig

    from mar_st.backbones import known_backbones
    from mar_st.encoders import load_encoder

    torch.manual_seed(0)
    config = dict(known_backbones()["Alibaba-NLP/gte-multilingual-mlm-base"].config)
    config |= {"vocab_size": options.vocabulary, "num_hidden_layers": options.layers}
    tokenizer = tokenizer_of(read_queries(options.queries), options.vocabulary)
    modules = load_encoder((AutoConfig.for_model(**config), tokenizer), "query")
    for parameter in modules[0].parameters():
        parameter.data = parameter.data.half().float()
    SentenceTransformer(modules=[*modules, Normalize()], device="cpu").save(str(options.out / "model"))


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """What this machine reads and computes per second."""
    import torch

    torch.set_num_threads(options.threads)
    weights = options.weights or 10**8

    def best(call: Any, work: float, seconds: float = 1.5) -> float:
        call()
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        return work / min(times)

    found: dict[str, Any] = {"threads": options.threads}
    for name, size in (("weights", weights), ("large", 10**9)):
        buffer = torch.ones(size // 4)
        found[f"read_{name}_gb_s"] = round(best(buffer.sum, size) / 1e9, 1)
    n = 2048
    dense = torch.randn(n, n)
    half = dense.bfloat16()
    whole = torch.randint(-100, 100, (n, n), dtype=torch.int8)
    products = {"fp32": lambda: dense @ dense, "bf16": lambda: half @ half}
    products["int8"] = lambda: torch._int_mm(whole, whole)
    for name, call in products.items():
        found[f"peak_{name}_gflop_s"] = round(best(call, 2 * n**3) / 1e9, 1)
    return found


def asked_at_once(ask: Any, texts: list[str], callers: int, seconds: float) -> dict[str, float]:
    """Queries per second of callers that each ask again as soon as they are answered, after a warm-up."""
    stop, counted = threading.Event(), threading.Event()
    times: list[list[float]] = [[] for _ in range(callers)]

    def run(number: int) -> None:
        position = number * len(texts) // callers
        while not stop.is_set():
            started = time.perf_counter()
            ask(texts[position % len(texts)])
            if counted.is_set():
                times[number].append(time.perf_counter() - started)
            position += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    time.sleep(min(seconds / 3, 3))
    counted.set()
    started = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    elapsed = time.perf_counter() - started
    for thread in threads:
        thread.join()
    every = [value for row in times for value in row]
    return {
        "per_second": round(len(every) / elapsed, 2),
        "callers_p50_ms": round(float(np.median(every)) * 1e3, 2),
        "callers_p99_ms": round(float(np.quantile(every, 0.99)) * 1e3, 2),
    }


def baseline(options: argparse.Namespace) -> dict[str, Any]:
    """sentence-transformers in float32."""
    import torch
    from sentence_transformers import SentenceTransformer

    from mar_st.export.measure import resident_mb, timings

    torch.set_num_threads(options.threads)
    texts = read_queries(options.queries)[1::2]
    model = SentenceTransformer(str(options.out / "model"), device="cpu")
    lengths = {text: len(model.tokenizer(text)["input_ids"]) for text in texts}
    seconds = timings(lambda some: model.encode_query(list(some)), texts[:SINGLE], rounds=1)
    found: dict[str, Any] = {
        "side": "sentence-transformers fp32",
        "tokens_p50": statistics.median(lengths.values()),
        "p50_ms": round(float(np.median(seconds)) * 1e3, 2),
        "p99_ms": round(float(np.quantile(seconds, 0.99)) * 1e3, 2),
        "rss_mb": round(resident_mb(), 1),
    }
    batches = [texts[i : i + 32] for i in range(0, min(len(texts), 128) - 31, 32)] or [texts]
    by_length = sorted(texts, key=lengths.__getitem__)
    middle = by_length[len(by_length) // 2 - 16 :][:32]
    for name, some in (("batch32", batches), ("batch32_equal", [middle] * 2)):
        model.encode_query(some[0])
        started = time.perf_counter()
        for batch in some:
            model.encode_query(batch)
        count = sum(map(len, some))
        found[f"{name}_ms_per_query"] = round((time.perf_counter() - started) / count * 1e3, 2)
    columns = sum(max(lengths[text] for text in batch) * len(batch) for batch in batches)
    found["padding"] = round(columns / sum(lengths[text] for batch in batches for text in batch), 2)
    lock = threading.Lock()  # its tokenizer may not be used from two threads at once

    def ask(text: str) -> None:
        with lock:
            model.encode_query(text)

    return found | asked_at_once(ask, texts, options.callers, options.seconds)


def export(options: argparse.Namespace) -> dict[str, Any]:
    """Export in all forms that were asked for; calibrated on the queries that are not timed."""
    from mar_st.export import export as run

    texts = read_queries(options.queries)
    listing = run(
        options.out / "model", options.out / "exported", formats=options.formats.split(","),
        precisions=options.precisions.split(","), calibrate=texts[::2], threads=options.threads,
        overwrite=True,
    )  # fmt: skip
    return {"refused": listing.refused, "reports": {n: v.report for n, v in listing.variants.items()}}


def variant(options: argparse.Namespace) -> dict[str, Any]:
    """One form of the exported encoder."""
    from mar_st.export.measure import age, resident_mb, timings
    from mar_st.online import MicroBatcher, load_query_encoder

    texts = read_queries(options.queries)[1::2]
    encoder: Any = load_query_encoder(
        options.out / "exported", backend=options.variant, threads=options.threads
    )
    encoder.encode(texts[:1])
    found: dict[str, Any] = {"side": options.variant, "start_s": round(age(), 2)}
    encoder.encode(texts)
    seconds = timings(encoder.encode, texts[:SINGLE], rounds=3)
    found["p50_ms"] = round(float(np.median(seconds)) * 1e3, 2)
    found["p99_ms"] = round(float(np.quantile(seconds, 0.99)) * 1e3, 2)
    lengths = encoder.count_tokens(texts)
    found |= {"tokens_p50": statistics.median(lengths), "tokens_mean": round(statistics.mean(lengths), 1)}
    sizes: list[float] = []
    observe = lambda name, value: sizes.append(value) if name == "batch_size" else None  # noqa: E731
    with MicroBatcher(encoder, observe=observe) as batcher:
        ask = lambda text: batcher.submit([text]).result()  # noqa: E731
        found |= asked_at_once(ask, texts, options.callers, options.seconds)
    found["batch_mean"] = round(statistics.mean(sizes), 1)
    return found | {"rss_mb": round(resident_mb(), 1)}


def bounds(found: dict[str, Any], speed: dict[str, Any], size: int, linear: int) -> dict[str, Any]:
    """How near a variant is to what the machine can do, one query at a time and many at once."""
    # torch's int8 product does not reach its processor's peak everywhere; bfloat16's is a lower estimate.
    precision = "int8" if "int8" in found["side"] else found["side"].rpartition("-")[2]
    narrower = {"fp32": ("fp32",), "bf16": ("bf16",), "int8": ("bf16", "int8")}[precision]
    peak = max(speed[f"peak_{name}_gflop_s"] for name in narrower) * 1e6  # operations per millisecond
    reading = size / (speed["read_weights_gb_s"] * 1e6)
    single = max(reading, 2 * linear * found["tokens_p50"] / peak)
    many = 1e3 * peak / (2 * linear * found["tokens_mean"])
    return {
        "bound_ms": round(single, 2),
        "over_bound": round(found["p50_ms"] / single, 2),
        "bound_per_second": round(many, 1),
        "share_of_peak": round(found["per_second"] / many, 3),
    }


STEPS = {"build": build, "machine": machine, "baseline": baseline, "export": export, "variant": variant}


def step(options: argparse.Namespace, name: str, **more: Any) -> Any:
    """Run a step in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--step",
        name,
        "--queries",
        options.queries,
        "--out",
        str(options.out),
    ]
    for key in ("layers", "vocabulary", "threads", "callers", "seconds", "formats", "precisions"):
        command += [f"--{key}", str(getattr(options, key))]
    for key, value in more.items():
        command += [f"--{key}", str(value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} ended with status {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def say(options: argparse.Namespace, line: dict[str, Any]) -> None:
    """Print a result and keep it."""
    text = json.dumps(line, ensure_ascii=False)
    print(text, flush=True)
    with (options.out / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queries", required=True, help="JSONL of queries")
    parser.add_argument("--out", type=Path, default=Path("runs/query"))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=250_048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--formats", default="openvino,onnx")
    parser.add_argument("--precisions", default="fp32,bf16,int8")
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--weights", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        result = STEPS[options.step](options)
        print(json.dumps(result))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    if not (options.out / "model" / "modules.json").is_file():
        shutil.rmtree(options.out / "model", ignore_errors=True)
        step(options, "build")
    before = step(options, "baseline")
    say(options, before)
    exported = step(options, "export")
    say(options, {"side": "export", **exported})
    shape = json.loads((options.out / "model" / "config.json").read_text(encoding="utf-8"))
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    linear = shape["num_hidden_layers"] * (4 * hidden * hidden + 3 * hidden * inner)
    for name in exported["reports"]:
        size = linear * (1 if "int8" in name else 2 if "bf16" in name else 4)
        speed = step(options, "machine", weights=size)
        found = step(options, "variant", variant=name)
        found |= bounds(found, speed, size, linear)
        found |= {
            "times_lower_p50": round(before["p50_ms"] / found["p50_ms"], 2),
            "times_throughput": round(found["per_second"] / before["per_second"], 2),
            "cosine_mean": exported["reports"][name]["cosine_mean"],
        }
        say(options, {"side": "machine", **speed})
        say(options, found)


if __name__ == "__main__":
    main()
