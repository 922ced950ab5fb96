"""Work of large requests runs in one thread, beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mar_st.serve.engine.aside import aside


def test_the_event_loop_goes_on_while_work_is_done():
    async def run():
        event = threading.Event()
        work = asyncio.create_task(aside(event.wait, 10))
        asyncio.get_running_loop().call_later(0, event.set)
        return await work

    assert asyncio.run(run()) is True


def test_calls_are_made_one_at_a_time_in_their_order():
    calls, threads = [], set()

    def work(number):
        calls.append(("begin", number))
        threads.add(threading.get_ident())
        calls.append(("end", number))
        return number

    async def run():
        return await asyncio.gather(*(aside(work, number) for number in range(20)))

    assert asyncio.run(run()) == list(range(20))
    assert calls == [(what, number) for number in range(20) for what in ("begin", "end")]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_an_error_reaches_its_own_caller_alone():
    async def run():
        return await asyncio.gather(aside(int, "x"), aside(int, "7"), return_exceptions=True)

    for _ in range(2):  # another event loop uses the same thread
        error, number = asyncio.run(run())
        assert number == 7
        with pytest.raises(ValueError, match="invalid literal"):
            raise error
