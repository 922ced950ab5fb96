"""Tests that a server which ends because a mapped file was truncated logs one line with the file's name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import httpx
import pytest

from mar_st.serve.postmortem import short_files
from tests.mar_st.serve.fakes import DOCUMENTS
from tests.mar_st.serve.servers import make_index


def cut(index, name="vectors.npy"):
    path = index / "segments" / "000001" / name
    content = path.read_bytes()
    os.truncate(path, 0)
    return path, content


def lines(server, path):
    return [line for line in server.log if str(path) in line]


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    assert condition()


def test_truncated_files_are_named(tmp_path):
    index = make_index(tmp_path, DOCUMENTS)
    assert short_files([str(index), "org/name-on-the-hub", str(tmp_path)]) == []
    path, content = cut(index)
    path.with_name("rows.arrow").unlink()
    differences = short_files([str(index)])
    assert sorted(differences) == [
        f"{path.with_name('rows.arrow')} cannot be read (No such file or directory)",
        f"{path} has 0 bytes; {len(content)} were written",
    ]


@pytest.mark.thorough
def test_a_single_server_logs_one_line_for_a_truncated_file(serve, tmp_path):
    index = make_index(tmp_path, DOCUMENTS)
    server = serve(index)
    assert server.search("头疼").status_code == 200
    path, _ = cut(index)
    with pytest.raises(httpx.HTTPError):
        server.search("感冒")
    assert server.process.wait(20) == -signal.SIGBUS
    wait_for(lambda: lines(server, path))
    (line,) = lines(server, path)
    assert f"process {server.process.pid} ended by a bus error" in line
    assert "has 0 bytes" in line


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_stopped_or_killed_server_logs_no_such_line(serve, tmp_path, how):
    index = make_index(tmp_path, DOCUMENTS)
    server = serve(index)
    if how == "stopped":
        cut(index)
        assert server.stop() == 0
    else:
        server.process.kill()
        server.process.wait(20)
    time.sleep(0.5)
    assert not [line for line in server.log if "bus error" in line]


@pytest.mark.slow
def test_a_worker_is_replaced_once_the_file_is_whole(serve, tmp_path):
    index = make_index(tmp_path, DOCUMENTS)
    server = serve(index, workers=2)
    assert server.search("头疼").status_code == 200
    path, content = cut(index)
    with pytest.raises(httpx.HTTPError):
        server.search("头疼")
    path.write_bytes(content)  # before a new worker has opened it
    wait_for(lambda: any("ended by a bus error" in line for line in server.log))
    wait_for(lambda: _answers(server), 60)
    assert server.stop() == 0


def _answers(server):
    try:
        return server.search("头疼").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.slow
def test_workers_exit_naming_a_file_that_stays_truncated(tmp_path):
    index = make_index(tmp_path, DOCUMENTS)
    command = [sys.executable, "-m", "mar_st.cli", "serve", str(index), "--workers", "2", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        try:
            url = server.stdout.readline().split()[-1]
            path, _ = cut(index)
            with pytest.raises(httpx.HTTPError):
                httpx.post(f"{url}/search", json={"vector": [1.0] * 16}, timeout=20)
            _, errors = server.communicate(timeout=60)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
    assert server.returncode == 2, errors
    assert len([line for line in errors.splitlines() if str(path) in line and "bus error" in line]) == 1
    assert "Traceback" not in errors
