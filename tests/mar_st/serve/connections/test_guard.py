"""Which connections are closed, and when: a clock that the tests turn, and connections without sockets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mar_st.serve.connections.guard import (
    MAX_CANDIDATES,
    MAX_IN_PROGRESS,
    MIN_READ_BYTES,
    ConnectionLimits,
    Guard,
)
from mar_st.serve.engine.reading import MAX_READS
from mar_st.serve.metrics import Metrics
from tests.mar_st.serve.conftest import metric_values

CLOSED = "mar_connections_closed_total"


class Clock:
    """An event loop that only has timers."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def time(self):
        return self.now

    def call_later(self, seconds, call, *arguments):
        self.timers.append((self.now + seconds, call, arguments))

    def turn(self, seconds):
        """Let time pass, and run the timers that are due in between."""
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            timer = min(due, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1](*timer[2])
        self.now = end


class Connection:
    """A connection of `unsent` bytes, some of which its client reads."""

    def __init__(self, guard, clock):
        self.guard, self.loop, self.transport = guard, clock, self
        self.unsent, self.has_unread, self.stopping = 0, False, False
        self.ends, self.statuses = [], []

    def get_write_buffer_size(self):
        return self.unsent

    def unread(self):
        return self.has_unread

    def close(self):
        self.ends.append("closed")

    def abort(self):
        self.ends.append("aborted")

    def refuse(self, error):
        self.guard.leave(self)
        self.statuses.append(error.status)


@pytest.fixture
def guard():
    made = Guard(ConnectionLimits(head_seconds=10.0, send_seconds=10.0))
    made.metrics = Metrics()
    return made


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def connect(guard, clock):
    return lambda number: [Connection(guard, clock) for _ in range(number)]


def closed(guard):
    """Number of closed connections by reason."""
    return {reason: count for (reason,), count in metric_values(guard.metrics, CLOSED).items()}


def test_a_client_that_sends_no_head_is_told_so_and_closed(guard, clock, connect):
    early, late = connect(2)
    guard.await_head(early)
    clock.turn(5)
    guard.await_head(late)
    clock.turn(4.5)
    assert (early.ends, late.ends) == ([], [])
    clock.turn(2)
    assert (early.statuses, early.ends, late.ends) == ([408], ["closed"], [])
    clock.turn(5)
    assert (late.statuses, late.ends, early.ends) == ([408], ["closed"], ["closed"])
    assert closed(guard) == {"silent": 2}


def test_a_connection_with_a_request_or_between_two_is_not_closed(guard, clock, connect):
    busy, idle, again, silent = connect(4)
    for one in (busy, idle, again, silent):
        guard.await_head(one)
    guard.leave(busy)
    guard.mark_idle(idle)
    clock.turn(8)
    guard.await_head(again)  # its next request has the full time
    clock.turn(8)
    assert (busy.ends, idle.ends, again.ends, silent.ends) == ([], [], [], ["closed"])
    clock.turn(4)
    assert (busy.ends, idle.ends, again.ends) == ([], [], ["closed"])


@pytest.mark.parametrize(
    ("unsent", "per_second", "ends"),
    [
        (10 * MIN_READ_BYTES, 0, ["aborted"]),
        (10 * MIN_READ_BYTES, MIN_READ_BYTES // 20, ["aborted"]),
        (10 * MIN_READ_BYTES, MIN_READ_BYTES // 5, []),
        (100, 0, ["aborted"]),
        (100, 5, ["aborted"]),  # the rest of a small answer is to be read within the time limit
        (100, 20, []),
    ],
)
def test_a_client_must_keep_reading_its_answer(guard, clock, connect, unsent, per_second, ends):
    (reader,) = connect(1)
    reader.unsent = unsent
    guard.send(reader)
    for _ in range(100):
        clock.turn(1)
        reader.unsent = max(0, reader.unsent - per_second)
    assert reader.ends == ends
    assert not guard.sending
    assert closed(guard) == ({"unread": 1} if ends else {})


def test_a_server_that_stops_waits_for_a_slow_reader_a_few_seconds_only(guard, clock, connect):
    (reader,) = connect(1)
    reader.unsent = 100
    guard.send(reader)
    reader.stopping = True
    guard.send(reader, stopping=True)
    clock.turn(5)
    assert reader.ends == ["aborted"]


def test_a_closed_connection_is_left_alone(guard, clock, connect):
    silent, idle, reader = connect(3)
    reader.unsent = 100
    guard.await_head(silent)
    guard.mark_idle(idle)
    guard.send(reader)
    for one in (silent, idle, reader):
        guard.forget(one)
    clock.turn(60)
    assert not guard.make_room(Connection(guard, clock))
    assert (silent.ends, idle.ends, reader.ends) == ([], [], [])


def test_room_is_made_by_the_one_that_is_silent_longest_and_idle_ones_come_last(guard, connect):
    idle, first, second, newcomer = connect(4)
    guard.mark_idle(idle)
    for one in (first, second, newcomer):
        guard.await_head(one)
    order = []
    while guard.make_room(newcomer):
        order += [one for one in (idle, first, second) if one.ends and one not in order]
    assert order == [first, second, idle]
    assert newcomer.ends == []
    assert closed(guard) == {"crowded": 3}


@pytest.mark.parametrize(("unread", "made"), [(MAX_CANDIDATES - 1, True), (MAX_CANDIDATES, False)])
def test_a_connection_whose_request_is_on_its_way_makes_no_room(guard, connect, unread, made):
    connections = connect(MAX_CANDIDATES + 4)
    for place, one in enumerate(connections):
        guard.await_head(one)
        one.has_unread = place < unread
    assert guard.make_room(connect(1)[0]) == made
    assert [place for place, one in enumerate(connections) if one.ends] == [unread] * made


def test_documents_beyond_the_limit_are_refused_until_a_caller_has_left(guard, connect):
    connections = connect(MAX_READS + 1)
    assert not any(guard.too_many_reads(one) for one in connections[:-1])
    assert guard.too_many_reads(connections[-1])
    guard.forget(connections[0])
    assert not guard.too_many_reads(connections[-1])


@pytest.mark.parametrize(
    ("wait", "waiting", "requests", "expected"),
    [
        (None, 0, 10_000, None),  # the queues have room
        (2.5, 1000, MAX_IN_PROGRESS - 1, None),
        (2.5, 1000, 1000 + MAX_IN_PROGRESS, None),  # all but a few of them wait in the queues
        (2.5, 1000, 1001 + MAX_IN_PROGRESS, 2.5),
        (0.0, 0, 1 + MAX_IN_PROGRESS, 0.0),
    ],
)
def test_requests_are_refused_unread_if_queues_are_full_and_many_wait_outside(
    guard, wait, waiting, requests, expected
):
    assert guard.overloaded(10_000) is None  # before the application exists
    guard.generations = SimpleNamespace(current=SimpleNamespace(full=lambda: wait, waiting=waiting))
    assert guard.overloaded(requests) == expected
