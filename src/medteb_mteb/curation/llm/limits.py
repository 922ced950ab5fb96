"""Limits of an LLM on requests and tokens per minute, and pauses that its endpoint requests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time

__all__ = ["Pace", "RateLimits", "Stop"]


class Stop:
    """Signal to all requests to an LLM that no further attempt is wanted.

    Attributes:
        reason: Reason; empty until the signal is set.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._event = asyncio.Event()

    def set(self, reason: str) -> None:
        """Set the signal; the first reason is kept."""
        self.reason = self.reason or reason
        self._event.set()

    async def nap(self, seconds: float) -> None:
        """Sleep until the time is over or the stop is set."""
        if seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)


class Pace:
    """Admits `per_minute` units per minute evenly, after an initial burst of a few seconds' worth.

    Args:
        per_minute: Units per minute; `None`: no limit.
        burst: Units that may be admitted at once, as seconds of the rate.
    """

    def __init__(self, per_minute: float | None, *, burst: float = 1.0) -> None:
        self._rate = None if per_minute is None else per_minute / 60
        self._burst = burst
        self._free_at = -math.inf

    def take(self, units: float, now: float) -> float:
        """Count units as used, and return the seconds to wait first."""
        if self._rate is None:
            return 0.0
        start = max(self._free_at, now - self._burst)
        # All units are charged at once, even if they exceed a burst; later requests wait for them.
        self._free_at = start + units / self._rate
        return max(0.0, start - now)

    def correct(self, units: float) -> None:
        """Correct an estimate: count further units, or fewer if negative."""
        if self._rate is not None:
            self._free_at += units / self._rate


class RateLimits:
    """The limits of one LLM.

    Args:
        requests_per_minute: Limit on requests; `None`: none.
        tokens_per_minute: Limit on tokens; `None`: none.
    """

    def __init__(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        self._requests = Pace(requests_per_minute)
        self._tokens = Pace(tokens_per_minute, burst=10.0)
        self._paused_until = 0.0

    async def ready(self, tokens: int, stop: Stop) -> None:
        """Wait until a request of about `tokens` tokens may be sent, or is no longer wanted."""
        now = time.monotonic()
        await stop.nap(max(self._requests.take(1, now), self._tokens.take(tokens, now)))
        while (remaining := self._paused_until - time.monotonic()) > 0 and not stop.reason:
            await stop.nap(remaining)

    def used(self, tokens: int, estimated: int) -> None:
        """Record the number of tokens that a request took."""
        self._tokens.correct(tokens - estimated)

    def pause(self, seconds: float) -> None:
        """Send no requests for some seconds."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)
