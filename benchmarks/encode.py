"""Encoding speed: `mar_st.encode.engine.Engine` against other encoders, on one corpus and one model.

    python benchmarks/encode.py --shape base --texts A.jsonl B.jsonl --number 1000     # a CPU
    python benchmarks/encode.py --shape 4b --texts A.jsonl --number 20000 --device cuda:0 --fill 512
    python benchmarks/encode.py --shape tiny --documents 1000000                       # memory

Every measurement runs in a process of its own on random weights of the shape and appends a JSON line to
`--out`. The texts are drawn from the files as they come, so their lengths are as skewed as those of the data;
`--fill N` draws them out to N tokens instead. All systems get the same texts in the same order, truncate at
the same length and load the same folder. Baselines:
`SentenceTransformer.encode` with batches of 32, with each size of `--batches` (the best counts), and with its
multi-process pool; mteb's wrapper; FlagEmbedding's encoder where it is installed. Each is run in fp32 and in
bf16 (weights in bf16; mar alike). `mar` has torch's linear layers; `mar-auto`, on a CPU, those that `mar
encode` takes on this processor (`mar_st.kernels.linear`), and its heap (`mar_st.kernels.build`).
The time is that of the call, without loading; a tenth of the texts warms up.

Columns: texts and tokens (padding not counted) per second, seconds of processors (of the measuring process
alone, so not of a pool), the ratio to the best baseline of the same precision and to the best of any, MFU of
the useful operations (`planning.costs`), peak memory above the loaded model, and the largest distance of a
cosine from 1, to the vectors of sentence-transformers in fp32.

`--documents N` writes N documents to a file and encodes it as `mar encode` does; it reports documents per
second and the peak of the resident memory above that with the model loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FIELDS = ("text", "query", "positive", "negative", "sentence1", "sentence2")
PRECISIONS = ("fp32", "bf16")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
SEED = 0


def read_texts(paths: list[str], number: int) -> list[str]:
    """A sample of all texts of some JSONL files, each once."""
    unique: dict[str, None] = {}
    for path in paths:
        with Path(path).open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                for field in FIELDS:
                    value = row.get(field)
                    for text in value if isinstance(value, list) else [value]:
                        if isinstance(text, str) and text.strip():
                            unique[text] = None
    texts = list(unique)
    random.Random(SEED).shuffle(texts)
    if len(texts) < number:
        print(f"only {len(texts)} texts in {', '.join(paths)}", file=sys.stderr)
    return texts[:number]


def config_of(shape: str) -> tuple[dict[str, Any], str]:
    """transformers configuration and the pooling of a shape."""
    from mar_st.planning.backbones import known_backbones

    known = known_backbones()
    if shape == "4b":
        return dict(known["Qwen/Qwen3-4B"].config), "lasttoken"
    config = dict(known["Alibaba-NLP/gte-multilingual-mlm-base"].config)
    if shape == "tiny":
        config |= {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        config |= {"intermediate_size": 128, "vocab_size": 8000}
    return config, "cls"


def write_model(shape: str, texts: list[str], folder: Path) -> None:
    """Random weights of a shape as a sentence-transformers folder, its tokenizer trained on the texts."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from transformers import AutoConfig

    from mar_st.model.encoders import load_encoder
    from mar_st.model.tokenizers import train_tokenizer

    config, pooling = config_of(shape)
    role: Any = "document" if pooling == "lasttoken" else "query"
    tokenizer = train_tokenizer(texts[:20_000], role, vocab_size=8000, max_token_length=2)
    config |= {
        "vocab_size": max(config["vocab_size"], len(tokenizer)),
        "pad_token_id": tokenizer.pad_token_id,
    }
    torch.manual_seed(SEED)
    torch.set_default_dtype(torch.bfloat16 if shape == "4b" else torch.float32)
    modules = load_encoder((AutoConfig.for_model(**config), tokenizer), role)
    torch.set_default_dtype(torch.float32)
    SentenceTransformer(modules=[*modules, Normalize()], device="cpu").save_pretrained(str(folder))


