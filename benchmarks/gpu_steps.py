"""The steps of `benchmarks/gpu.py`, each run in a process of its own."""

from __future__ import annotations

import gc
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from gpu import GRACE_SECONDS, LEFT_OUT_EXIT_CODE, ROOT, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKAGES = (
    "torch", "triton", "transformers", "sentence-transformers", "tokenizers", "accelerate", "peft",
    "datasets", "pydantic", "filelock", "pyarrow", "mteb", "faiss-cpu", "openvino", "onnxruntime",
    "deepspeed",
)  # fmt: skip

TRAINING = ("datasets", "pydantic", "accelerate", "filelock", "yaml")

#: Rows of the matrix product that tells a CPU's peak: this is for rehearsals.
PRODUCT_ROWS = 512

#: Texts that are encoded, by length.
ENCODED_TEXTS = {"512": 3000, "real": 20_000}
#: Batches of sentence-transformers; its best counts.
ST_BATCHES = (32, 128)


class MissingError(Exception):
    """A step lacks a package or an architecture; the message is the reason that the table gives."""


@dataclass
class Context:
    """Inputs of a step."""

    out: Path
    result: Path
    tiny: bool
    data: Path | None

    @property
    def work(self) -> Path:
        """Folder for weights and runs, shared by the steps."""
        folder = self.out / "work"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def report(self, content: dict[str, Any]) -> None:
        """Write what there is by now."""
        write(self.result, json.dumps(content, ensure_ascii=False))


def run_step(name: str, out: Path, result: Path, *, tiny: bool, data: Path | None) -> None:
    """Run a step in this process; exits with `LEFT_OUT_EXIT_CODE` where it lacks something."""
    context = Context(out, result, tiny, data)
    kind, *rest = name.split("-")
    try:
        if kind == "train":
            train_step(context, *rest)
        elif kind == "encode":
            encode_step(context, rest[-1])
        else:
            {"environment": environment, "tests": tests, "weights": weights, "mar": mar_small}[kind](context)
    except (MissingError, ModuleNotFoundError) as reason:
        missing = getattr(reason, "name", None)
        text = f"{missing} is not installed" if missing else str(reason)
        context.report({"left_out": text})
        print(text)
        sys.exit(LEFT_OUT_EXIT_CODE)


def require(*names: str) -> None:
    """Raise an error if packages are missing."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise MissingError(f"not installed: {', '.join(missing)}")


def device() -> str:
    """The device of all steps."""
    import torch

    return "cuda:0" if torch.cuda.is_available() else "cpu"


def environment(context: Context) -> None:
    """Versions, the device, its peak and what a matrix product reaches of it."""
    import torch
    from train import peak

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    size = 8192 if device() != "cpu" else PRODUCT_ROWS
    name, top = peak(PRODUCT_ROWS)
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device()) for _ in range(2))
    times = []
    for _ in range(10):
        synchronise()
        started = time.perf_counter()
        torch.mm(left, right)
        synchronise()
        times.append(time.perf_counter() - started)
    cuda = torch.cuda.is_available()
    context.report(
        {
            "device": name,
            "devices": torch.cuda.device_count(),
            "memory_gb": torch.cuda.get_device_properties(0).total_memory / 1e9 if cuda else None,
            "cuda": torch.version.cuda,
            "peak_tflops": top,
            "product_tflops": 2 * size**3 / sorted(times)[len(times) // 2] / 1e12,
            "python": platform.python_version(),
            "processors": os.cpu_count(),
            "disk_free_gb": shutil.disk_usage(context.out).free / 1e9,
            "compiler": next((c for c in ("g++", "gcc", "clang++") if shutil.which(c)), None),
            "versions": versions,
        }
    )


def synchronise() -> None:
    """Wait for the GPU, if there is one."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def tests(context: Context) -> None:
    """`pytest -m gpu`: how many passed, failed, were skipped, and why."""
    require("pytest")
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*on_gpu.py"))
    report = context.result.with_suffix(".xml")
    report.unlink(missing_ok=True)
    options = ["-v", "-m", "gpu", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}"]
    options += ["--durations=10"]
    # Not those of pyproject.toml, which need plugins.
    options += ["-o", "addopts=--import-mode=importlib"]
    if find_spec("xdist") is not None and device() != "cpu":
        options += ["-n", str(min(os.cpu_count() or 1, 6))]
    command = [sys.executable, "-m", "pytest", *options, *files]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)

    def interrupt(*_: object) -> None:
        """At the time limit: pytest, interrupted, still writes what failed so far."""
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_SECONDS - 2)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, interrupt)
    process.wait()
    if not report.is_file():  # it stops at once where the tests' own imports lack a package
        require(*TRAINING)
        raise SystemExit("pytest wrote no report")
    outcome: dict[str, Any] = {"passed": 0, "failed": {}, "skipped": {}}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        bad = [child for kind in ("failure", "error") for child in case.findall(kind)]
        skipped = case.find("skipped")
        if bad:
            outcome["failed"][name] = (bad[0].get("message") or bad[0].text or "")[:300]
        elif skipped is not None:
            outcome["skipped"][name] = skipped.get("message") or ""
        else:
            outcome["passed"] += 1
    context.report(outcome)
    if outcome["failed"]:
        raise SystemExit(f"{len(outcome['failed'])} of the tests failed")


