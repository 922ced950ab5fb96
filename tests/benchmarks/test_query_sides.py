"""Processes that answer calls."""

from __future__ import annotations

import sys

import pytest
from query_sides import Apart

ECHO = """
import json, sys, time
print(json.dumps({"said": "ready"}), flush=True)
for line in sys.stdin:
    name, arguments = json.loads(line)
    if name == "fail":
        sys.exit(3)
    if name == "wait":
        time.sleep(60)
    print("to the log", file=sys.stderr)
    print(json.dumps([name, *arguments]), flush=True)
"""


def start(**settings):
    return Apart([sys.executable, "-c", ECHO], "echo", **settings)


def test_calls_are_answered_in_order_and_errors_go_to_the_log(tmp_path):
    side = start(log=tmp_path / "log")
    assert side.ready == {"said": "ready"}
    assert [side.call("add", number, "咳") for number in range(3)] == [["add", n, "咳"] for n in range(3)]
    assert side.alive
    side.close()
    assert not side.alive
    assert (tmp_path / "log").read_text() == "to the log\n" * 3


def test_the_end_of_a_process_is_reported():
    side = start()
    with pytest.raises(SystemExit, match="echo, fail ended with status 3"):
        side.call("fail")


@pytest.mark.thorough
def test_an_answer_that_takes_too_long_ends_the_process():
    side = start(limit=1)
    with pytest.raises(SystemExit, match="echo, wait ended with status -9"):
        side.call("wait")
    side.kill()
