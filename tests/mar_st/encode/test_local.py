"""Shards are distributed to processes of this machine: each is encoded once, and a failure is reported."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mar_st.encode import EncodeSettings, local
from mar_st.encode.local import run_here, run_processes
from mar_st.encode.scan import Scan
from mar_st.encode.worker import EncodeJob
from mar_st.errors import MarError
from tests.mar_st.encode.corpora import encode, files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Notes:
    """A worker that encodes nothing: it notes the device, the threads and the process of every shard."""

    def __init__(self, job: EncodeJob) -> None:
        self.job = job

    def run(self, numbers: Iterable[int], done: Callable[[int], None]) -> None:
        for number in numbers:
            if number == 66:
                raise MarError("the corpus changed")
            if number == 67:
                raise RuntimeError("out of memory")
            if number == 68:
                time.sleep(0.05)
                os._exit(9)
            with (Path(self.job.out) / f"{number}-{os.getpid()}").open("x", encoding="utf-8") as stream:
                stream.write(f"{self.job.device} {self.job.threads}")
            time.sleep(0.005)
            done(number)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EncodeJob:
    """A job of forked workers that only take notes, in a folder of their own."""
    fork = local.multiprocessing.get_context("fork")
    monkeypatch.setattr(local.multiprocessing, "get_context", lambda _: fork)
    monkeypatch.setattr(local, "Worker", Notes)
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.05)
    (tmp_path / "notes").mkdir()
    scan = Scan("corpus.jsonl", 16, 0, "", (), ())  # no worker reads it
    return EncodeJob("model", str(tmp_path / "notes"), scan, EncodeSettings(), "cpu", threads=8)


def noted(job: EncodeJob) -> dict[int, str]:
    paths = list(Path(job.out).iterdir())
    read = {int(path.name.split("-")[0]): path.read_text(encoding="utf-8") for path in paths}
    assert len(read) == len(paths)  # no shard twice
    return read


def test_every_shard_is_encoded_once_by_some_process(job: EncodeJob) -> None:
    finished: list[int] = []
    run_processes(job, range(3, 11), finished.append, ["cpu"] * 2)
    assert sorted(finished) == sorted(noted(job)) == list(range(3, 11))


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (["cpu"], {"cpu 8"}),
        (["cpu", "cpu"], {"cpu 4"}),
        (["cuda:0", "cuda:1"], {"cuda:0 None", "cuda:1 None"}),
    ],
)
def test_processes_on_the_cpu_share_the_threads(
    job: EncodeJob, devices: list[str], expected: set[str]
) -> None:
    run_processes(job, range(8), lambda _: None, devices)
    assert set(noted(job).values()) <= expected
    assert len(noted(job)) == 8


def test_there_are_no_more_processes_than_shards(job: EncodeJob) -> None:
    run_processes(job, [5], lambda _: None, ["cpu"] * 4)
    assert noted(job) == {5: "cpu 8"}


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (66, "^the corpus changed$"),
        (67, "^A worker on cpu failed with RuntimeError: out of memory$"),
        (68, r"ended with exit code 9 \(killed, or out of memory\?\)\. Run the command again to resume"),
    ],
)
def test_a_process_that_fails_is_reported(job: EncodeJob, number: int, message: str) -> None:
    with pytest.raises(MarError, match=message):
        run_processes(job, [1, number], lambda _: None, ["cpu"])
    assert set(noted(job)) == {1}


def test_a_process_takes_no_shard_once_its_parent_is_gone(job: EncodeJob, monkeypatch: Any) -> None:
    monkeypatch.setattr(local.os, "getppid", lambda: 1)  # as for orphans
    value = local.multiprocessing.get_context("fork").Value("q", 0)
    local._work(job, (1, 2), value, None, os.getpid())
    assert (value.value, noted(job)) == (0, {})


def test_shards_are_encoded_in_this_process_in_their_order(job: EncodeJob) -> None:
    finished: list[int] = []
    run_here(job, [4, 2, 9], finished.append)
    assert finished == [4, 2, 9]
    assert set(noted(job)) == {2, 4, 9}


@pytest.mark.slow
def test_processes_give_the_same_files(
    model: Path, corpus: Path, tmp_path: Path, whole: dict[str, str]
) -> None:
    folder = encode(model, corpus, tmp_path / "v", workers=2)
    assert files(folder.path) == whole


@pytest.mark.slow
def test_a_worker_that_fails_is_reported(model: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(MarError, match="32 dimensions; 33"):
        encode(model, corpus, tmp_path / "v", EncodeSettings(dim=33, shard=16), workers=2)
