"""Overlapping steps: the next item is prepared in a thread while the current one is used."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")

_END = object()
_POLL_SECONDS = 0.1


@contextmanager
def ahead(items: Iterable[Item], depth: int = 1) -> Iterator[Iterator[Item]]:
    """Iterate in a thread, at most `depth` items ahead (plus the item that is being prepared).

    An exception in the iteration is raised where the items are used. Leaving the block ends the thread.
    """
    queue: Queue[Any] = Queue(maxsize=depth)
    stop = threading.Event()

    def work() -> None:
        try:
            for item in items:
                if not _put(queue, (item, None), stop):
                    return
        except BaseException as error:
            _put(queue, (None, error), stop)
        else:
            _put(queue, _END, stop)

    def results() -> Iterator[Item]:
        while (entry := queue.get()) is not _END:
            item, error = entry
            if error is not None:
                raise error
            yield item

    thread = threading.Thread(target=work, name="ahead", daemon=True)
    thread.start()
    try:
        yield results()
    finally:
        stop.set()
        thread.join()


@contextmanager
def behind(use: Callable[[Item], None], depth: int = 1) -> Iterator[Callable[[Item], None]]:
    """Hand items to a thread that uses them in order; at most `depth` items wait.

    Leaving the block waits until all are used. An exception in `use` is raised when the next item is handed
    over or the block is left.
    """
    queue: Queue[Any] = Queue(maxsize=depth)
    failed = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        while (item := queue.get()) is not _END:
            try:
                use(item)
            except BaseException as error:
                errors.append(error)
                failed.set()
                return

    def give(item: Item) -> None:
        if not _put(queue, item, failed):
            raise errors[0]

    thread = threading.Thread(target=work, name="behind", daemon=True)
    thread.start()
    try:
        yield give
    except BaseException:
        failed.set()
        while not queue.empty():
            try:
                queue.get_nowait()
            except Empty:
                break
        queue.put(_END)
        thread.join()
        raise
    _put(queue, _END, failed)
    thread.join()
    if errors:
        raise errors[0]


def _put(queue: Queue[Any], item: Any, stop: threading.Event) -> bool:
    """Put an item when there is room; return False once `stop` is set."""
    while not stop.is_set():
        try:
            queue.put(item, timeout=_POLL_SECONDS)
        except Full:
            continue
        return True
    return False
