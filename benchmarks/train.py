"""Training speed: the stages of `mar train` against sentence-transformers' trainer with a plain set-up.

    python benchmarks/train.py --shape small                          # a CPU
    python benchmarks/train.py --shape published --lengths 512 real   # a GPU of 80 GiB or more

Every measurement runs in a process of its own, on random weights of the shape, and appends a line to
`--out`, which a repeated call skips. Both sides get the same rows, batch size, precision, adapter
and loss; the baseline is what the documentation of sentence-transformers shows:
`MultipleNegativesRankingLoss` (cached where a batch is encoded in parts), `MatryoshkaLoss`, `Router`,
`add_adapter`, batches without duplicates, no compilation, a frozen teacher in the loop. The first
`--warm-up` steps are left out.

Columns: rows per second, their ratio, tokens per second without padding, MFU of the useful operations (no
recomputation, no padding; `planning.costs`), and peak memory: torch's on a GPU, the process's on a CPU. On a
CPU the peak is that of a bf16 matrix product, measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from train_setups import (
    Case,
    operations,
    plain_model,
    planned_bytes,
    recipe_of,
    rows_of,
    run_mar,
    run_plain,
    sides_of,
    write_encoders,
)

STAGES = ("contrastive-query", "contrastive-document", "align", "joint")
SETUPS = ("plain", "mar")


def one(case: Case) -> dict[str, Any]:
    """Run a case in this process."""
    import torch

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = rows_of(case)
        encoders = Path(case.weights) if case.weights else folder
        texts = [text for row in rows[:4000] for text in row.values()]
        write_encoders(case, encoders, sides_of(case.stage), texts)
        if case.stage == "align":
            rows = [{"text": row["positive"]} for row in rows]
        data = folder / "rows.jsonl"
        data.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        recipe = recipe_of(case, encoders, data)
        if case.stage == "align":
            columns = {"text": "query"}
        else:
            first, *_, last = [*sides_of(case.stage)] * 2
            columns = {"query": first, "positive": last, "negative": last}
        flops, executed, tokens = operations(recipe, rows, columns)
        if case.setup == "plain":
            figures: dict[str, Any] = run_plain(case, recipe, plain_model(case, recipe), rows, folder)
        else:
            figures = run_mar(case, recipe, folder)
        figures["planned_gb"] = planned_bytes(recipe) / 1e9
    figures["texts_per_second"] = figures["rows_per_second"] * len(columns)
    figures["tokens_per_second"] = figures["rows_per_second"] * tokens
    figures["tflops"] = figures["rows_per_second"] * flops / 1e12
    figures["executed_tflops"] = figures["rows_per_second"] * executed / 1e12
    return {**asdict(case), **figures}


def peak(size: int = 4096) -> tuple[str, float]:
    """Name of the device and its bf16 peak in TFLOP/s: the vendor's for a GPU, measured for a CPU."""
    import torch

    if torch.cuda.is_available():
        from mar_st.planning.plan import DEVICES

        name = torch.cuda.get_device_name(0)
        return name, next((known.bf16 for key, known in DEVICES.items() if key in name), float("nan"))
    left, right = (torch.randn(size, size, dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(5):
        started = time.perf_counter()
        torch.mm(left, right)
        times.append(time.perf_counter() - started)
    return f"CPU, {torch.get_num_threads()} threads", 2 * size**3 / min(times) / 1e12


def table(results: list[dict[str, Any]], device: str, top: float) -> str:
    """Markdown: a line per stage and length, both set-ups side by side."""
    header = ["stage", "length", "batch", "rows/s plain", "rows/s mar", "ratio", "tokens/s mar"]
    header += ["MFU plain", "MFU mar", "GB plain", "GB mar"]
    lines = [
        f"{device}, peak {top:.2f} TFLOP/s (bf16)",
        "",
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
    ]
    by_case: dict[tuple[str, str, int], dict[str, dict[str, Any]]] = {}
    for row in results:
        by_case.setdefault((row["stage"], row["length"], row["batch"]), {})[row["setup"]] = row
    for (stage, length, batch), both in by_case.items():
        if set(both) != set(SETUPS):
            continue
        plain, mar = both["plain"], both["mar"]
        lines.append(
            f"| {stage} | {length} | {batch} | {plain['rows_per_second']:.1f} | {mar['rows_per_second']:.1f} "
            f"| {mar['rows_per_second'] / plain['rows_per_second']:.2f} | {mar['tokens_per_second']:,.0f} "
            f"| {plain['tflops'] / top:.1%} | {mar['tflops'] / top:.1%} "
            f"| {plain['memory_gb']:.2f} | {mar['memory_gb']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=("small", "published"), default="small")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--lengths", nargs="+", choices=("real", "512"), default=["real"])
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument(
        "--texts", help="JSONL with query, positive(s) and negative(s); default the packaged edition"
    )
    parser.add_argument(
        "--batch", type=int, help="rows per step; default 128 small, 64 published, 512 its align"
    )
    parser.add_argument(
        "--mini-batch", type=int, help="rows encoded at a time (GradCache); default 16 for published"
    )
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, help="mar's; default as the recipes have it"
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=20, help="a multiple of 20")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-train.jsonl"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print("RESULT " + json.dumps(one(Case(**json.loads(options.one)))))
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    small = options.shape == "small"
    cases = [
        Case(
            shape=options.shape,
            stage=stage,
            length=length,
            setup=setup,
            batch=options.batch or (128 if small else 512 if stage == "align" else 64),
            mini_batch=None if stage == "align" else options.mini_batch or (None if small else 16),
            compile=small if options.compile is None else options.compile,
            steps=options.steps,
            warm_up=options.warm_up,
            texts=options.texts,
        )
        for stage in options.stages
        for length in options.lengths
        for setup in options.setups
    ]
    done = {}
    if options.out.exists():
        for line in options.out.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            known = {name: row[name] for name in Case.__dataclass_fields__ if name in row}
            done[Case(**known).key] = row
    device, top = peak()
    for case in cases:
        if case.key in done:
            continue
        print(f"{case.stage}, {case.length}, {case.setup} ...", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--one", case.key]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        result_lines = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
        if run.returncode or not result_lines:
            print(f"failed:\n{run.stderr[-2000:]}", file=sys.stderr)
            continue
        done[case.key] = json.loads(result_lines[0].removeprefix("RESULT "))
        with options.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(done[case.key]) + "\n")
    print(table([done[case.key] for case in cases if case.key in done], device, top))


if __name__ == "__main__":
    main()
