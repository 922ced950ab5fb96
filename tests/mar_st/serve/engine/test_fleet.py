"""Reloading in workers that share a folder."""

from __future__ import annotations

import asyncio
import os
import shutil
from types import SimpleNamespace

import pytest

from mar_st.errors import MarError
from mar_st.serve.engine import fleet as fleets
from mar_st.serve.engine.fleet import Fleet, WorkerReport, follow


class Generations:
    """Counts reloads."""

    stamp = None

    def __init__(self) -> None:
        self.current, self.reloads = SimpleNamespace(documents=3), 0
        self.failures: list[Exception] = []

    def changed(self) -> bool:
        if self.failures:
            raise self.failures.pop()
        return False

    async def reload(self) -> None:
        self.reloads += 1


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(fleets, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(fleets, "WATCH_SECONDS", 0.0)


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_deleted_folder_is_created_again(tmp_path):
    fleet = Fleet(tmp_path / "shared")
    assert fleet.raise_wanted() == 1
    shutil.rmtree(fleet.folder)
    fleet.report(WorkerReport(os.getpid(), 0, True, 5))
    assert [report.documents for report in fleet.reports()] == [5]
    assert fleet.raise_wanted() == 1
    assert fleet.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("quick")
def test_workers_reload_after_their_folder_was_deleted(tmp_path):
    generations = Generations()

    async def play():
        fleet = Fleet(tmp_path / "shared")
        for _ in range(3):
            seen = fleet.raise_wanted()
        following = asyncio.create_task(follow(fleet, generations, seen=seen, watch=False))
        await until(fleet.reports)
        shutil.rmtree(fleet.folder)
        number = fleet.raise_wanted()
        reports = await fleet.settled(number, 5)
        following.cancel()
        return number, reports

    number, reports = asyncio.run(play())
    assert generations.reloads
    assert [report.wanted for report in reports] == [number]


@pytest.mark.usefixtures("quick")
def test_a_failed_look_is_logged_once_and_repeated(tmp_path, caplog):
    generations = Generations()
    generations.failures = [OSError("Too many levels of symbolic links")] * 3

    async def play():
        fleet = Fleet(tmp_path)
        following = asyncio.create_task(follow(fleet, generations, seen=0, watch=True))
        await until(lambda: not generations.failures)
        number = fleet.raise_wanted()
        reports = await fleet.settled(number, 5)
        following.cancel()
        return reports

    assert [report.ok for report in asyncio.run(play())] == [True]
    assert caplog.text.count("Too many levels of symbolic links") == 1


@pytest.mark.usefixtures("quick")
def test_a_watched_folder_that_is_still_being_copied_is_opened_when_it_is_complete(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(fleets, "RETRY_SECONDS", 0.02)

    class Copied(Generations):
        stamp = "manifest.json is there"
        attempts, complete = 0, False

        def changed(self):
            return not self.reloads

        async def reload(self):
            self.attempts += 1
            if not self.complete:
                raise MarError("The index lacks a file.")
            await super().reload()

    generations = Copied()

    async def play():
        following = asyncio.create_task(follow(Fleet(tmp_path), generations, seen=0, watch=True))
        await until(lambda: generations.attempts == 3)
        generations.complete = True
        await until(lambda: generations.reloads)
        await asyncio.sleep(0.05)
        following.cancel()
        return Fleet(tmp_path).reports()

    reports = asyncio.run(play())
    assert generations.reloads == 1
    assert [(report.ok, report.message) for report in reports] == [(True, "")]
    assert caplog.text.count("The index lacks a file.") == 1


@pytest.mark.usefixtures("quick")
def test_a_watched_folder_that_cannot_be_opened_is_tried_again_only_after_a_while(tmp_path):
    class Damaged(Generations):
        stamp = "damaged"

        def changed(self):
            return True

        async def reload(self):
            await super().reload()
            raise MarError("The index is damaged.")

    generations = Damaged()

    async def play():
        following = asyncio.create_task(follow(Fleet(tmp_path), generations, seen=0, watch=True))
        await until(lambda: generations.reloads)
        await asyncio.sleep(0.1)
        following.cancel()

    asyncio.run(play())
    assert generations.reloads == 1


def test_a_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(MarError, match="belongs to another user"):
        Fleet(tmp_path).raise_wanted()