def weights(context: Context) -> None:
    """Encoders of the published shapes with random weights, which the other steps load."""
    report: dict[str, Any] = {}
    for side in ("document", "query"):
        started = time.perf_counter()
        try:
            folder = backbone(context, side)
        except MissingError as reason:
            report[side] = {"left_out": str(reason)}
            continue
        size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
        report[side] = {"gb": size / 1e9, "seconds": time.perf_counter() - started}
        context.report(report)
    encoder_folder(context)
    context.report(report)


def backbone(context: Context, side: str) -> Path:
    """Folder of a side's encoder, written once.

    Raises:
        MissingError: This version of transformers lacks the architecture.
    """
    from published_shapes import GTE, QWEN_4B, shape_of, write_backbone
    from transformers import CONFIG_MAPPING

    name = {"query": GTE, "document": QWEN_4B}[side]
    kind = shape_of(name).config["model_type"]
    if kind not in CONFIG_MAPPING:
        raise MissingError(f"transformers {metadata.version('transformers')} has no {kind}")
    return write_backbone(name, context.work / "encoders" / side, tiny=context.tiny, device=device())


def encoder_folder(context: Context) -> Path:
    """The document encoder as a sentence-transformers model, pooled at EOS, written once."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize

    from mar_st.model.encoders import load_encoder

    folder = context.work / "encoder"
    if not folder.is_dir():
        part = folder.with_name("encoder.part")
        shutil.rmtree(part, ignore_errors=True)
        modules = load_encoder(str(backbone(context, "document")), "document")
        SentenceTransformer(modules=[*modules, Normalize()], device="cpu").save_pretrained(str(part))
        part.replace(folder)
    return folder


def each(context: Context, report: dict[str, Any], systems: dict[str, Callable[[], dict[str, Any]]]) -> None:
    """Measure systems one after the other and report each; one that fails leaves the others their turn."""
    failed = []
    report["systems"] = {}
    for name, measure in systems.items():
        fresh()
        try:
            report["systems"][name] = measure()
        except Exception as error:  # such as too little memory
            traceback.print_exc()
            report["systems"][name] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
            failed.append(name)
        context.report(report)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def fresh() -> None:
    """Free the memory of earlier measurements and reset the peak counters."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def train_step(context: Context, size: str, length: str) -> None:
    """Steps of the 4B encoder with LoRA, or of the 305M one: both trainers, then ours compiled."""
    require(*TRAINING)
    from train import one, peak
    from train_setups import Case

    large = size == "4b"
    if large:
        require("peft")
    backbone(context, "document" if large else "query")
    # At 512 tokens in one pass; real texts with GradCache, as the recipes have it.
    sizes = {
        ("4b", "512"): (32, None),
        ("4b", "real"): (128, 16),
        ("0.3b", "512"): (64, None),
        ("0.3b", "real"): (256, 64),
    }
    batch, mini_batch = (4, 2) if context.tiny else sizes[size, length]
    steps, every = (4, 2) if context.tiny else (8, 4) if large else (24, 8)
    case = Case(
        shape="tiny" if context.tiny else "published",
        stage="contrastive-document" if large else "contrastive-query",
        length=length,
        setup="mar",
        batch=batch,
        mini_batch=mini_batch,
        compile=False,
        steps=steps,
        warm_up=every,
        texts=None,
        every=every,
        weights=str(context.work / "encoders"),
    )
    _, top = peak(PRODUCT_ROWS)

    def measure(setup: str, *, compiled: bool = False) -> dict[str, Any]:
        row = one(replace(case, setup=setup, compile=compiled))
        row["mfu"] = row["tflops"] / top
        row["executed_mfu"] = row["executed_tflops"] / top
        if row["reserved_gb"]:
            row["reserved_to_planned"] = row["reserved_gb"] / row["planned_gb"]
        return row

    systems = {"mar": lambda: measure("mar"), "st": lambda: measure("plain")}
    if device() != "cpu":  # a CPU compiles for minutes
        systems["mar:compile"] = lambda: measure("mar", compiled=True)
    each(context, {}, systems)


