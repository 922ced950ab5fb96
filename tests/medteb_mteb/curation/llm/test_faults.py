"""Answers of a run full of faults and kills are those of a run without any, and each is bought once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3

import pytest
from fault_server import LINE, WRITTEN, FaultEndpoint
from llm_server import llm_at, running, serving

from medteb_mteb.curation.llm import JournalError, generate
from medteb_mteb.curation.llm.journal import AnswerJournal
from medteb_mteb.curation.llm.readings import Readings

COUNT = 60


@pytest.fixture
def clean(ask, prompts, write, tmp_path):
    """Prompts, and the answers of a run without faults."""
    asked = [*prompts(COUNT // 2, "0"), *prompts(COUNT // 2, "1")]
    with serving(write) as url:
        generation = ask(asked, llm_at(url), journal=tmp_path / "clean.sqlite")
    assert len(generation.answers) == COUNT
    return asked, generation.answers


def until_done(ask, asked, llm, rounds=20):
    """Run until nothing has failed; return the results of all runs."""
    generations = [ask(asked, llm)]
    while generations[-1].failed and len(generations) < rounds:
        generations.append(ask(asked, llm, retry_failed=True))
    return generations


def bought_once(server, count=COUNT):
    """Return True if each answer was paid for once; two variants of the same words count as two."""
    return set(server.sold.values()) == {2} and sum(server.sold.values()) == count


@pytest.mark.thorough(but=["429", "empty"])
@pytest.mark.parametrize("kind", [*LINE, *WRITTEN])
def test_a_fault_of_any_kind_changes_no_answer(clean, ask, write, kind):
    asked, answers = clean
    line, written = tuple({kind} & set(LINE)), tuple({kind} & set(WRITTEN))
    server = FaultEndpoint(answer=write, rate=0.4, line=line, answers=written, seed=3, hang=0.3)
    with running(server) as url:
        generations = until_done(ask, asked, llm_at(url, timeout=0.2, concurrency=16))
    assert server.faults[kind] >= 5
    assert generations[-1].answers == answers
    assert list(generations[-1].answers) == list(answers)
    assert bought_once(server)
    assert generations[-1].account.answers == server.made
    if kind in LINE:
        assert len(generations) == 1
        assert sum(generations[0].faults.values()) >= 5
        assert not server.spoiled
    else:
        reason = {"invalid": "no-json", "refusal": "no-json", "empty": "empty"}[kind]
        assert set(generations[0].failed.values()) == {reason}
        assert sum(server.spoiled.values()) == server.made - COUNT


def _killed(asked, llm, path, read, pid, retry):
    pid.value = os.getpid()
    generate(asked, llm, path, version="1", read=read, retry_failed=retry, show_progress=False)


@pytest.mark.thorough(but=["0.0-True"])
@pytest.mark.parametrize(("rate", "idempotent"), [(0.0, True), (0.05, True), (0.0, False)])
def test_a_kill_at_any_moment_loses_no_paid_answer(clean, ask, write, read, tmp_path, rate, idempotent):
    asked, answers = clean
    context = multiprocessing.get_context("fork")
    pid, kill_points = context.Value("i", 0), [1, 9, 18, 27, 45]

    def arrived(number):
        if kill_points and number >= kill_points[0] and pid.value:
            kill_points.pop(0)
            os.kill(pid.value, signal.SIGKILL)
            pid.value = 0

    server = FaultEndpoint(
        answer=write, rate=rate, seed=5, hang=0.3, idempotent=idempotent, latency=0.02, on_arrival=arrived
    )
    path, ended = tmp_path / "answers.sqlite", []
    with running(server) as url:
        # Where no fault makes a request hang, none may be asked twice because this machine is busy.
        llm = llm_at(url, timeout=0.2 if rate else 30.0, concurrency=4)
        while not ended or ended[-1]:
            child = context.Process(target=_killed, args=(asked, llm, path, read, pid, False))
            child.start()
            child.join()
            ended.append(child.exitcode)
            assert child.exitcode in (0, -signal.SIGKILL)
        kills = len(ended) - 1
        assert kills >= 4
        generation = until_done(ask, asked, llm)[-1]
    assert generation.answers == answers
    assert list(generation.answers) == list(answers)
    if idempotent:
        assert bought_once(server)
        assert generation.account.answers == server.made
    else:  # what was under way at a kill, and no more
        assert COUNT <= sum(server.sold.values()) <= COUNT + kills * llm.concurrency
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM failures").fetchone() == (0,)
    db.close()


@pytest.mark.thorough(but=["fail-False"])
@pytest.mark.parametrize(
    ("step", "before"),
    [
        ("add", True),
        ("take", False),
        ("accept", True),
        ("fail", False),
        pytest.param("add", False, marks=pytest.mark.slow),
        pytest.param("take", True, marks=pytest.mark.slow),
        pytest.param("accept", False, marks=pytest.mark.slow),
        pytest.param("fail", True, marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_any_write_loses_no_answer(clean, ask, write, read, tmp_path, monkeypatch, step, before):
    """Answers of which every other one is unusable at first, a kill at each write in turn."""
    asked, _ = clean
    asked, path = asked[:12], tmp_path / "answers.sqlite"
    seen = {}

    def often_bad(messages):
        text = messages[-1]["content"]
        seen[text] = seen.get(text, 0) + 1
        number = int(text.split("第")[1].split("问")[0])
        bad = number % 3 == 2 or (number % 3 == 1 and seen[text] == 1)  # always, at first, never
        return "坏" if bad else write(messages)

    with serving(often_bad) as url:
        expected = ask(asked, llm_at(url), journal=tmp_path / "expected.sqlite")
    assert (len(expected.answers), len(expected.failed), expected.bought) == (8, 4, 20)
    seen.clear()
    context = multiprocessing.get_context("fork")
    kind = Readings if step == "take" else AnswerJournal
    original = getattr(kind, step)

    def child(allowed, llm):
        calls = []

        def deadly(self, *arguments, **named):
            calls.append(1)
            if before and len(calls) > allowed:
                os.kill(os.getpid(), signal.SIGKILL)
            returned = original(self, *arguments, **named)
            if len(calls) > allowed:
                os.kill(os.getpid(), signal.SIGKILL)
            return returned

        monkeypatch.setattr(kind, step, deadly)
        generate(asked, llm, path, version="1", read=read, show_progress=False)

    server = FaultEndpoint(answer=often_bad)
    with running(server) as url:
        llm, allowed, ended = llm_at(url, concurrency=3), 0, []
        while not ended or ended[-1]:
            process = context.Process(target=child, args=(allowed, llm))
            process.start()
            process.join()
            ended.append(process.exitcode)
            assert process.exitcode in (0, -signal.SIGKILL)
            allowed += 1 + len(ended) % 2
            assert len(ended) < 30
        assert len(ended) > 2
        generation = ask(asked, llm)
    assert (generation.answers, generation.failed) == (expected.answers, expected.failed)
    assert generation.account.answers == server.made == 20  # each attempt once, over all the lives
    db = sqlite3.connect(path)
    assert {reason for (reason,) in db.execute("SELECT reason FROM failures")} == {"no-json"}
    db.close()


def test_a_full_disk_takes_the_answers_under_way_and_buys_no_more(ask, prompts, write, monkeypatch, expected):
    write_rows, calls = AnswerJournal._write, []

    def full(self, rows):
        calls.append(self)
        if len(calls) > 7 and self._reserve.is_file():
            with self._errors():
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
        return write_rows(self, rows)

    server = FaultEndpoint(answer=write, latency=0.02)
    monkeypatch.setattr(AnswerJournal, "_write", full)
    with running(server) as url:
        generation = ask(prompts(30), llm_at(url, concurrency=4))
        assert "disk is full" in generation.stopped
        assert generation.bought == len(generation.answers) == server.made < 30
        monkeypatch.setattr(AnswerJournal, "_write", write_rows)
        assert ask(prompts(30), llm_at(url)).answers == expected(prompts(30))
    assert server.made == 30


def test_a_journal_that_cannot_be_written_stops_the_run_and_loses_no_answer(
    ask, prompts, write, monkeypatch, expected
):
    def failing(self, *arguments, **named):
        with self._errors():
            raise sqlite3.OperationalError("disk I/O error")

    server = FaultEndpoint(answer=write)
    with running(server) as url, monkeypatch.context() as patch:
        patch.setattr(AnswerJournal, "add", failing)
        with pytest.raises(JournalError, match=r"disk I/O error.*the same command resumes"):
            ask(prompts(9), llm_at(url, concurrency=2))
        assert server.made <= 3
        patch.undo()
        assert ask(prompts(9), llm_at(url)).answers == expected(prompts(9))
    assert server.made == 9  # the endpoint gives what was lost again, under its key


def test_ctrl_c_waits_for_the_answers_under_way(ask, prompts, write, read, tmp_path, expected):
    context = multiprocessing.get_context("fork")
    pid = context.Value("i", 0)
    server = FaultEndpoint(answer=write, latency=0.1)
    server.on_arrival = lambda number: os.kill(pid.value, signal.SIGINT) if number == 5 else None
    path = tmp_path / "answers.sqlite"
    with running(server) as url:
        llm = llm_at(url, concurrency=2)
        child = context.Process(target=_interrupted, args=(prompts(20), llm, path, read, pid))
        child.start()
        child.join()
        assert child.exitcode == 130
        assert server.made in (5, 6)  # two at once: the sixth may be on its way, too
        with AnswerJournal(path) as journal:
            assert journal.size() == server.made
        assert ask(prompts(20), llm).answers == expected(prompts(20))
    assert server.made == 20


def _interrupted(asked, llm, path, read, pid):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _killed(asked, llm, path, read, pid, retry=False)
    except KeyboardInterrupt:
        os._exit(130)
