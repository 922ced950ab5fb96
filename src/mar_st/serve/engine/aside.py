"""One thread for the work of large requests, which would block the event loop.

Python threads take turns of `SWITCH_SECONDS`. With one thread per large request, a small request would wait
for a turn of each thread several times on its way from the socket to the encoder, the index and back.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["SWITCH_SECONDS", "aside"]

#: Seconds after which a computing thread passes the interpreter to the event loop. With Python's default of
#: 5 ms, every answer would wait that long while the index is searched.
SWITCH_SECONDS = 0.0005

Result = TypeVar("Result")


@lru_cache(maxsize=1)
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="aside")


async def aside(make: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of a function that is called in the thread for large requests."""
    return await asyncio.get_running_loop().run_in_executor(_thread(), make, *arguments)