def encode_step(context: Context, length: str) -> None:
    """The 4B encoder over a corpus in bf16: shards written as `mar encode` does, then `encode`."""
    import encode
    import torch
    from published_shapes import QWEN_4B, packaged_texts, shape_of
    from train import peak
    from transformers import AutoTokenizer

    from mar_st.planning.costs import forward_flops

    require("datasets", "yaml")
    folder = encoder_folder(context)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    number = 24 if context.tiny else ENCODED_TEXTS[length]
    known = packaged_texts()
    texts = [f"{known[i % len(known)]}{i}" for i in range(number)]
    if length == "512":
        texts = encode.fill(texts, tokenizer, 48 if context.tiny else 512)
    limit = 64 if context.tiny else 512
    lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=limit)["input_ids"]]
    shape = shape_of(QWEN_4B, tiny=context.tiny)
    _, top = peak(PRODUCT_ROWS)
    flops = sum(forward_flops(shape, 1, size) for size in lengths)

    def measure(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        row = run()
        return row | {
            "texts_per_second": len(texts) / row["seconds"],
            "tokens_per_second": sum(lengths) / row["seconds"],
            "mfu": flops / row["seconds"] / 1e12 / top,
            "reserved_gb": torch.cuda.max_memory_reserved() / 1e9 if torch.cuda.is_available() else None,
        }

    systems = {"mar": lambda: measure(lambda: encode_mar(context, folder, texts, limit))}
    for size in ST_BATCHES:
        systems[f"st:{size}"] = lambda size=size: measure(lambda: encode_st(folder, texts, limit, size))
    each(context, {"texts": len(texts), "tokens": sum(lengths)}, systems)


def encode_mar(context: Context, folder: Path, texts: list[str], limit: int) -> dict[str, Any]:
    """Encode a file as `mar encode` does: read, tokenise, compute and write shards; loading not counted."""
    import numpy as np

    from mar_st.encode import EncodeSettings
    from mar_st.encode.corpus import ShardReader, scan_corpus
    from mar_st.encode.folder import SHARDS
    from mar_st.encode.worker import EncodeJob, Worker

    corpus, out = context.work / "corpus.jsonl", context.work / "vectors"
    lines = [json.dumps({"_id": str(i), "text": text}, ensure_ascii=False) for i, text in enumerate(texts)]
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    (out / SHARDS).mkdir(parents=True)
    settings = EncodeSettings(dtype="bfloat16", max_length=limit, shard=max(8, len(texts) // 2))
    scan = scan_corpus(corpus, settings.shard, show_progress=False)
    worker = Worker(EncodeJob(str(folder), str(out), scan, settings, device()))
    first = worker.engine.encode(texts[:256])
    synchronise()
    started = time.perf_counter()
    scan = scan_corpus(corpus, settings.shard, show_progress=False)
    worker.job, worker._reader = EncodeJob(str(folder), str(out), scan, settings, device()), ShardReader(scan)
    worker.run(range(len(scan.shards)), lambda _: None)
    synchronise()
    seconds = time.perf_counter() - started
    model = worker.engine.model
    model.max_seq_length = limit
    expected = model.encode(texts[:256], batch_size=8)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(expected, axis=1)
    gap = float(np.abs(1 - (first * expected).sum(axis=1) / norms).max())
    return {"seconds": seconds, "packed": worker.engine.is_packed, "cosine_gap": gap}


def encode_st(folder: Path, texts: list[str], limit: int, size: int) -> dict[str, Any]:
    """Encode texts with `SentenceTransformer.encode`; loading not counted."""
    from encode import load

    model = load(folder, "bf16", device())
    model.max_seq_length = limit
    model.encode(texts[:256], batch_size=size)
    synchronise()
    started = time.perf_counter()
    model.encode(texts, batch_size=size, show_progress_bar=False)
    synchronise()
    return {"seconds": time.perf_counter() - started}


def mar_small(context: Context) -> None:
    """`mar train mar-small-gpu`, resumed where an earlier call was cut off."""
    require(*TRAINING)
    backbone(context, "query")
    from gpu_small import run

    run(context)
