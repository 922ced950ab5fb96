"""One thread for the work of large requests, which would block the event loop.

Threads of Python take turns of `SWITCH` seconds. With a thread for each large request, a small one would wait
for a turn of each of them, several times on its way from the socket to the encoder, the index and back.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["SWITCH", "aside"]

#: Seconds after which a thread that computes lets the event loop have the interpreter; with Python's own 5 ms
#: every answer would wait that long while the index is searched.
SWITCH = 0.0005

Made = TypeVar("Made")


@lru_cache(maxsize=1)
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="aside")


async def aside(make: Callable[..., Made], *arguments: Any) -> Made:
    """Return the result of a function that is called in the thread for large requests."""
    return await asyncio.get_running_loop().run_in_executor(_thread(), make, *arguments)
