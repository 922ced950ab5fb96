"""`mar encode`: a corpus to a folder of vectors, shard by shard, resumable.

A shard holds the vectors of a fixed number of consecutive documents; its bytes depend only on the model, the
settings and the corpus. So interrupted and distributed runs give the same files.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from mar_st.data.corpus import Entry, Scan, ShardReader, scan_corpus
from mar_st.encode.folder import (
    MANIFEST,
    SHARDS,
    VectorFolder,
    shard_file,
    shard_metadata,
    text_digests,
    write_manifest,
    write_shard,
)
from mar_st.encode.settings import SHARD_ROWS, Dtype, EncodeSettings, Executor
from mar_st.errors import MarError
from mar_st.files import locked
from mar_st.kernels.build import keep_freed, trim
from mar_st.model.digest import document_parts, model_digest, space_of
from mar_st.model.native_gte import fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from sentence_transformers import SentenceTransformer

    from mar_st.kernels.linear import Kernel


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
        corpus: See `mar_st.data.corpus.read_corpus`. It is read twice, first before anything is computed.
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
            model={
                "name": str(source.resolve() if Path(model).is_dir() else model), "digest": record["model"]
            },
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


def resolve(source: str | Path) -> Path:
    """Return the folder of a model: a given folder, that of a name such as `mar-mini`, or a Hub download.

    Raises:
        MarError: The model does not exist, or it has no document side.
    """
    folder = fetch(source)
    if document_parts(folder) is None:
        raise MarError(
            f"{source} has no document encoder, so it cannot encode a corpus. Give the whole model."
        )
    return folder


def load_model(source: str, dtype: Dtype, device: str, *, kernel: Kernel = "torch") -> SentenceTransformer:
    """Return a model on its device; of a MAR, only the document side.

    Args:
        source: Folder of the model.
        dtype: `bfloat16`, `float32`, or `auto`: float32 on a CPU, else that of the stored weights.
        device: Device, such as `cpu` or `cuda:1`.
        kernel: Implementation of linear layers; with any other than `torch`, the model can only be used for
            inference.

    Raises:
        MarError: The model has no document side, or this machine lacks the kernel.
    """
    import torch  # lazy: torch

    from mar_st.kernels.linear import use_kernel  # lazy: torch
    from mar_st.model.mar import open_model  # lazy: torch

    torch_dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(dtype)
    if dtype == "auto" and device == "cpu":
        torch_dtype = torch.float32
    options: dict[str, Any] = {
        "device": device,
        "model_kwargs": {"dtype": torch_dtype} if torch_dtype else {},
    }
    model = open_model(source, routes="document", **options)
    use_kernel(model, kernel)
    return model


@dataclass(frozen=True)
class EncodeJob:
    """Job of a worker, described by names and numbers.

    Attributes:
        model: Folder of the model.
        out: Folder of the vectors.
        scan: The corpus.
        settings: Settings to encode with.
        record: Everything that the bytes depend on, for the header of each shard.
        device: Device of the model.
        threads: Batches computed at once on a CPU.
    """

    model: str
    out: str
    scan: Scan
    settings: EncodeSettings
    record: dict[str, Any]
    device: str
    threads: int | None = None


class Worker:
    """A loaded model that turns shards of a corpus into files."""

    def __init__(self, job: EncodeJob) -> None:
        from mar_st.encode.engine import Engine  # lazy: torch

        settings = job.settings
        self.job = job
        if job.device == "cpu":
            keep_freed()
        self.engine = Engine(
            load_model(job.model, settings.dtype, job.device, kernel=job.record["kernel"]),
            "document",
            dim=settings.dim,
            prompt=settings.prompt,
            max_length=settings.max_length,
            threads=job.threads,
        )
        self._reader = ShardReader(job.scan)

    def run(self, numbers: Iterable[int], done: Callable[[int], None]) -> None:
        """Encode shards: one is read while another is computed and a third is written.

        Args:
            numbers: Numbers of the shards.
            done: Called for each shard when its files are in place.

        Raises:
            MarError: The model returns a value that is not finite.
        """

        def windows() -> Iterator[tuple[tuple[int, list[Entry]], list[str]]]:
            for number in numbers:
                entries = self._reader.read(number)
                yield (number, entries), [entry.document for entry in entries]

        def write(number: int, entries: list[Entry], vectors: np.ndarray) -> None:
            write_shard(
                Path(self.job.out),
                number,
                [entry.id for entry in entries],
                text_digests([entry.document for entry in entries]),
                vectors,
                self.job.settings.precision,
                {"record": self.job.record, **self.facts()},
            )
            trim()  # threads that free blocks of every size fragment the heap, by about 3 KB per document
            done(number)

        with ThreadPoolExecutor(1, "write") as writer:
            written: Future[None] | None = None
            for (number, entries), vectors in self.engine.stream(windows()):
                if written is not None:
                    written.result()
                written = writer.submit(write, number, entries, vectors)
            if written is not None:
                written.result()

    def facts(self) -> dict[str, Any]:
        """Describe the vectors for the manifest: width, similarity, prompt and maximum length."""
        engine = self.engine
        return {
            "dim": engine.dim,
            "normalised": engine.normalised,
            "similarity": engine.similarity,
            "prompt": engine.prompt,
            "max_length": engine.max_length or getattr(engine.model, "max_seq_length", None),
        }


class ShardEncoder:
    """Actor of a Ray pool: takes shard numbers, writes those shards, returns the numbers with any error."""

    def __init__(self, job: EncodeJob) -> None:
        self._job = job
        # Loaded with the first batch: Ray takes an error in a constructor for a lost actor and retries it.
        self._worker: Worker | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Encode the shards of a batch; `error` holds the message of an error that the user can fix."""
        message = ""
        try:
            self._worker = self._worker or Worker(self._job)
            self._worker.run(batch["shard"].tolist(), lambda _: None)
        except MarError as error:
            message = str(error)
        return {"shard": batch["shard"], "error": [message] * len(batch["shard"])}


