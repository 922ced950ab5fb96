"""Worker processes that read and tokenise batches ahead of the training step: their number and start."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: Worker processes per training process that keep up with a GPU.
MAX_WORKERS = 4

#: Where workers pass batches to the training process, and the bytes that must be free there.
SHARED_MEMORY, MIN_SHARED_MEMORY = Path("/dev/shm"), 2**30  # noqa: S108 -- where the kernel keeps it


def worker_count(requested: int | None, device: torch.device) -> int:
    """Return the number of worker processes of this training process.

    The default is for GPUs: up to four, with one core left to each training process, and none if shared
    memory is too small for batches (containers often have 64 MB). On a CPU the step itself needs the cores.

    Args:
        requested: Number in the recipe; `None`: the default.
        device: Device of the model.
    """
    if requested is not None:
        return requested
    if device.type == "cpu" or not _forks() or not _has_room():
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(0, min(MAX_WORKERS, cores // processes - 1))


def worker_options(workers: int) -> dict[str, Any]:
    """Return the arguments of a `DataLoader` for this number of workers.

    Workers are forked if the system can: they share the mapped data and need no copy of the model. They
    start with every epoch and draw nothing at random, so batches do not depend on their number.
    """
    if not workers:
        return {}
    context = {"multiprocessing_context": "fork"} if _forks() else {}
    return {"num_workers": workers, "worker_init_fn": _start, **context}


def _start(worker: int) -> None:
    del worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads of a tokenizer do not survive a fork


def _forks() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()


def _has_room() -> bool:
    return not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free >= MIN_SHARED_MEMORY
