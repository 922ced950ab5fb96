from __future__ import annotations

import asyncio
import time

import pytest

from medteb_mteb.curation.llm.limits import Pace, RateLimits, Stop


def test_a_rate_limit_admits_exactly_its_units():
    pace = Pace(60, burst=2)
    waits = [pace.take(1, now=0.0) for _ in range(5)]
    assert waits == [0, 0, 0, 1, 2]
    assert pace.take(1, now=100.0) == 0
    assert Pace(None).take(1e9, 0.0) == 0


def test_a_large_request_makes_those_after_it_wait():
    pace = Pace(6000, burst=1)
    assert pace.take(1000, now=0.0) == 0
    assert pace.take(1, now=0.0) == pytest.approx(9)
    pace.correct(-500)
    assert pace.take(1, now=0.0) == pytest.approx(9.01 - 5)


def test_a_pause_delays_all_requests_and_a_stop_releases_them():
    async def main():
        limits, stop = RateLimits(None, None), Stop()
        limits.pause(0.2)
        started = time.monotonic()
        await asyncio.gather(*(limits.ready(1, stop) for _ in range(3)))
        assert 0.15 < time.monotonic() - started < 5
        limits.pause(60)
        started = time.monotonic()
        waiting = asyncio.create_task(limits.ready(1, stop))
        await asyncio.sleep(0.01)
        stop.set("first")
        stop.set("second")
        await waiting
        assert time.monotonic() - started < 5
        assert stop.reason == "first"

    asyncio.run(main())
