"""Tests of reading documents by id: waiting callers share a pass, and none fails because of another."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import pytest

from mar_st.errors import MarError
from mar_st.index.documents import Stored
from mar_st.serve.engine.reading import MAX_READS, DocumentReader
from mar_st.serve.errors import ApiError


class Shelf:
    """Documents with one-letter ids. Looking up `wait` takes until `go`; `damaged` and `bug` fail."""

    def __init__(self):
        self.passes, self.entered, self.go = [], threading.Event(), threading.Event()

    def find_documents(self, names):
        self.passes.append(list(names))
        if "wait" in names:
            self.entered.set()
            assert self.go.wait(20)
        if "damaged" in names:
            raise MarError("This document is damaged.")
        if "bug" in names:
            raise KeyError("bug")
        return {name: Stored(name, "", f"text of {name}", {}) for name in names if len(name) == 1}


@contextmanager
def reading():
    shelf = Shelf()
    reader = DocumentReader(shelf)
    yield shelf, reader
    shelf.go.set()
    reader.close()


async def held(shelf, reader):
    """Start a read that lasts until `shelf.go`."""
    task = asyncio.create_task(reader.read("wait"))
    await asyncio.wait_for(asyncio.to_thread(shelf.entered.wait, 20), 20)
    return task


async def queued(reader, *names):
    tasks = [asyncio.create_task(reader.read(name)) for name in names]
    await asyncio.sleep(0)  # every task runs until it waits
    return tasks


def found(results):
    return [result.id if isinstance(result, Stored) else result for result in results]


def test_callers_get_their_own_documents_in_one_pass():
    async def ask(shelf, reader):
        first = await held(shelf, reader)
        rest = await queued(reader, "a", "b", "none", "a")
        shelf.go.set()
        return found(await asyncio.gather(first, *rest))

    with reading() as (shelf, reader):
        assert asyncio.run(ask(shelf, reader)) == [None, "a", "b", None, "a"]
        assert shelf.passes == [["wait"], ["a", "b", "none", "a"]]


def test_a_damaged_document_fails_only_its_own_callers():
    async def ask(shelf, reader):
        first = await held(shelf, reader)
        rest = await queued(reader, "a", "damaged", "b", "damaged")
        shelf.go.set()
        return await asyncio.gather(first, *rest, return_exceptions=True)

    with reading() as (shelf, reader):
        _, a, damaged, b, again = asyncio.run(ask(shelf, reader))
    assert found([a, b]) == ["a", "b"]
    assert [str(error) for error in (damaged, again)] == ["This document is damaged."] * 2


def test_an_error_of_the_program_reaches_the_callers_of_its_pass_and_no_later_one():
    async def ask(shelf, reader):
        first = await held(shelf, reader)
        rest = await queued(reader, "a", "bug")
        shelf.go.set()
        results = await asyncio.gather(first, *rest, return_exceptions=True)
        return [*results[1:], await reader.read("a")]

    with reading() as (shelf, reader):
        *failed, later = asyncio.run(ask(shelf, reader))
    assert [type(error) for error in failed] == [KeyError, KeyError]
    assert later.id == "a"


def test_callers_who_leave_do_not_disturb_the_others():
    async def ask(shelf, reader):
        first = await held(shelf, reader)
        rest = await queued(reader, "a", "b", "c")
        first.cancel()
        rest[1].cancel()
        shelf.go.set()
        return found(await asyncio.gather(rest[0], rest[2], reader.read("d")))

    with reading() as (shelf, reader):
        assert asyncio.run(ask(shelf, reader)) == ["a", "c", "d"]


def test_callers_beyond_the_limit_are_refused_until_others_have_left():
    async def ask(shelf, reader):
        first = await held(shelf, reader)
        rest = await queued(reader, *["a"] * (MAX_READS - 1))
        with pytest.raises(ApiError) as refused:
            await reader.read("a")
        shelf.go.set()
        await asyncio.gather(first, *rest)
        again = await asyncio.gather(*[reader.read("b") for _ in range(MAX_READS)])
        return refused.value.status, found(again)

    with reading() as (shelf, reader):
        assert asyncio.run(ask(shelf, reader)) == (429, ["b"] * MAX_READS)
