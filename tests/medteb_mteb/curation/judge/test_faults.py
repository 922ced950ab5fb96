"""Labels of a run full of faults and kills are those of a run without any, and nothing is paid twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fault_server import ANSWER, LINE

from medteb_mteb.curation.judge import JournalError, judge
from medteb_mteb.curation.judge.journal import JudgementJournal

ROOT = Path(__file__).resolve().parents[4]


def run(source, config, out="out", **options):
    options = {"already_anonymous": True, "show_progress": False} | options
    return judge(*source.paths, source.folder / out, config, **options)


def until_done(source, config, rounds=40, **options):
    """Runs until nothing has failed; reports of all of them."""
    reports = [run(source, config, **options)]
    while reports[-1].judges[0].outcome.failed and len(reports) < rounds:
        reports.append(run(source, config, retry_failed=True, **options))
    return reports


@pytest.fixture
def clean(make_input, make_server, endpoint, judges_of, content):
    """A build without faults to compare with."""

    def make(*size):
        source = make_input(*size)
        report = run(
            source, judges_of(make_server(endpoint())), out="clean", journal=source.folder / "c.sqlite"
        )
        assert report.complete
        return source, content(report.folder)

    return make


@pytest.mark.thorough(but=["refusal", "invalid"])
@pytest.mark.parametrize("kind", [*LINE, *ANSWER])
def test_a_fault_of_any_kind_changes_no_label(clean, make_server, endpoint, judges_of, content, kind):
    source, expected = clean(2, 12)
    line, answers = tuple({kind} & set(LINE)), tuple({kind} & set(ANSWER))
    server = endpoint(rate=0.5, line=line, answers=answers, seed=3, hang=0.5)
    config = judges_of(make_server(server), timeout=0.4, retries=30)
    reports = until_done(source, config)
    assert server.faults[kind] >= 2
    assert content(source.folder / "out") == expected
    assert set(server.sold.values()) == {1}
    assert sum(server.sold.values()) == source.pairs
    if kind in LINE:
        assert sum(reports[0].judges[0].details["faults"].values()) >= 2
        assert not server.spoiled
        assert len(reports) == 1
    else:
        assert reports[0].judges[0].details["asked_again"] >= 1


@pytest.mark.slow
def test_faults_of_all_kinds_change_no_label(clean, make_server, endpoint, judges_of, content):
    source, expected = clean(2, 16)
    server = endpoint(rate=0.1, hang=0.5, seed=1)
    config = judges_of(make_server(server), timeout=0.4, retries=30)
    until_done(source, config, rounds=4)
    server.rate = 0.0  # the rest of the rounds would only take time
    reports = until_done(source, config)
    assert len(server.faults) >= 10
    assert not reports[-1].judges[0].outcome.failed
    assert content(source.folder / "out") == expected
    assert set(server.sold.values()) == {1}
    assert sum(server.sold.values()) == source.pairs


def test_pairs_that_fail_twice_are_counted_and_retried_only_on_demand(
    make_input, make_server, endpoint, judges_of
):
    source = make_input(1, 8)
    server = endpoint(rate=1.0, line=(), answers=("refusal",))
    config = judges_of(make_server(server), max_failed=1.0, unreadable=None)
    report = run(source, config)
    assert report.complete
    assert report.judges[0].outcome.failed == {"refused": 8}
    assert server.made == 2 + 8  # two prompts, then each passage alone
    failed = [json.loads(line) for line in (report.folder / "failed.jsonl").read_text("utf-8").splitlines()]
    assert failed[0] == {"query-id": "q0", "corpus-id": "d000", "judge": "words", "reason": "refused"}
    assert (report.folder / "judgements.jsonl").read_bytes() == b""
    assert run(source, config, out="other").judges[0].outcome.failed == {"refused": 8}
    assert server.made == 10
    run(source, config, retry_failed=True)
    assert server.made == 18
    server.rate = 0.0
    report = run(source, config, retry_failed=True)
    assert not report.judges[0].outcome.failed
    assert len((report.folder / "judgements.jsonl").read_text("utf-8").splitlines()) == 8
    assert set(server.sold.values()) == {1}


def _killed(source, config, pid):
    pid.value = os.getpid()
    run(source, config)


def kill_at(arrivals, pid):
    """Kills the process that asks, as the request of that number arrives."""
    left = sorted(arrivals)

    def arrived(number):
        if left and number >= left[0] and pid.value:
            left.pop(0)
            os.kill(pid.value, signal.SIGKILL)
            pid.value = 0

    return arrived


@pytest.mark.thorough
@pytest.mark.parametrize(("rate", "idempotent"), [(0.0, True), (0.1, True), (0.0, False)])
def test_kills_lose_no_paid_answer(clean, make_server, endpoint, judges_of, content, rate, idempotent):
    source, expected = clean(4, 20)
    context = multiprocessing.get_context("fork")
    pid = context.Value("i", 0)
    kills = [1, 9, 18, 27]
    server = endpoint(
        rate=rate,
        line=("429", "500", "cut"),
        seed=5,
        idempotent=idempotent,
        latency=0.02,
        on_arrival=kill_at(kills, pid),
    )
    config = judges_of(make_server(server), retries=30, concurrency=4)
    ended = []
    for _ in range(len(kills) + 1):
        child = context.Process(target=_killed, args=(source, config, pid))
        child.start()
        child.join()
        ended.append(child.exitcode)
        if child.exitcode == 0:
            break
    assert ended.count(-signal.SIGKILL) >= 3
    assert ended[-1] == 0
    until_done(source, config)
    assert content(source.folder / "out") == expected
    assert len(server.sold) == source.pairs
    twice = sum(count - 1 for count in server.sold.values())
    if idempotent:
        assert twice == 0
    else:  # what was under way at a kill, and no more
        assert (
            twice <= ended.count(-signal.SIGKILL) * config.judges[0].concurrency * config.judges[0].passages
        )


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 3 MB; filling it up leaves no room for a byte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no small disk can be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk):
    with (disk / "filler").open("ab", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(b"x" * 512)


@pytest.mark.thorough
@pytest.mark.parametrize("room", [True, False])
def test_a_run_stopped_by_a_full_disk_resumes_to_the_same_labels(
    clean, make_server, endpoint, judges_of, content, small_disk, monkeypatch, room
):
    """The room kept in reserve takes the answers under way; without it there is one clear error."""
    monkeypatch.setattr("medteb_mteb.curation.llm.database.SYNC_SECONDS", 60)  # the log is not used again
    source, expected = clean(3, 20)
    server = endpoint(latency=0.05)
    path = small_disk / "journal.sqlite"

    def arrived(number):
        if number == 6:
            if not room:
                path.with_name(path.name + ".reserve").unlink()
            fill(small_disk)

    server.on_arrival = arrived
    config = judges_of(make_server(server), concurrency=4)
    if room:
        report = run(source, config, journal=path)
        assert not report.complete
        assert "database or disk is full" in report.judges[0].stopped
        assert sum(server.sold.values()) == report.judges[0].bought
        assert report.judges[0].outcome.left > 0
    else:
        with pytest.raises(JournalError, match=r"full.*Free disk space; the same command resumes"):
            run(source, config, journal=path)
    fill(small_disk)
    with pytest.raises(JournalError, match=r"no room|disk is full|is full or failing"):
        run(source, config, journal=path)
    (small_disk / "filler").unlink()
    server.on_arrival = None
    assert run(source, config, journal=path).complete
    assert content(source.folder / "out") == expected
    assert set(server.sold.values()) == {1}  # what found no room is given again, under its key


def test_the_reserve_is_given_back_when_the_disk_is_full(
    clean, make_server, endpoint, judges_of, monkeypatch
):
    source, _ = clean(3, 20)
    server = endpoint(latency=0.02)
    write, calls = JudgementJournal._write, []

    def full(self, *arguments):
        calls.append(self)
        if len(calls) > 3 and self._reserve.is_file():
            with self._errors():
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
        return write(self, *arguments)

    monkeypatch.setattr(JudgementJournal, "_write", full)
    report = run(source, judges_of(make_server(server), concurrency=4))
    assert "disk is full" in report.judges[0].stopped
    assert sum(server.sold.values()) == report.judges[0].bought > 0


@pytest.mark.thorough
def test_ctrl_c_waits_for_the_answers_under_way(clean, make_server, endpoint, judges_of, content):
    source, expected = clean(3, 20)
    context = multiprocessing.get_context("fork")
    pid = context.Value("i", 0)
    server = endpoint(latency=0.1)
    server.on_arrival = lambda number: os.kill(pid.value, signal.SIGINT) if number == 5 else None
    config = judges_of(make_server(server), concurrency=2)

    child = context.Process(target=_interrupted, args=(source, config, pid))
    child.start()
    child.join()
    assert child.exitcode == 130
    assert server.made in (5, 6)  # two at once: the sixth may be on its way, too
    with JudgementJournal(source.folder / "judgements.sqlite") as journal:
        assert journal.size() == sum(server.sold.values())
    assert run(source, config).complete
    assert content(source.folder / "out") == expected
    assert set(server.sold.values()) == {1}


def _interrupted(source, config, pid):
    pid.value = os.getpid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run(source, config)
    except KeyboardInterrupt:
        os._exit(130)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_thousand_judgements_survive_faults_and_kills(tmp_path):
    """The figures in the docs, from the script that prints them."""
    started = time.monotonic()
    script = ROOT / "benchmarks" / "judge_faults.py"
    done = subprocess.run(
        [sys.executable, str(script), "--folder", str(tmp_path), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["judgements"] == 20_000
    assert figures["same_labels"]
    assert (figures["paid_once"], figures["paid_twice"], figures["lost"]) == (20_000, 0, 0)
    assert figures["kills"] >= 5
    assert time.monotonic() - started < 3600
