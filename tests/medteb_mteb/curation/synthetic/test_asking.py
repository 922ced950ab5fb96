"""Requests in portions: their counts add up, and what was answered before is not asked again."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.llm import Prompt, Rejected
from medteb_mteb.curation.synthetic.asking import Asking, portions

pytest.importorskip("openai", reason="without the client nothing can be asked")


def prompts(*keys):
    return [Prompt(key, "系统", f"问题{key}", {"type": "object"}, 5) for key in keys]


def read(prompt, content):
    if "坏" in prompt.user:
        raise Rejected("坏")
    return content


def new(llm, tmp_path, **options):
    return Asking(llm, tmp_path / "j.sqlite", **{"retry_failed": False, "show_progress": False, **options})


@pytest.mark.parametrize(
    ("number", "size", "expected"), [(0, 3, []), (2, 3, [2]), (3, 3, [3]), (7, 3, [3, 3, 1])]
)
def test_portions_hold_all_items_in_order(number, size, expected):
    parts = list(portions(iter(range(number)), size))
    assert [len(part) for part in parts] == expected
    assert [item for part in parts for item in part] == list(range(number))


def test_portions_are_taken_one_by_one_of_an_endless_source():
    def endless():
        number = 0
        while True:
            yield number
            number += 1

    parts = portions(endless(), 2)
    assert [next(parts), next(parts)] == [[0, 1], [2, 3]]


def test_counts_of_several_calls_add_up(endpoint, tmp_path):
    server, llm = endpoint(lambda messages: messages[-1]["content"][-1], llm={"retries": 0})
    asking = new(llm, tmp_path)
    first = asking(prompts("1", "坏1"), "v", read, "first")
    second = asking(prompts("1", "2", "坏2"), "v", read, "second")
    assert first == ({"1": "1"}, {"坏1": "坏"})
    assert second == ({"1": "1", "2": "2"}, {"坏2": "坏"})
    assert (asking.known, dict(asking.failed), asking.stopped) == (1, {"坏": 2}, "")
    made = server.made
    assert asking.bought == made >= 4
    later = new(llm, tmp_path)
    assert later(prompts("2", "1"), "v", read, "later") == ({"1": "1", "2": "2"}, {})
    assert (later.known, later.bought, server.made) == (2, 0, made)
    assert later.account == asking.account


def test_a_budget_stops_the_call_and_says_why(endpoint, tmp_path):
    server, llm = endpoint(lambda messages: "x", llm={"budget_tokens": 0, "concurrency": 1})
    asking = new(llm, tmp_path)
    answers, failed = asking(prompts("1", "2"), "v", read, "poor")
    assert (answers, failed, server.made) == ({}, {}, 0)
    assert "0 of its 0 tokens are spent" in asking.stopped


def test_failed_prompts_are_asked_again_only_on_request(endpoint, tmp_path):
    server, llm = endpoint(lambda messages: "x", llm={"retries": 0})
    asked = []
    for again in (False, False, True):
        asking = new(llm, tmp_path, retry_failed=again)
        assert asking(prompts("坏"), "v", read, "bad") == ({}, {"坏": "坏"})
        asked.append(server.made)
    assert asked[0] == asked[1] < asked[2]
