"""Worker processes that read and tokenise batches ahead of the training step: their number and start."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: Worker processes of a training process that are enough to keep up with a GPU.
ENOUGH = 4

#: Where batches pass from workers to the training process, and how much has to be free there (bytes).
SHARED_MEMORY, ROOM = Path("/dev/shm"), 2**30  # noqa: S108 -- where the kernel keeps it


def worker_count(asked: int | None, device: torch.device) -> int:
    """Worker processes of this training process.

    The default is for GPUs: up to four, one core left to each training process, and none where shared memory
    is too small for batches (containers often have 64 MB). On a CPU the step itself needs the cores.

    Args:
        asked: What the recipe says; `None`: the default.
        device: Device of the model.
    """
    if asked is not None:
        return asked
    if device.type == "cpu" or not _forks() or not _has_room():
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(0, min(ENOUGH, cores // processes - 1))


def worker_options(workers: int) -> dict[str, Any]:
    """Arguments of a `DataLoader` with so many workers.

    Workers are forked where the system can: they share the mapped data and need no copy of the model. They
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
    return not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free >= ROOM