def load(folder: Path, precision: str, device: str) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return SentenceTransformer(str(folder), device=device, model_kwargs={"dtype": dtype}).eval()


def system(args: argparse.Namespace, folder: Path) -> Any:
    """A function from texts to vectors."""
    name, device = args.one, args.device
    if name.startswith("mar"):
        from mar_st.encode.engine import Engine
        from mar_st.kernels.build import keep_freed
        from mar_st.kernels.linear import best_kernel, use_kernel

        model = load(folder, args.precision, device)
        if name.startswith("mar-auto"):
            use_kernel(model, best_kernel(model.dtype))
            keep_freed()
        threads = int(name.partition(":")[2] or 0) or None
        return Engine(model, threads=threads, tokens=args.tokens).encode
    if name.startswith("st:"):
        model = load(folder, args.precision, device)
        return lambda texts: model.encode(texts, batch_size=int(name[3:]), show_progress_bar=False)
    if name == "st-pool":
        model = load(folder, args.precision, "cpu")
        pool = model.start_multi_process_pool([device] * args.processes)
        return lambda texts: model.encode(texts, pool=pool, batch_size=args.pool_batch)
    if name == "mteb":
        return mteb_encoder(load(folder, args.precision, device))
    from FlagEmbedding import FlagModel

    flag = FlagModel(str(folder), use_fp16=False, devices=[device], pooling_method="cls")
    return lambda texts: flag.encode_corpus(texts, batch_size=32, max_length=512)


def mteb_encoder(model: Any) -> Any:
    """mteb's wrapper, called as an evaluation calls it for a corpus."""
    import mteb
    from mteb._create_dataloaders import create_dataloader
    from mteb.models import SentenceTransformerEncoderWrapper
    from mteb.types import PromptType

    task = mteb.get_task("CmedqaRetrieval")
    wrapper = SentenceTransformerEncoderWrapper(model)

    def encode(texts: list[str]) -> Any:
        from datasets import Dataset

        rows = Dataset.from_list([{"id": str(i), "title": "", "text": text} for i, text in enumerate(texts)])
        loader = create_dataloader(
            rows, task_metadata=task.metadata, prompt_type=PromptType.document, batch_size=32
        )
        return wrapper.encode(
            loader, task_metadata=task.metadata, hf_split="test", hf_subset="default",
            prompt_type=PromptType.document, batch_size=32,
        )  # fmt: skip

    return encode


