"""Workers side by side: errors, Ctrl-C, and loops that are running already."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import pytest

from medteb_mteb.curation.llm.limits import Stop
from medteb_mteb.curation.llm.loop import INTERRUPTED, run_workers


class Worker:
    """Does something, then waits for a stop, or for others to get a turn."""

    def __init__(self, does=lambda: None, *, patience=0.0) -> None:
        self.does, self.patience = does, patience
        self.stop, self.ended = Stop(), False

    async def run(self) -> None:
        await asyncio.sleep(0)
        self.does()
        await self.stop.nap(self.patience)
        await asyncio.sleep(0)
        self.ended = True


def fail(message):
    def does():
        raise ValueError(message)

    return does


def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def in_a_loop(call):
    """Call a function while a loop is running that leaves Ctrl-C to Python, as that of a notebook does."""

    async def outer():
        call()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(outer())
    finally:
        loop.close()


WHERE = pytest.mark.parametrize("where", [lambda call: call(), in_a_loop], ids=["alone", "in a loop"])


@WHERE
def test_one_failure_ends_no_other_worker_and_the_first_is_raised(where):
    workers = [Worker(patience=0.05), Worker(fail("second")), Worker(fail("third")), Worker()]
    with pytest.raises(ValueError, match="second"):
        where(lambda: run_workers(workers))
    assert [worker.ended for worker in workers] == [True, False, False, True]
    where(lambda: run_workers([]))


@WHERE
def test_ctrl_c_stops_all_workers_and_waits_for_them(where):
    workers = [Worker(ctrl_c, patience=30), Worker(patience=30), Worker()]
    with suppress(KeyboardInterrupt):  # would end the tests
        where(lambda: run_workers(workers))
    assert [worker.stop.reason for worker in workers] == [INTERRUPTED] * 3
    assert [worker.ended for worker in workers] == [True] * 3


def test_a_second_ctrl_c_does_not_wait():
    class Twice(Worker):
        async def run(self) -> None:
            ctrl_c()
            await self.stop.nap(3)
            ctrl_c()
            await asyncio.sleep(3)
            self.ended = True

    workers = [Twice(), Worker(patience=3)]
    with pytest.raises(KeyboardInterrupt):
        run_workers(workers)
    assert not workers[0].ended


@pytest.mark.parametrize("does", [lambda: None, ctrl_c, fail("it")], ids=["done", "ctrl-c", "failed"])
def test_the_handler_of_ctrl_c_is_the_one_before(does):
    def own(number, frame):
        raise AssertionError

    before = signal.signal(signal.SIGINT, own)
    try:
        with suppress(ValueError):
            run_workers([Worker(does, patience=0.01)])
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
