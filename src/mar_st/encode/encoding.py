"""`mar encode`: a corpus to a folder of vectors, shard by shard, resumable.

A shard is a file of the vectors of a fixed number of consecutive documents; its bytes depend only on the
model, the settings and its own documents. So interrupted and distributed runs give the same files. If
documents are appended to a corpus, full shards stay unchanged; the last, partial one is encoded again with
the new documents.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tqdm import tqdm

from mar_st.encode.folder import (
    MANIFEST,
    SHARDS,
    VectorFolder,
    read_manifest,
    shard_entry,
    shard_files,
    text_digests,
    write_manifest,
)
from mar_st.encode.loading import check_memory, model_identity, resolve
from mar_st.encode.local import run_here, run_processes
from mar_st.encode.on_ray import run_ray
from mar_st.encode.scan import Scan, ShardReader, scan_corpus
from mar_st.encode.settings import EncodeSettings
from mar_st.encode.shards import check_shard, read_header, read_table, shard_name
from mar_st.encode.worker import EncodeJob, remove_parts
from mar_st.errors import MarError
from mar_st.files import check_file, make_folder, read_json, refuse_links, write_json
from mar_st.files.locks import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mar_st.kernels.linear import Kernel

Executor: TypeAlias = Literal["local", "ray"]

#: File with the model and the settings that a folder was started with.
ENCODE_FILE = "encode.json"

#: Name of a shard's vectors, see `shard_name`; copies that other programs make have other names.
_VECTORS_FILE = re.compile(r"[0-9]{6,}\.safetensors")


class EncodeError(MarError):
    """A folder of vectors that cannot be continued; the message names the difference."""


def encode_corpus(
    model: str | Path,
    corpus: str | Path,
    out: str | Path,
    settings: EncodeSettings | None = None,
    *,
    devices: Sequence[str] | None = None,
    workers: int = 1,
    threads: int | None = None,
    engine: Executor = "local",
    show_progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> VectorFolder:
    """Encode the documents of a corpus and write a folder of vectors; resume an unfinished folder.

    Existing shards are compared with their digests; damaged ones are encoded again.

    Args:
        model: A saved MAR (only its document side is loaded), another sentence-transformers folder, a Hub
            name, or `mar-mini`.
        corpus: See `mar_st.encode.corpus.read_corpus`. It is read twice, first before anything is computed.
        out: Folder to write.
        settings: Dimension, precision, dtype, ...
        devices: Devices with one process each, such as `["cuda:0", "cuda:1"]`; default by `workers`.
        workers: Number of processes; each holds the model. They are assigned to the GPUs in turn. Without a
            GPU they share the processors; one process with several threads is then usually as fast.
        threads: Batches computed at once on a CPU, over all workers; default all processors.
        engine: `local`, or `ray`, which distributes the shards over a Ray cluster. All its machines must see
            the model, the corpus and `out` under the same paths.
        show_progress: Show progress bars.
        say: Receives a line for each step.

    Returns:
        The opened folder.

    Raises:
        EncodeError: The folder was started with another model, other settings or another corpus, or another
            process is writing it; or `workers` is given with `devices` or Ray, which set the number.
        CorpusError: The corpus cannot be read, or an id occurs twice.
        MarError: The model does not exist, or it does not support the settings or fit into memory.
    """
    settings, root = settings or EncodeSettings(), Path(out)
    chosen = _devices(devices, workers, engine)
    with _locked(root):
        identity = model_identity(model)
        kinds = {device.partition(":")[0] for device in chosen}
        if len(kinds) > 1:
            raise EncodeError(f"All devices of a run are of one kind; got {', '.join(chosen)}.")
        kernel = _kernel(root, settings, kinds)
        if kinds == {"cpu"} and engine == "local" and not (root / MANIFEST).is_file():
            check_memory(model, settings.dtype, len(chosen))
        _begin(root, {"model": identity, "settings": settings.identity(kinds.pop(), kernel=kernel)})
        scan = scan_corpus(corpus, settings.shard, show_progress=show_progress)
        missing = _missing(root, scan, say)
        if (
            not missing
            and ((_finished_manifest(root) or {}).get("corpus") or {}).get("digest") == scan.digest
        ):
            say(f"{root} is complete: {scan.count:,} vectors")
            return VectorFolder.open(root)
        (root / MANIFEST).unlink(missing_ok=True)
        remove_parts(root / SHARDS)
        total = sum(scan.size(number) for number in missing)
        say(f"{total:,} of {scan.count:,} documents to encode, in {len(missing)} shards")
        if len(chosen) > 1:
            say(f"{len(chosen)} processes on {', '.join(chosen)}")
        job = EncodeJob(str(resolve(model)), str(root.resolve()), scan, settings, chosen[0], kernel, threads)
        with tqdm(
            total=scan.count, initial=scan.count - total, desc="encoding", unit="documents",
            disable=not show_progress,
        ) as bar:  # fmt: skip

            def done(number: int) -> None:
                bar.update(scan.size(number))

            _execute(job, missing, done, chosen, engine)
        _check_written(root, missing)
        return _finish(root, scan, identity, settings)


def worker_devices(workers: int = 1) -> list[str]:
    """Return the devices of a number of processes: the GPUs in turn, or the CPU for all."""
    import torch  # lazy: torch

    if torch.cuda.is_available():
        return [f"cuda:{place % torch.cuda.device_count()}" for place in range(workers)]
    return ["mps" if torch.backends.mps.is_available() else "cpu"] * workers


def _devices(devices: Sequence[str] | None, workers: int, engine: Executor) -> list[str]:
    if workers < 1:
        raise EncodeError(f"workers is at least 1; got {workers}.")
    if workers > 1 and devices:
        raise EncodeError(f"{', '.join(devices)} get one process each; leave workers={workers} out.")
    if workers > 1 and engine == "ray":
        raise EncodeError(
            f"Ray starts as many workers as its cluster has room for; leave workers={workers} out."
        )
    return list(devices) if devices else worker_devices(workers)


def _execute(
    job: EncodeJob,
    missing: Sequence[int],
    done: Callable[[int], None],
    devices: Sequence[str],
    engine: Executor,
) -> None:
    if not missing:
        return
    if engine == "ray":
        run_ray(job, missing, done)
    elif len(devices) > 1:
        run_processes(job, missing, done, devices)
    else:
        run_here(job, missing, done)


def _check_written(root: Path, numbers: Sequence[int]) -> None:
    absent = [n for n in numbers if not (root / SHARDS / f"{shard_name(n)}.safetensors").is_file()]
    if absent:
        raise EncodeError(
            f"{len(absent)} shards were encoded elsewhere and are not in {root}. All machines must see it "
            "under this path: put it on shared storage."
        )


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Make a folder and lock it; after an error, delete it again if it is new and holds no vectors."""
    new = not root.exists()
    make_folder(root)
    refuse_links(root, EncodeError)
    (root / SHARDS).mkdir(exist_ok=True)
    with locked(root, EncodeError):
        try:
            yield
        except BaseException:
            if new and not _is_begun(root):
                shutil.rmtree(root, ignore_errors=True)
            raise


