"""`mar encode`: a corpus to a folder of vectors, shard by shard, resumable.

A shard holds the vectors of a fixed number of consecutive documents; its bytes depend only on the model, the
settings and the corpus. So interrupted and distributed runs give the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from mar_st.encode.corpus import scan_corpus
from mar_st.encode.folder import MANIFEST, SHARDS, VectorFolder, shard_file, shard_metadata, write_manifest
from mar_st.encode.settings import SHARD_ROWS, EncodeSettings
from mar_st.encode.worker import EncodeJob, Worker, resolve, run_ray
from mar_st.errors import MarError
from mar_st.files import locked
from mar_st.model.digest import model_digest, space_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mar_st.encode.corpus import Scan
    from mar_st.encode.settings import Executor

#: Version of the engine; raised by every change that makes it compute other bytes from the same settings.
ENGINE_VERSION = 1


def encode_corpus(
    model: str | Path,
    corpus: str | Path,
    out: str | Path,
    settings: EncodeSettings | None = None,
    *,
    threads: int | None = None,
    shard: int = SHARD_ROWS,
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
        threads: Batches computed at once on a CPU; default all processors.
        shard: Documents per shard; a kill loses at most one shard.
        engine: `local`, one process with one GPU; or `ray`, which distributes the shards over all GPUs of
            this machine or of a Ray cluster. All machines must see the model, the corpus and `out` under the
            same paths.
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
    device = _device()
    with locked(root):
        source = resolve(model)
        scan = scan_corpus(corpus, shard, show_progress=show_progress)
        for line in scan.odd:
            say(line)
        record = _record(root, source, scan, settings, device)
        missing = [number for number in range(scan.shards) if not shard_file(root, number).is_file()]
        if not missing and (root / MANIFEST).is_file():
            say(f"{root} is complete: {scan.count:,} vectors")
            return VectorFolder.open(root)
        total = sum(scan.size(number) for number in missing)
        say(f"{total:,} of {scan.count:,} documents to encode, in {len(missing)} shards")
        job = EncodeJob(str(source), str(root.resolve()), scan, settings, record, device, threads)
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
            elif missing:
                Worker(job).run(missing, done)
        absent = [number for number in missing if not shard_file(root, number).is_file()]
        if absent:
            raise MarError(
                f"{len(absent)} shards were encoded elsewhere and are not in {root}. All machines must see "
                "it under this path: put it on shared storage."
            )
        facts = shard_metadata(shard_file(root, 0))
        del facts["record"]
        return write_manifest(
            root,
            scan.shards,
            model={"name": str(model), "digest": record["model"]},
            space=space_of(source),
            settings={
                **facts, "dtype": settings.precision, "computed": settings.dtype, "shard": shard,
                "device": record["device"], "kernel": record["kernel"],
            },
            corpus={"path": str(corpus), "digest": scan.digest},
        )  # fmt: skip


def _device() -> str:
    import torch  # lazy: torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _record(root: Path, source: Path, scan: Scan, settings: EncodeSettings, device: str) -> dict[str, Any]:
    """Return what the bytes of shards depend on; existing shards must have the same.

    Raises:
        MarError: The folder was started with another model or corpus, or other settings; the message names
            them.
    """
    record = {
        "model": model_digest(source, route="document"), "corpus": scan.digest, "shard": scan.rows,
        **settings.model_dump(),
        "device": device, "engine": ENGINE_VERSION, "kernel": _kernel(settings, device),
    }  # fmt: skip
    first = next((root / SHARDS).glob("*.arrow"), None)
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
            f"{root} was started with another model or corpus, or other settings ({'; '.join(changes)}). "
            "Repeat them, or give another folder."
        )
    return begun


def _kernel(settings: EncodeSettings, device: str) -> str:
    """Return the kernel for linear layers."""
    if device != "cpu" or settings.dtype == "float32":
        return "torch"
    import torch  # lazy: torch

    from mar_st.kernels.linear import best_kernel  # lazy: torch

    return best_kernel(torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32)
