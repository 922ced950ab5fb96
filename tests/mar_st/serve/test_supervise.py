"""Tests of the processes of a server: signals, restarts of workers, and reports of those that died."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import pytest
from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import multiprocess

from mar_st.serve import supervise
from mar_st.serve.engine.fleet import Fleet, WorkerReport
from mar_st.serve.supervise import LoneServer, Workers


class Process:
    """A worker without a process."""

    numbers = iter(range(2**22 + 1, 2**23))  # beyond those of Linux

    def __init__(self, config=None, sockets=None):
        self.pid, self.exitcode, self.ready, self.ended = next(self.numbers), None, True, False

    def start(self):
        pass

    def die(self, exitcode):
        self.exitcode = exitcode

    def is_alive(self, timeout):
        return self.exitcode is None

    def is_ready(self, timeout):
        return self.ready

    def kill(self):
        pass

    def join(self):
        pass

    def terminate(self):
        self.ended = True


@pytest.fixture
def kept_signals():
    """The handlers of signals, which are restored."""
    names = [*multiprocess.SIGNALS, signal.SIGHUP]
    handlers = {name: signal.getsignal(name) for name in names}
    yield
    for name, handler in handlers.items():
        signal.signal(name, handler)


@pytest.fixture
def make(kept_signals, monkeypatch, tmp_path):
    """Makes a supervisor of two workers, and a list of when it was ready."""
    monkeypatch.setattr(multiprocess, "Process", Process)
    sockets = []

    def supervisor():
        ready = []
        sockets.append(socket.create_server(("127.0.0.1", 0)))
        config = Config("no.module:app", workers=2)
        workers = Workers(config, sockets[-1], tmp_path, ["index"], lambda: ready.append(1))
        workers.init_processes()
        return workers, ready

    yield supervisor
    for one in sockets:
        one.close()


def test_it_is_ready_once_and_only_when_all_workers_are(make):
    workers, ready = make()
    workers.processes[1].ready = False
    workers.keep_subprocess_alive()
    assert ready == []
    workers.processes[1].ready = True
    for _ in range(3):
        workers.keep_subprocess_alive()
    workers.processes[0].die(1)
    workers.keep_subprocess_alive()
    assert ready == [1]


@pytest.mark.parametrize(("exitcode", "told"), [(1, False), (-signal.SIGKILL, False), (-signal.SIGBUS, True)])
def test_a_dead_worker_is_replaced_and_its_report_dropped(make, monkeypatch, tmp_path, exitcode, told):
    calls = []
    monkeypatch.setattr(supervise, "tell", lambda pid, served: calls.append((pid, list(served))))
    workers, _ = make()
    dead, other = workers.processes
    for process in (dead, other):
        Fleet(tmp_path).report(WorkerReport(process.pid, 0, True, 5))
    dead.die(exitcode)
    workers.keep_subprocess_alive()
    assert workers.processes[1] is other
    assert workers.processes[0].pid != dead.pid
    assert [path.name for path in tmp_path.glob("worker-*.json")] == [f"worker-{other.pid}.json"]
    assert calls == ([(dead.pid, ["index"])] if told else [])
    assert not workers.failed
    assert not workers.should_exit.is_set()


def test_a_worker_that_could_not_start_ends_the_server(make):
    workers, ready = make()
    workers.processes[0].ready = False
    workers.processes[1].die(STARTUP_FAILURE)
    workers.keep_subprocess_alive()
    assert workers.failed
    assert workers.should_exit.is_set()
    assert ready == []


def test_sighup_reopens_the_index_in_the_same_workers(make, tmp_path):
    workers, _ = make()
    before = list(workers.processes)
    for number in (1, 2):
        os.kill(os.getpid(), signal.SIGHUP)
        workers.handle_signals()
        assert Fleet(tmp_path).wanted == number
    assert workers.processes == before
    assert not any(process.ended for process in before)


def test_clients_are_refused_before_workers_end(make, monkeypatch):
    workers, _ = make()
    address = workers.sockets[0].getsockname()
    refused = []

    def look(self):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=1)
        refused.append(self)

    socket.create_connection(address, timeout=1).close()
    monkeypatch.setattr(Process, "terminate", look)
    workers.terminate_all()
    assert refused == workers.processes


@pytest.mark.usefixtures("kept_signals")
@pytest.mark.parametrize("started", [True, False])
def test_one_process_is_ready_once_it_has_started_and_reopens_on_sighup(monkeypatch, tmp_path, started):
    async def startup(self, sockets=None):
        self.started = started

    ready = []
    monkeypatch.setattr(Server, "startup", startup)
    server = LoneServer(Config("no.module:app"), tmp_path, lambda: ready.append(1))
    asyncio.run(server.startup())
    assert ready == [1] * started
    os.kill(os.getpid(), signal.SIGHUP)
    assert Fleet(tmp_path).wanted == 1


@pytest.mark.usefixtures("kept_signals")
def test_an_index_that_cannot_be_reopened_is_logged_and_the_server_goes_on(make, tmp_path, caplog):
    workers, _ = make()
    (tmp_path / "wanted").write_text("no number")
    workers.handle_hup()
    assert "the index cannot be reopened (invalid literal" in caplog.text
    workers.keep_subprocess_alive()
    assert not workers.should_exit.is_set()