def run_ray(job: EncodeJob, numbers: Sequence[int], done: Callable[[int], None]) -> None:
    """Encode shards on a Ray cluster: one that is running, or a new one on this machine only.

    Only the numbers of shards are sent: each actor has the model, reads the corpus and writes the vectors. An
    actor takes one GPU if the job is for a GPU, else `job.threads` processors (default 1). If a machine is
    lost, Ray assigns its unfinished shards to other machines.

    Args:
        job: The job.
        numbers: Numbers of the shards.
        done: Called with the number of each finished shard, in any order.

    Raises:
        MarError: Ray is not installed or gave up, or a worker raised an error.
    """
    try:
        import ray  # lazy: ray
        from ray.exceptions import RayError  # lazy: ray
    except ImportError as error:
        raise MarError("--engine ray needs the package ray: pip install 'medteb[scale]'") from error

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    gpu = job.device.startswith("cuda")
    threads = job.threads or 1
    ray.data.DataContext.get_current().enable_progress_bars = False
    # One shard per block, so that they can be distributed one by one.
    data = ray.data.from_items([{"shard": number} for number in numbers], override_num_blocks=len(numbers))
    written = data.map_batches(
        ShardEncoder,
        fn_constructor_args=[replace(job, device="cuda" if gpu else job.device, threads=threads)],
        batch_size=1,
        num_gpus=1 if gpu else 0,
        num_cpus=1 if gpu else threads,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=len(numbers)),
    )
    try:
        for row in written.iter_rows():
            if row["error"]:
                raise MarError(row["error"])
            done(int(row["shard"]))
    except RayError as error:
        raise MarError(
            f"Ray gave up ({type(error).__name__}: {str(error)[:300]}). Run the command again to resume."
        ) from error