def _kernel(root: Path, settings: EncodeSettings, kinds: set[str]) -> Kernel:
    """Return the kernel for linear layers; a folder started with one kernel is finished with the same."""
    if kinds != {"cpu"} or settings.dtype == "float32":
        return "torch"
    if _is_begun(root):
        kernel: Kernel = _begun(root)["settings"].get("kernel", "torch")
        return kernel
    import torch  # lazy: torch

    from mar_st.kernels.linear import best_kernel  # lazy: torch

    return best_kernel(torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32)


def _is_begun(root: Path) -> bool:
    """Return True if a folder holds vectors; without any, a failed start binds it to no settings."""
    return (root / MANIFEST).is_file() or any((root / SHARDS).glob("*.safetensors"))


def _begun(root: Path) -> dict[str, Any]:
    """Return the record of model and settings that the vectors of a folder were computed with.

    Raises:
        EncodeError: There is none, or it is damaged.
    """
    path = root / ENCODE_FILE
    if not path.is_file():
        raise EncodeError(f"{root} holds vectors that 'mar encode' did not write. Give another folder.")
    try:
        record: dict[str, Any] = read_json(path)
        if not isinstance(record["settings"], dict):
            raise TypeError("its settings are not an object")
        _ = record["model"]["digest"], record["model"]["name"]
    except (KeyError, TypeError, ValueError) as error:
        raise EncodeError(
            f"{path} is damaged ({error!r}). Copy it from a backup, or give another folder."
        ) from error
    return record


