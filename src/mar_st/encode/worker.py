"""Encoding shards with one model on one device: read, tokenise, compute and write, overlapped."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.encode.folder import SHARDS, text_digests
from mar_st.encode.loading import load_model
from mar_st.encode.pipeline import behind
from mar_st.encode.scan import Scan, ShardReader
from mar_st.encode.shards import write_shard
from mar_st.kernels.heap import keep, trim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np

    from mar_st.encode.corpus import Entry
    from mar_st.encode.settings import EncodeSettings
    from mar_st.kernels.linear import Kernel


@dataclass(frozen=True)
class EncodeJob:
    """Job of a worker, described by names and numbers.

    Attributes:
        model: Folder of the model.
        out: Folder of the vectors.
        scan: The corpus.
        settings: Settings to encode with.
        device: Device of the model.
        kernel: Implementation of linear layers.
        threads: Batches computed at once on a CPU.
    """

    model: str
    out: str
    scan: Scan
    settings: EncodeSettings
    device: str
    kernel: Kernel = "torch"
    threads: int | None = None


class Worker:
    """A loaded model that turns shards of a corpus into files."""

    def __init__(self, job: EncodeJob) -> None:
        from mar_st.encode.engine import Engine  # lazy: torch

        settings = job.settings
        self.job = job
        if job.device == "cpu":
            keep()
        self.engine = Engine(
            load_model(job.model, settings.dtype, job.device, kernel=job.kernel),
            "document",
            dim=settings.dim,
            prompt=settings.prompt,
            max_length=settings.max_length,
            tokens=settings.tokens,
            threads=job.threads,
        )
        self._reader = ShardReader(job.scan)

    def run(self, numbers: Iterable[int], done: Callable[[int], None]) -> None:
        """Encode shards; `done` is called for each when its files are in place.

        Raises:
            MarError: The corpus changed, or the model returns a value that is not finite.
        """

        def windows() -> Iterator[tuple[tuple[int, list[Entry]], list[str]]]:
            for number in numbers:
                entries = self._reader.read(number)
                yield (number, entries), [entry.document for entry in entries]

        def write(item: tuple[tuple[int, list[Entry]], np.ndarray]) -> None:
            (number, entries), vectors = item
            write_shard(
                Path(self.job.out) / SHARDS,
                number,
                [entry.id for entry in entries],
                text_digests([entry.document for entry in entries]),
                vectors,
                self.job.settings.precision,
                {"digest": self.job.scan.shards[number], **self.facts()},
            )
            trim()  # threads that free blocks of every size fragment the heap, by about 3 KB per document
            done(number)

        with behind(write) as give:
            for item in self.engine.stream(windows()):
                give(item)

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


def remove_parts(folder: Path) -> None:
    """Delete files that a killed process left half written."""
    for path in folder.glob("*.part"):
        with suppress(FileNotFoundError):
            path.unlink()
