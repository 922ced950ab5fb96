"""The query path: an exported query encoder against `SentenceTransformer.encode_query` in float32.

    python benchmarks/query.py --queries queries.jsonl --out runs/query
    python benchmarks/query.py --queries queries.jsonl --layers 2 --vocabulary 20000 --seconds 2   # a try

Random weights of the 305M `gte` shape (rounded to float16, as it was published), a unigram tokenizer of its
size made of the queries' own characters, real query lengths. Each side runs in a process of its own with
`--threads` threads, and they are measured in turns, `--rounds` times: the machine (bytes read per second from
a buffer of the weights' size, operations per second of the best matrix product), some queries one by one
through the baseline, the same through the exported form; then `--callers` threads that ask at once, in turns
too. One JSON line per form goes to `OUT/results.jsonl`: p50 and p99 of all rounds; medians over the rounds of
the ratios, each with the tenth and the ninetieth percentile; the bound for the median query (the larger of
the weights' bytes over the bandwidth and the operations over the peak); resident memory, and seconds from the
start of the process to the first answer.

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
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from query_sides import Apart, Machine, Side, read_queries

#: Queries that are asked one by one in each round.
QUERIES_PER_ROUND = 15


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

    from mar_st.model.encoders import load_encoder
    from mar_st.planning.backbones import known_backbones

    torch.manual_seed(0)
    config = dict(known_backbones()["Alibaba-NLP/gte-multilingual-mlm-base"].config)
    config |= {"vocab_size": options.vocabulary, "num_hidden_layers": options.layers}
    tokenizer = tokenizer_of(read_queries(options.queries), options.vocabulary)
    modules = load_encoder((AutoConfig.for_model(**config), tokenizer), "query")
    for parameter in modules[0].parameters():
        parameter.data = parameter.data.half().float()
    SentenceTransformer(modules=[*modules, Normalize()], device="cpu").save(str(options.out / "model"))


def answer(options: argparse.Namespace) -> None:
    """Be a side: read calls from the standard input, a JSON line each, and answer each with one."""
    side: Any = Machine(options) if options.side == "machine" else Side(options)
    print("{}", flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(side, name)(*arguments)), flush=True)


def export(options: argparse.Namespace) -> dict[str, Any]:
    """Export in all forms that were asked for."""
    from mar_st.export import ExportSettings
    from mar_st.export import export as run

    model, out = str(options.out / "model"), options.out / "exported"
    shutil.rmtree(out, ignore_errors=True)
    listing = run(ExportSettings(model=model, out=out, format=options.formats.split(",")))
    return {"refused": listing.refused, "reports": {n: v.report for n, v in listing.variants.items()}}


def compare(options: argparse.Namespace, baseline: Apart, machine: Apart, side: Apart) -> dict[str, Any]:
    """Measure an exported form, the baseline and the hardware bound in turns.

    The speed of a shared processor changes within seconds. So all three are measured in each round, and the
    reported ratios are medians over the rounds.
    """
    shape = json.loads((options.out / "model" / "config.json").read_text(encoding="utf-8"))
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    linear = shape["num_hidden_layers"] * (4 * hidden * hidden + 3 * hidden * inner)
    precision = "int8" if "int8" in side.name else side.name.rpartition("-")[2]
    weights = linear * {"int8": 1, "bf16": 2, "fp32": 4}[precision]
    tokens = side.call("facts")
    rows: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {"baseline": [], "side": []}
    for number in range(options.rounds):
        speed = machine.call("speed", precision, weights, 0.15)
        times = {
            "baseline": baseline.call("single", number * QUERIES_PER_ROUND, QUERIES_PER_ROUND),
            "side": side.call("single", number * QUERIES_PER_ROUND, QUERIES_PER_ROUND),
        }
        for name, values in times.items():
            seconds[name] += values
        slow, fast = (float(np.median(times[name])) * 1e3 for name in ("baseline", "side"))
        operations = 2 * linear * tokens["tokens_p50"] / (speed["peak_gflop_s"] * 1e6)
        bound = max(weights / (speed["read_gb_s"] * 1e6), operations)
        row = {**speed, "bound_ms": bound, "over_bound": fast / bound, "times_lower_p50": slow / fast}
        for name, value in row.items():
            rows.setdefault(name, []).append(value)
    parts = max(1, round(options.seconds / 5))
    many: dict[str, list[dict[str, float]]] = {"baseline": [], "side": []}
    for _ in range(parts):
        for name, one in (("baseline", baseline), ("side", side)):
            many[name].append(one.call("many", options.seconds / parts))
    summary: dict[str, Any] = {"side": side.name}
    for name in ("baseline", "side"):
        mark = "" if name == "side" else "baseline_"
        summary[f"{mark}p50_ms"] = round(float(np.median(seconds[name])) * 1e3, 2)
        summary[f"{mark}p99_ms"] = round(float(np.quantile(seconds[name], 0.99)) * 1e3, 2)
        for key in ("per_second", "callers_p50_ms", "callers_p99_ms"):
            summary[mark + key] = round(float(np.mean([row[key] for row in many[name]])), 2)
    pairs = zip(many["side"], many["baseline"], strict=True)
    rows["times_throughput"] = [ours["per_second"] / theirs["per_second"] for ours, theirs in pairs]
    for name, values in rows.items():
        low, middle, high = (float(np.quantile(values, q)) for q in (0.1, 0.5, 0.9))
        summary[name] = round(middle, 2)
        summary[f"{name}_10_90"] = [round(low, 2), round(high, 2)]
    best = 1e6 * summary["peak_gflop_s"] * 1e3 / (2 * linear * tokens["tokens_mean"])
    summary["share_of_peak"] = round(summary["per_second"] / best, 3)
    return summary | side.call("facts")


STEPS = {"build": build, "export": export}


def command(options: argparse.Namespace) -> list[str]:
    """This program again, with the same options."""
    arguments = [sys.executable, __file__, "--queries", options.queries, "--out", str(options.out)]
    for key in ("layers", "vocabulary", "threads", "callers", "seconds", "formats"):
        arguments += [f"--{key}", str(getattr(options, key))]
    return arguments


def apart(options: argparse.Namespace, side: str) -> Apart:
    """A side in a process of its own."""
    return Apart([*command(options), "--side", side], side)


def step(options: argparse.Namespace, name: str) -> Any:
    """Run a step in a process of its own."""
    done = subprocess.run([*command(options), "--step", name], stdout=subprocess.PIPE, text=True, check=False)
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
    parser.add_argument("--seconds", type=float, default=20, help="of concurrent callers")
    parser.add_argument("--rounds", type=int, default=20, help=f"of {QUERIES_PER_ROUND} single queries")
    every = "native-int8,openvino-int8,openvino-fp32,onnx-int8,onnx-fp32"
    parser.add_argument("--formats", default=every)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        answer(options)
        return
    if options.step:
        print(json.dumps(STEPS[options.step](options)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    if not (options.out / "model" / "modules.json").is_file():
        shutil.rmtree(options.out / "model", ignore_errors=True)
        step(options, "build")
    exported = step(options, "export")
    say(options, {"side": "export", **exported})
    baseline, machine = apart(options, "baseline"), apart(options, "machine")
    say(options, {"side": "sentence-transformers fp32", **baseline.call("facts"), **baseline.call("batches")})
    for name in exported["reports"]:
        side = apart(options, name)
        summary = compare(options, baseline, machine, side)
        side.close()
        say(options, summary | {"cosine_mean": exported["reports"][name]["cosine_mean"]})
    baseline.close()
    machine.close()


if __name__ == "__main__":
    main()
