"""Items that are prepared ahead of their use, or used behind it, in a thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from mar_st.encode.pipeline import ahead, behind
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterator


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in ("ahead", "behind")]


def test_an_error_while_reading_is_raised_and_the_thread_ends() -> None:
    def broken() -> Any:
        yield 1
        raise MarError("line 2")

    with pytest.raises(MarError, match="line 2"), ahead(broken()) as items:
        list(items)
    with ahead(iter(range(1000))) as items:
        assert next(items) == 0
    assert not own_threads()


def test_an_error_while_writing_is_raised() -> None:
    seen: list[int] = []

    def use(item: int) -> None:
        seen.append(item)
        if item == 2:
            raise OSError("disk full")

    def write() -> None:
        with behind(use) as give:
            for item in range(10):
                give(item)

    with pytest.raises(OSError, match="disk full"):
        write()
    assert seen == [0, 1, 2]
    assert not own_threads()


@pytest.mark.parametrize("depth", [1, 3])
def test_items_keep_their_order_and_none_is_lost(depth: int) -> None:
    used: list[int] = []
    with ahead(range(50), depth) as items, behind(used.append, depth) as give:
        for item in items:
            give(item)
    assert used == list(range(50))
    assert not own_threads()


def test_only_as_many_items_are_prepared_ahead_as_are_asked_for() -> None:
    prepared: list[int] = []
    third = threading.Event()

    def items() -> Iterator[int]:
        for item in range(10):
            prepared.append(item)
            if item == 3:
                third.set()
            yield item

    with ahead(items(), depth=2) as results:
        assert next(results) == 0
        assert third.wait(10)  # two wait, and one more is being prepared
        assert prepared == [0, 1, 2, 3]
    assert not own_threads()


def test_what_was_handed_over_is_used_before_the_block_is_left() -> None:
    free, used = threading.Event(), []

    def use(item: str) -> None:
        free.wait(10)
        used.append(item)

    with behind(use) as give:
        give("a")
        give("b")
        assert used == []
        free.set()
    assert used == ["a", "b"]


def test_an_error_of_the_last_item_is_raised_when_the_block_is_left() -> None:
    def use(item: int) -> None:
        if item == 2:
            raise OSError("disk full")

    def write() -> None:
        with behind(use) as give:
            give(1)
            give(2)

    with pytest.raises(OSError, match="disk full"):
        write()


class Waiting:
    """An item that says when it is dropped."""

    def __init__(self, dropped: threading.Event) -> None:
        self.dropped = dropped

    def __del__(self) -> None:
        self.dropped.set()


def test_an_error_in_the_block_drops_the_item_that_waits() -> None:
    busy, dropped, used = threading.Event(), threading.Event(), []

    def use(item: str | Waiting) -> None:
        busy.set()
        dropped.wait(10)
        used.append(item)

    def fail() -> None:
        with behind(use) as give:
            give("first")
            busy.wait(10)
            give(Waiting(dropped))
            raise MarError("line 7")

    with pytest.raises(MarError, match="line 7"):
        fail()
    assert used == ["first"]
    assert not own_threads()