def resident(name: str = "VmRSS") -> float:
    """Resident memory of this process, now or at its peak (`VmHWM`), in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e6 for line in lines if line.startswith(f"{name}:"))


def reset_peak() -> float:
    """Forget the peak so far; gives the memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def one(args: argparse.Namespace) -> dict[str, Any]:
    """Measure a system in this process."""
    import numpy as np
    import torch

    folder = Path(args.folder)
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    encode = system(args, folder)
    encode(texts[:: max(1, len(texts) // max(32, len(texts) // 10))])
    on_gpu = args.device.startswith("cuda")
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() / 1e9
    else:
        before = reset_peak()
    started, processors = time.perf_counter(), time.process_time()
    vectors = np.asarray(encode(texts))
    seconds, processors = time.perf_counter() - started, time.process_time() - processors
    peak = torch.cuda.max_memory_allocated() / 1e9 if on_gpu else resident("VmHWM")
    np.save(folder / f"{args.one.replace(':', '-')}-{args.precision}.npy", vectors.astype(np.float32))
    return {"seconds": seconds, "cpu_seconds": processors, "memory_gb": peak - before}


def memory(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Encode a corpus on disk as `mar encode` does."""
    from mar_st.data.corpus import scan_corpus
    from mar_st.encode.encoding import EncodeJob, Worker
    from mar_st.encode.folder import SHARDS
    from mar_st.encode.settings import SHARD_ROWS, EncodeSettings

    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    path, out = folder / "corpus.jsonl", folder / "vectors"
    with path.open("w", encoding="utf-8") as stream:
        for number in range(args.documents):
            row = {"_id": f"d{number}", "text": f"{texts[number % len(texts)]}{number}"}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    (out / SHARDS).mkdir(parents=True)
    settings = EncodeSettings(dtype=DTYPES[args.precision])
    first = scan_corpus(folder / "few.jsonl", SHARD_ROWS, show_progress=False)
    worker = Worker(EncodeJob(str(folder), str(out), first, settings, {"kernel": "torch"}, args.device))
    worker.engine.encode(texts[:64])
    before = reset_peak()
    started = time.perf_counter()
    scan = scan_corpus(path, SHARD_ROWS)
    scanned = time.perf_counter() - started
    from mar_st.data.corpus import ShardReader

    worker.job, worker._reader = (
        EncodeJob(str(folder), str(out), scan, settings, {"kernel": "torch"}, args.device),
        ShardReader(scan),
    )
    worker.run(range(scan.shards), lambda number: print(number, end="\r", file=sys.stderr))
    seconds = time.perf_counter() - started
    return {
        "system": "mar encode", "documents": args.documents, "bytes": path.stat().st_size,
        "seconds": seconds, "scan_seconds": scanned, "documents_per_second": args.documents / seconds,
        "memory_gb": resident("VmHWM") - before,
    }  # fmt: skip


def fill(texts: list[str], tokenizer: Any, length: int) -> list[str]:
    """Texts of at least `length` tokens, made of the texts in their order."""
    filled, now, size = [], [], 0
    for text in texts * (1 + 20 * length // max(1, len(texts))):
        now.append(text)
        size += len(tokenizer(text)["input_ids"])
        if size > length + 2:
            filled.append("".join(now))
            now, size = [], 0
        if len(filled) == len(texts):
            break
    return filled


def facts(folder: Path, texts: list[str], shape: str) -> dict[str, Any]:
    """Tokens of the texts and operations for them, padding not counted."""
    from transformers import AutoTokenizer

    from mar_st.planning.backbones import Shape
    from mar_st.planning.costs import forward_flops

    tokenizer = AutoTokenizer.from_pretrained(folder)
    lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=512)["input_ids"]]
    backbone = Shape(shape, {**config_of(shape)[0]})
    return {
        "texts": len(texts),
        "tokens": sum(lengths),
        "flops": sum(forward_flops(backbone, 1, length) for length in lengths),
        "median_length": sorted(lengths)[len(lengths) // 2],
        "longest": max(lengths),
    }


def peak_flops(device: str, precision: str) -> float:
    """Of a matrix product in this run on a CPU; the vendor's for a GPU."""
    import torch

    if device.startswith("cuda"):
        from mar_st.planning.plan import DEVICES

        name = torch.cuda.get_device_name(0)
        peaks = [
            known.bf16 if precision == "bf16" else known.fp32 for key, known in DEVICES.items() if key in name
        ]
        return 1e12 * peaks[0] if peaks else float("nan")
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.randn(2048, 2048).to(dtype) for _ in range(2))
    times = []
    for _ in range(8):
        started = time.perf_counter()
        torch.mm(left, right)
        times.append(time.perf_counter() - started)
    return float(2 * 2048**3 / min(times))


def child(args: argparse.Namespace, folder: Path, name: str, precision: str) -> dict[str, Any] | None:
    """Measure in a process of its own; `None` where it failed."""
    command = [
        sys.executable, __file__, "--one", name, "--precision", precision, "--folder", str(folder),
        "--device", args.device, "--processes", str(args.processes), "--pool-batch", str(args.pool_batch),
        "--documents", str(args.documents),
        *(["--tokens", str(args.tokens)] if args.tokens else []),
    ]  # fmt: skip
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        print(f"{name} {precision} failed with exit code {run.returncode}", file=sys.stderr)
        return None
    figures: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return figures


def cosine_gap(folder: Path, name: str, precision: str) -> float | None:
    """Largest distance of a cosine from 1, to sentence-transformers in fp32."""
    import numpy as np

    paths = [folder / f"{name.replace(':', '-')}-{precision}.npy", folder / "st-32-fp32.npy"]
    if not all(path.is_file() for path in paths):
        return None
    vectors, expected = (np.load(path).astype(np.float64) for path in paths)
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    return float(np.abs(1 - (vectors * expected).sum(axis=1) / norms).max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=("tiny", "base", "4b"), default="tiny")
    parser.add_argument("--texts", nargs="+", default=["tasks/MedTEBRetrieval/corpus.jsonl"])
    parser.add_argument("--number", type=int, default=500, help="texts")
    parser.add_argument("--fill", type=int, help="draw texts out to so many tokens")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 8, 16, 64])
    parser.add_argument("--systems", nargs="+", help="default all: mar, mar-auto, st:32, ...")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="of the pool")
    parser.add_argument("--pool-batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, help="tokens per batch of mar; default its own")
    parser.add_argument("--documents", type=int, default=0, help="measure memory on so many documents")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-encode.jsonl"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="fp32", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        figures = memory(args, Path(args.folder)) if args.one == "memory" else one(args)
        print(json.dumps(figures))
        return
    with tempfile.TemporaryDirectory() as name:
        compare(args, Path(name))


def compare(args: argparse.Namespace, folder: Path) -> None:
    """Measure all systems and print ratios."""
    from importlib.util import find_spec

    texts = read_texts(args.texts, args.number)
    write_model(args.shape, texts, folder)
    if args.fill:
        from transformers import AutoTokenizer

        texts = fill(texts, AutoTokenizer.from_pretrained(folder), args.fill)
    (folder / "texts.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    base = {"shape": args.shape, "device": args.device, "processors": os.cpu_count(), "fill": args.fill}
    if args.documents:
        (folder / "few.jsonl").write_text('{"_id": "a", "text": "b"}\n')
        figures = child(args, folder, "memory", args.precisions[0])
        write(args.out, {**base, "precision": args.precisions[0], **(figures or {})})
        return
    base |= facts(folder, texts, args.shape)
    others = [f"st:{size}" for size in args.batches if size != 32]
    systems = args.systems or ["st:32", *others, "st-pool", "mteb", "flag", "mar", "mar-auto"]
    rows: list[dict[str, Any]] = []
    for precision in args.precisions:
        peak = peak_flops(args.device, precision)
        for name in systems:
            if name == "mar-auto" and args.device != "cpu":
                continue
            if name == "flag" and (find_spec("FlagEmbedding") is None or precision != "fp32"):
                print(f"{name} {precision}: FlagEmbedding is not installed or has no bf16", file=sys.stderr)
                continue
            figures = child(args, folder, name, precision)
            if figures is None:
                continue
            row = {**base, "system": name, "precision": precision, **figures}
            row["texts_per_second"] = row["texts"] / row["seconds"]
            row["tokens_per_second"] = row["tokens"] / row["seconds"]
            row["mfu"] = row["flops"] / row["seconds"] / peak
            row["peak_flops"] = peak
            row["cosine_gap"] = cosine_gap(folder, name, precision)
            rows.append(row)
            write(args.out, row)
    for row in rows:
        if row["system"].startswith("mar"):
            others = [r for r in rows if not r["system"].startswith("mar")]
            same = [r for r in others if r["precision"] == row["precision"]]
            for what, group in (("same precision", same), ("any precision", others)):
                if group:
                    best = min(group, key=lambda r: r["seconds"])
                    ratio = best["seconds"] / row["seconds"]
                    print(
                        f"{row['system']} {row['precision']}: {ratio:.2f} x {best['system']} "
                        f"{best['precision']} (best of {what})"
                    )


def write(out: Path, row: dict[str, Any]) -> None:
    line = json.dumps(row)
    print(line)
    with out.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


if __name__ == "__main__":
    main()
