"""Distributing shards to the machines of a Ray cluster, by Ray Data.

Only the numbers of shards are sent: a pool of actors, each with the model, reads the shards from the corpus
and writes their vectors. If a machine is lost, Ray assigns its unfinished shards to other machines.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mar_st.encode.worker import EncodeJob, Worker
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ShardEncoder:
    """Actor of the pool: takes shard numbers, writes those shards, returns the numbers with any error."""

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

    An actor takes one GPU if the job is for a GPU, else `job.threads` processors (default 1). There are as
    many actors as the cluster has room for, also while it grows.

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
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
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