def _begin(root: Path, record: dict[str, Any]) -> None:
    """Record model and settings of a new folder, or compare them with the record."""
    record = json.loads(json.dumps(record))
    if not _is_begun(root):
        write_json(root / ENCODE_FILE, record)
        return
    begun = _begun(root)
    changes = []
    if begun["model"]["digest"] != record["model"]["digest"]:
        names = [content["model"]["name"] for content in (begun, record)]
        same = "has other weights or settings now" if names[0] == names[1] else f"now it is {names[1]}"
        changes.append(f"model: was {names[0]}, {same}")
    old, new = EncodeSettings.named(begun["settings"]), EncodeSettings.named(record["settings"])
    for name in sorted({*old, *new}):
        before, now = old.get(name), new.get(name)
        if before != now:
            changes.append(f"{name}: was {_shown(before)}, now {_shown(now)}")
    if changes:
        raise EncodeError(
            f"{root} was started with other settings ({'; '.join(changes)}). Repeat them, or give another "
            "folder."
        )


def _shown(value: Any) -> str:
    return "the default" if value is None else repr(value)


def _missing(root: Path, scan: Scan, say: Callable[[str], None]) -> list[int]:
    """Return the shards to encode: missing and damaged ones.

    The others must be of this corpus; the last one may be of an earlier, shorter version.

    Raises:
        EncodeError: The folder was started with another corpus.
    """
    existing = sorted(
        int(path.stem) for path in (root / SHARDS).glob("*.safetensors") if _VECTORS_FILE.fullmatch(path.name)
    )
    if existing and existing[-1] >= len(scan.shards):
        raise EncodeError(
            f"{root} was started with a longer corpus: {scan.source} has {scan.count:,} documents now. "
            "Documents may be appended, not removed; give another folder."
        )
    complete = set()
    listed = (_finished_manifest(root) or {}).get("shards", [])
    for number in existing:
        path = root / SHARDS / f"{shard_name(number)}.safetensors"
        damage = _damage(root, number, listed[number] if number < len(listed) else None)
        if damage is not None:
            say(f"{damage} Its {scan.size(number):,} documents are encoded again.")
            continue
        if read_header(path).metadata.get("digest") == scan.shards[number]:
            complete.add(number)
        else:
            _check_appended(root, scan, number)
    return [number for number in range(len(scan.shards)) if number not in complete]


def _damage(root: Path, number: int, listed: dict[str, Any] | None) -> str | None:
    """Return how a shard is damaged; one without digests is compared with the manifest."""
    try:
        if check_shard(root / SHARDS, number) or listed is None:
            return None
    except MarError as error:
        return str(error).removesuffix(" Encode again.").removesuffix(" Delete it and encode again.")
    for name, entry in shard_files(listed).items():
        difference = check_file(root / SHARDS / name, entry)
        if difference is not None:
            return f"{root / SHARDS / name} {difference}."
    return None


def _check_appended(root: Path, scan: Scan, number: int) -> None:
    """Refuse a shard that differs from the beginning of the current corpus at its place."""
    table = read_table(root / SHARDS / f"{shard_name(number)}.arrow")
    entries = ShardReader(scan).read(number)
    digests = text_digests([entry.document for entry in entries])
    old = list(zip(table["id"].to_pylist(), table["digest"].to_pylist(), strict=True))
    first = number * scan.rows + 1
    for place, (identity, digest) in enumerate(old):
        if place >= len(entries):
            change = f"document {first + place} ({identity}) is no longer there"
        elif entries[place].id != identity:
            change = f"document {first + place} was {identity}, now it is {entries[place].id}"
        elif digests[place] != digest:
            change = f"the text of document {first + place} ({identity}) is another"
        else:
            continue
        raise EncodeError(
            f"{root} was started with another corpus: {change}. Documents may be appended at the end, not "
            "changed; give another folder, or the corpus as it was."
        )


def _finished_manifest(root: Path) -> dict[str, Any] | None:
    """Return the manifest of a finished folder; `None` if it is missing or invalid."""
    try:
        return read_manifest(root)
    except MarError:
        return None


def _finish(root: Path, scan: Scan, identity: dict[str, Any], settings: EncodeSettings) -> VectorFolder:
    facts = dict(read_header(root / SHARDS / f"{shard_name(0)}.safetensors").metadata)
    facts.pop("digest")
    recorded = settings.to_json()
    chosen = {name: recorded[name] for name in ("dtype", "precision", "tokens", "shard")}
    begun = _begun(root)["settings"]
    computed = {name: begun[name] for name in ("device", "kernel")}
    write_manifest(
        root,
        model={"name": identity["name"], "digest": identity["digest"]},
        space=identity["space"],
        settings={**facts, **chosen, **computed},
        corpus={"path": scan.source, "digest": scan.digest},
        shards=[shard_entry(root, number) for number in range(len(scan.shards))],
    )
    return VectorFolder.open(root)
