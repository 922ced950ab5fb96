"""`mar encode`: a corpus to a folder of vectors, shard by shard, resumable.

A shard holds the vectors of a fixed number of consecutive documents; its bytes depend only on the model, the
settings and its own documents. So interrupted and distributed runs give the same files. If documents are
appended to a corpus, full shards stay unchanged; the last, partial one is encoded again with the new ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from mar_st.encode.corpus import Scan, ShardReader, scan_corpus
from mar_st.encode.folder import (
    MANIFEST,
    SHARDS,
    VectorFolder,
    read_table,
    shard_files,
    shard_metadata,
    text_digests,
    write_manifest,
)
from mar_st.encode.loading import model_identity, resolve
from mar_st.encode.settings import EncodeSettings
from mar_st.encode.worker import EncodeJob, Worker, run_processes, run_ray
from mar_st.errors import MarError
from mar_st.files import locked, read_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from mar_st.encode.settings import Executor

#: Version of the engine; raised by every change that makes it compute other bytes from the same settings.
ENGINE_VERSION = 1


def encode_corpus(
    model: str | Path,
    corpus: str | Path,
    out: str | Path,
    settings: EncodeSettings | None = None,
    *,
    workers: int | None = None,
    threads: int | None = None,
    engine: Executor = "local",
    show_progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> VectorFolder:
    """Encode the documents of a corpus and write a folder of vectors; resume an unfinished folder.

    Args:
        model: A saved MAR (only its document side is loaded), another sentence-transformers folder, a Hub
            name, or `mar-mini`.
        corpus: See `mar_st.encode.corpus.read_corpus`. It is read twice, first before anything is computed.
        out: Folder to write.
        settings: Dimension, precision, dtype, ...
        workers: Number of processes, each with the model; default one per GPU, or one on the CPU.
        threads: Batches computed at once on a CPU, over all workers; default all processors.
        engine: `local`, or `ray`, which distributes the shards over a Ray cluster. All its machines must see
            the model, the corpus and `out` under the same paths.
        show_progress: Show progress bars.
        say: Receives a line for each step.

    Returns:
        The opened folder.

    Raises:
        MarError: The folder was started with another model, other settings or another corpus, or another
            process is writing it; the corpus cannot be read, or an id occurs twice; the model does not exist,
            or it does not support the settings or fit into memory.
    """
    settings, root = settings or EncodeSettings(), Path(out)
    devices = _devices(workers)
    with locked(root, MarError):
        identity = model_identity(model)
        record = _record(root, identity, settings, devices[0])
        scan = scan_corpus(corpus, settings.shard, show_progress=show_progress)
        for line in scan.odd:
            say(line)
        missing = _missing(root, scan)
        finished = read_record(root / MANIFEST) or {"corpus": {}}
        if not missing and finished["corpus"].get("digest") == scan.digest:
            say(f"{root} is complete: {scan.count:,} vectors")
            return VectorFolder.open(root)
        (root / MANIFEST).unlink(missing_ok=True)
        total = sum(scan.size(number) for number in missing)
        say(f"{total:,} of {scan.count:,} documents to encode, in {len(missing)} shards")
        job = EncodeJob(str(resolve(model)), str(root.resolve()), scan, settings, record, devices[0], threads)
        bar = tqdm(
            total=scan.count,
            initial=scan.count - total,
            desc="encoding",
            unit="documents",
            disable=not show_progress,
        )
        with bar:

            def done(number: int) -> None:
                bar.update(scan.size(number))

            if missing and engine == "ray":
                run_ray(job, missing, done)
            elif len(devices) > 1:
                run_processes(job, missing, done, devices)
            elif missing:
                Worker(job).run(missing, done)
        absent = [number for number in missing if not shard_files(root, number)[0].is_file()]
        if absent:
            raise MarError(
                f"{len(absent)} shards were encoded elsewhere and are not in {root}. All machines must see "
                "it under this path: put it on shared storage."
            )
        facts = shard_metadata(shard_files(root, 0)[0])
        facts = {name: value for name, value in facts.items() if name not in ("digest", "record")}
        return write_manifest(
            root,
            len(scan.shards),
            model={"name": identity["name"], "digest": identity["digest"]},
            space=identity["space"],
            settings={
                **facts, "dtype": settings.precision, "computed": settings.dtype, "shard": settings.shard,
                "device": record["device"], "kernel": record["kernel"],
            },
            corpus={"path": str(corpus), "digest": scan.digest},
        )  # fmt: skip


def _devices(workers: int | None) -> list[str]:
    """Return the device of each process: the GPUs in turn, or the CPU for all."""
    import torch  # lazy: torch

    if torch.cuda.is_available():
        gpus = torch.cuda.device_count()
        return [f"cuda:{place % gpus}" for place in range(workers or gpus)]
    return ["mps" if torch.backends.mps.is_available() else "cpu"] * (workers or 1)


def _record(root: Path, identity: dict[str, Any], settings: EncodeSettings, device: str) -> dict[str, Any]:
    """Return what the bytes of shards depend on besides the corpus; existing shards must have the same.

    Raises:
        MarError: The folder was started with another model or other settings; the message names them.
    """
    record = {
        "model": identity["digest"], **settings.model_dump(), "device": device.partition(":")[0],
        "engine": ENGINE_VERSION, "kernel": _kernel(settings, device),
    }  # fmt: skip
    first = next((root / SHARDS).glob("*.safetensors"), None)
    if first is None:
        return record
    begun: dict[str, Any] = shard_metadata(first).get("record", {})
    record["kernel"] = begun.get("kernel")  # that of the first run, whatever is the fastest here
    changes = [
        f"{name}: was {begun.get(name)}, now {record[name]}"
        for name in record
        if begun.get(name) != record[name]
    ]
    if changes or not begun:
        raise MarError(
            f"{root} was started with another model or other settings ({'; '.join(changes)}). Repeat them, "
            "or give another folder."
        )
    return begun


def _kernel(settings: EncodeSettings, device: str) -> str:
    """Return the kernel for linear layers."""
    if device != "cpu" or settings.dtype == "float32":
        return "torch"
    import torch  # lazy: torch

    from mar_st.kernels.linear import best_kernel  # lazy: torch

    return best_kernel(torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32)


def _missing(root: Path, scan: Scan) -> list[int]:
    """Return the shards to encode; the others must be of this corpus.

    Raises:
        MarError: The folder was started with another corpus.
    """
    missing = []
    existing = sum(1 for _ in (root / SHARDS).glob("*.safetensors"))
    for number in range(max(len(scan.shards), existing)):
        path = shard_files(root, number)[0]
        if number >= len(scan.shards):
            raise MarError(
                f"{root} was started with a longer corpus: {scan.source} has {scan.count:,} documents now. "
                "Documents may be appended, not removed; give another folder."
            )
        if not path.is_file():
            missing.append(number)
        elif shard_metadata(path).get("digest") != scan.shards[number]:
            _check_appended(root, scan, number)
            missing.append(number)
    return missing


def _check_appended(root: Path, scan: Scan, number: int) -> None:
    """Refuse a shard that differs from the beginning of the current corpus at its place."""
    table = read_table(shard_files(root, number)[1])
    entries = ShardReader(scan).read(number)
    now = list(zip((one.id for one in entries), text_digests([one.document for one in entries]), strict=True))
    old = list(zip(table["id"].to_pylist(), table["digest"].to_pylist(), strict=True))
    changed = [
        identity
        for place, (identity, digest) in enumerate(old)
        if now[place : place + 1] != [(identity, digest)]
    ]
    if changed:
        raise MarError(
            f"{root} was started with another corpus: document {changed[0]!r} was changed, moved or removed. "
            "Documents may be appended at the end, not changed; give another folder, or the corpus as it was."
        )
