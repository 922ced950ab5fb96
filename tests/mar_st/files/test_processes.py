from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from mar_st.files.processes import Processes

ROOT = Path(__file__).parents[3]

#: Two processes whose group times out after two seconds wait for a lock that is held for six.
SCRIPT = """
import os, socket, sys, time
from datetime import timedelta
from pathlib import Path
import torch.distributed
import torch.multiprocessing as mp
from filelock import FileLock
from mar_st.files import processes

FOLDER, HOW = Path(sys.argv[1]), sys.argv[2]
processes.POLL_SECONDS = 0.3

def work(rank, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=2))
    ours = processes.Processes()
    ours.wait()
    if HOW == "barrier" and rank == 0:
        time.sleep(6)
    if HOW == "barrier":
        ours.wait()
    with ours.locked(FOLDER / "stage.lock", lambda: (FOLDER / f"waited{rank}").touch()):
        ours.wait()
        (FOLDER / f"held{rank}").write_text(str((FOLDER / "released").exists()))
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lock = FileLock(FOLDER / "stage.lock")
    lock.acquire()
    workers = [mp.get_context("spawn").Process(target=work, args=(rank, port)) for rank in range(2)]
    for worker in workers:
        worker.start()
    while HOW == "lock" and not (FOLDER / "waited1").exists() and any(w.is_alive() for w in workers):
        time.sleep(0.05)
    if HOW == "lock":
        time.sleep(6)
    (FOLDER / "released").touch()
    lock.release()
    for worker in workers:
        worker.join()
    sys.exit(any(worker.exitcode for worker in workers))
"""


def _run(folder, how):
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    return subprocess.run(
        [sys.executable, str(script), str(folder), how],
        capture_output=True, text=True, check=False, env=environment, timeout=110,
    )  # fmt: skip


@pytest.mark.slow
def test_a_lock_may_be_held_longer_than_the_groups_timeout(tmp_path):
    done = _run(tmp_path, "lock")
    assert done.returncode == 0, done.stderr[-3000:]
    # Both report that they wait, and neither continues before the lock is free.
    assert all((tmp_path / f"waited{rank}").exists() for rank in (0, 1))
    assert [(tmp_path / f"held{rank}").read_text() for rank in (0, 1)] == ["True", "True"]


@pytest.mark.slow
def test_a_barrier_would_have_timed_out(tmp_path):
    """The check above is not vacuous."""
    done = _run(tmp_path, "barrier")
    assert done.returncode == 1
    assert "timed out" in done.stderr.lower() or "timeout" in done.stderr.lower()


def test_one_process_waits_and_takes_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("mar_st.files.processes.POLL_SECONDS", 0.05)
    is_locked, calls = threading.Event(), []

    def hold():
        with FileLock(tmp_path / "lock"):
            is_locked.set()
            while not calls:
                threading.Event().wait(0.02)

    other = threading.Thread(target=hold)
    other.start()
    is_locked.wait(10)
    ours = Processes()
    with ours.locked(tmp_path / "lock", lambda: calls.append(1)):
        assert calls == [1]
        assert not FileLock(tmp_path / "lock").is_locked
    other.join()
    with ours.locked(tmp_path / "lock", lambda: calls.append(2)):
        assert calls == [1]
