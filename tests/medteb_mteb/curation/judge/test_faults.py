"""Labels of a run full of faults and kills are those of a run without any, and nothing is paid twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3

import pytest
from fault_server import ANSWER, LINE


def until_done(source, judges, rounds=40, **options):
    """Runs until nothing has failed."""
    report = source.judged(judges, **options)
    for _ in range(rounds):
        if not report["judges"][0]["failed"]:
            break
        report = source.judged(judges, **options)
    return report


@pytest.fixture
def clean(make_source, make_server, endpoint, judges_of):
    """A build without faults to compare with."""

    def make(*size):
        source = make_source(*size)
        assert source.judged(judges_of(make_server(endpoint())), "clean")["complete"]
        return source, source.content("clean")

    return make


@pytest.mark.thorough(but=["refusal", "cut"])
@pytest.mark.parametrize("kind", [*LINE, *ANSWER])
def test_a_fault_of_any_kind_changes_no_label(clean, make_server, endpoint, judges_of, kind):
    source, expected = clean(2, 12)
    line, answers = tuple({kind} & set(LINE)), tuple({kind} & set(ANSWER))
    server = endpoint(rate=0.5, line=line, answers=answers, seed=3, hang=0.5)
    until_done(source, judges_of(make_server(server), timeout=0.4, retries=30))
    assert server.faults[kind] >= 2
    assert source.content()[:2] == expected[:2]
    assert set(server.sold.values()) == {1}
    assert sum(server.sold.values()) == source.pairs
    assert kind not in LINE or not server.spoiled


def test_pairs_that_fail_twice_are_counted_and_asked_again_by_the_next_run(
    make_source, make_server, endpoint, judges_of
):
    source = make_source(1, 8)
    server = endpoint(rate=1.0, line=(), answers=("refusal",))
    judges = judges_of(make_server(server), max_failed=1.0)
    report = source.judged(judges)
    assert report["complete"]
    assert report["judges"][0]["failed"] == {"refused": 8}
    assert server.made == 2 + 8  # two prompts, then each passage alone
    failed = source.result(name="failed")
    assert failed[0] == {"query-id": "q0", "corpus-id": "d000", "judge": "words", "reason": "refused"}
    assert source.result() == []
    assert source.judged(judges, "other", journal="out")["judges"][0]["failed"] == {"refused": 8}
    assert server.made == 18
    server.rate = 0.0
    report = source.judged(judges)
    assert not report["judges"][0]["failed"]
    assert len(source.result()) == 8
    assert set(server.sold.values()) == {1}


def _killed(source, judges, pid):
    pid.value = os.getpid()
    source.judged(judges)


@pytest.mark.parametrize(("rate", "idempotent"), [(0.1, True), (0.0, False)])
def test_kills_lose_no_paid_answer(clean, make_server, endpoint, judges_of, rate, idempotent):
    source, expected = clean(4, 20)
    context = multiprocessing.get_context("fork")
    pid = context.Value("i", 0)
    kills = [1, 9, 18, 27]
    left = list(kills)

    def arrived(number):
        if left and number >= left[0] and pid.value:
            left.pop(0)
            os.kill(pid.value, signal.SIGKILL)
            pid.value = 0

    line = ("429", "500", "cut")
    options = {"rate": rate, "line": line, "answers": (), "seed": 5, "idempotent": idempotent}
    server = endpoint(latency=0.02, on_arrival=arrived, **options)
    judges = judges_of(make_server(server), retries=30, concurrency=4)
    ended = []
    for _ in range(len(kills) + 1):
        child = context.Process(target=_killed, args=(source, judges, pid))
        child.start()
        child.join()
        ended.append(child.exitcode)
        if child.exitcode == 0:
            break
    assert ended.count(-signal.SIGKILL) >= 3
    assert ended[-1] == 0
    assert source.content() == expected  # places, too: the prompts are the same
    assert len(server.sold) == source.pairs
    twice = sum(count - 1 for count in server.sold.values())
    # What was under way at a kill, and no more.
    most = ended.count(-signal.SIGKILL) * judges.judges[0].concurrency * judges.judges[0].passages
    assert twice <= (0 if idempotent else most)


def _interrupted(source, judges, pid):
    pid.value = os.getpid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        source.judged(judges)
    except KeyboardInterrupt:
        os._exit(130)


def test_ctrl_c_waits_for_the_answers_under_way(clean, make_server, endpoint, judges_of):
    source, expected = clean(3, 20)
    context = multiprocessing.get_context("fork")
    pid = context.Value("i", 0)
    server = endpoint(latency=0.1)
    server.on_arrival = lambda number: os.kill(pid.value, signal.SIGINT) if number == 5 else None
    judges = judges_of(make_server(server), concurrency=2)
    child = context.Process(target=_interrupted, args=(source, judges, pid))
    child.start()
    child.join()
    assert child.exitcode == 130
    assert server.made in (5, 6)  # two at once: the sixth may be on its way, too
    with sqlite3.connect(source.folder / "out.sqlite") as journal:
        assert journal.execute("SELECT count(*) FROM answers").fetchone() == (server.made,)
    server.on_arrival = None
    assert source.judged(judges)["complete"]
    assert source.content() == expected
    assert set(server.sold.values()) == {1}
