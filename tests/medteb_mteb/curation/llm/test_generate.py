"""Answers are bought once, kept, and read again."""

from __future__ import annotations

import asyncio
import os
import sqlite3

import pytest
from fault_server import FaultEndpoint, rules
from filelock import FileLock
from llm_server import llm_at, running, serving
from tests.medteb_mteb.curation.llm.conftest import expected, prompts, write

from mar_st.errors import MarError
from medteb_mteb.curation.llm.client import Prompt
from medteb_mteb.curation.llm.journal import journal_path


@pytest.fixture
def server():
    return FaultEndpoint(answer=write)


def test_every_prompt_gets_its_answer(ask):
    asked = prompts(40)[::-1]
    with serving(write) as url:
        generation = ask(asked, llm_at(url, price_in=2.0, price_out=8.0))
    assert generation.answers == expected(asked)
    assert (generation.failed, generation.known, generation.bought, generation.stopped) == ({}, 0, 40, "")
    assert generation.account.answers == 40
    assert generation.account.cost == pytest.approx(
        (generation.account.tokens_in * 2 + generation.account.tokens_out * 8) / 1e6
    )


def test_a_known_answer_is_not_bought_and_needs_no_endpoint(ask, server, monkeypatch):
    asked = prompts(10)
    with running(server) as url:
        first = ask(asked, llm_at(url))
        again = ask(asked[3:], llm_at(url))
        assert server.made == 10
        more = ask(prompts(12), llm_at(url, concurrency=1, retries=0, name="writer", answer="text"))
    assert (again.known, again.bought) == (7, 0)
    assert again.answers == {p.key: first.answers[p.key] for p in asked[3:]}
    assert (more.known, more.bought) == (10, 2)
    # Where and how it is asked is not part of an answer's identity; a key that is missing does not matter.
    elsewhere = llm_at("https://api.example.com/v1", api_key_env="MY_KEY")
    monkeypatch.delenv("MY_KEY", raising=False)
    assert ask(asked, elsewhere).known == 10
    with pytest.raises(MarError, match="MY_KEY"):
        ask(prompts(13), elsewhere)


def test_variants_are_answers_of_their_own_though_their_words_are_the_same(ask, server):
    asked = [*prompts(3, "0"), *prompts(3, "1"), *prompts(3, "2")]
    with running(server) as url:
        generation = ask(asked, llm_at(url))
    assert generation.bought == server.made == 9
    assert server.replayed == 0  # no endpoint takes one for an attempt at the other
    assert set(server.sold.values()) == {3}


def replies(*texts):
    """Those answers one after the other, the last one for ever."""
    left = list(texts)
    return lambda messages: left.pop(0) if len(left) > 1 else left[0]


def test_a_rejected_answer_is_asked_for_once_more_then_counted(ask):
    good = '{"reply": "好"}'
    with serving(replies('{"other": 1}', good)) as url:
        generation = ask(prompts(1), llm_at(url))
    assert (generation.answers, generation.failed, generation.bought) == ({"p0": "好"}, {}, 2)
    server = FaultEndpoint(answer=replies("说不好", '{"other": 1}', "没有", good))
    with running(server) as url:
        llm = llm_at(url, variant="bad")
        generation = ask(prompts(1), llm)
        assert (generation.answers, generation.failed, generation.bought) == ({}, {"p0": "missing-key"}, 2)
        assert not generation.stopped
        assert len({headers["idempotency-key"] for headers in server.headers}) == 2
        # Once for each later run.
        assert ask(prompts(1), llm).failed == {"p0": "no-json"}
        generation = ask(prompts(1), llm)
        assert (generation.answers, generation.failed, generation.bought) == ({"p0": "好"}, {}, 1)
        assert (generation.account.answers, server.made, server.replayed) == (2 + 4, 4, 0)
        assert ask(prompts(1), llm).known == 1


def test_refused_cut_and_empty_answers_fail_with_the_reason(ask):
    def ended(reason, content):
        def special(call):
            completion = rules.completion("writer", content, (5, 5))
            completion["choices"][0]["finish_reason"] = reason
            return rules.Answer(200, completion)

        return special

    for number, (special, failed) in enumerate(
        [
            (ended("content_filter", '{"reply": "好"}'), {"p0": "refused"}),
            (ended("length", '{"reply": "好'), {"p0": "cut"}),
            (ended("length", '{"reply": "好"}'), {}),  # all was said
            (ended("length", ""), {"p0": "cut"}),
            (ended("stop", " \n"), {"p0": "empty"}),
            (ended("stop", None), {"p0": "empty"}),
        ]
    ):
        server = FaultEndpoint(answer=str)
        server.instead.append(special)
        with running(server) as url:
            llm = llm_at(url, variant=str(number))
            assert ask(prompts(1), llm).failed == failed, number
            assert ask(prompts(1), llm).failed == failed, number  # as the journal has it


def test_a_first_prompt_that_the_endpoint_cannot_take_fails_alone(ask, server):
    def special(call):
        if "第0问" in call.body["messages"][-1]["content"]:
            return rules.Answer(400, {"error": {"message": "context length exceeded"}})
        return None

    server.instead.append(special)
    with running(server) as url:
        generation = ask(prompts(4), llm_at(url, concurrency=1))
        assert (generation.failed, generation.bought) == ({"p0": "status-400"}, 3)
        server.instead.clear()
        assert ask(prompts(4), llm_at(url)).failed == {}
    assert server.made == 4


def test_a_budget_stops_cleanly_and_a_larger_one_resumes(ask, server):
    asked = prompts(20)
    prices = {"price_in": 1000.0, "price_out": 1000.0, "concurrency": 2}
    with running(server) as url:
        generation = ask(asked, llm_at(url, budget=0.3, **prices))
        assert "budget" in generation.stopped
        assert 0 < len(generation.answers) == generation.bought < 20
        assert generation.failed == {}
        resumed = ask(asked, llm_at(url, budget=1000.0, **prices))
        assert not resumed.stopped
        assert (resumed.known, resumed.answers) == (generation.bought, expected(asked))
        assert server.made == 20


def test_a_reader_that_breaks_loses_no_answer(ask, server):
    def broken(prompt, answer):
        raise RuntimeError("a mistake of the reader")

    with running(server) as url:
        with pytest.raises(RuntimeError, match="a mistake of the reader"):
            ask(prompts(5), llm_at(url, concurrency=2), read=broken)
        made = server.made
        assert 1 <= made <= 3
        generation = ask(prompts(5), llm_at(url))
    assert (generation.known, generation.bought, server.made) == (made, 5 - made, 5)


def test_only_one_process_may_use_a_journal(ask, server, tmp_path):
    path = tmp_path / "answers.sqlite"
    with running(server) as url:
        ask(prompts(2), llm_at(url))
        with FileLock(f"{path}.lock"), pytest.raises(MarError, match="Another process"):
            ask(prompts(2), llm_at(url))


def test_it_runs_inside_a_running_loop(ask, server):
    with running(server) as url:

        async def notebook():
            return ask(prompts(2), llm_at(url))

        assert len(asyncio.run(notebook()).answers) == 2


def test_answers_are_kept_in_the_documented_place(tmp_path, monkeypatch):
    monkeypatch.delenv("MEDTEB_ANSWERS", raising=False)
    assert journal_path(tmp_path / "out") == tmp_path / "answers.sqlite"
    monkeypatch.setenv("MEDTEB_ANSWERS", "/elsewhere/mine.sqlite")
    assert str(journal_path(tmp_path / "out")) == "/elsewhere/mine.sqlite"


def test_a_run_without_prompts_is_complete(ask):
    generation = ask([], llm_at("http://127.0.0.1:9/v1"))
    assert (generation.answers, generation.failed, generation.stopped) == ({}, {}, "")


def test_the_same_words_under_two_keys_are_bought_once(ask, server):
    one = prompts(1)[0]
    asked = [one, Prompt("twin", one.system, one.user, one.schema, 20)]
    with running(server) as url:
        generation = ask(asked, llm_at(url))
        assert set(generation.answers) == {"p0", "twin"}
        assert generation.bought == server.made == 1


@pytest.mark.parametrize(
    "settings", [{"temperature": 0.0}, {"model": "other"}, {"variant": "q4"}, {"extra": {"top_p": 0.5}}]
)
def test_another_setting_needs_another_answer(ask, server, settings):
    asked = prompts(2)
    with running(server) as url:
        ask(asked, llm_at(url))
        assert ask(asked, llm_at(url, **settings)).bought == 2
        assert ask(asked, llm_at(url, **settings), version="2").bought == 2


def test_keys_and_prompts_are_kept_nowhere_and_answers_as_they_came(
    ask, server, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("MY_LLM_KEY", "sk-very-secret")
    caplog.set_level("DEBUG")
    raw = '好的：\n```json\n{"reply": "\\ud83d 好\\u0000"}\n```'
    server.written = lambda messages: raw + "\ud83d"
    with running(server) as url:
        llm = llm_at(url, api_key_env="MY_LLM_KEY")
        generation = ask(prompts(3), llm)
        assert ask(prompts(3), llm).answers == generation.answers
    assert set(generation.answers.values()) == {"\ud83d 好\0"}
    assert {headers["authorization"] for headers in server.headers} == {"Bearer sk-very-secret"}
    for path in tmp_path.iterdir():
        assert b"secret" not in path.read_bytes()
        assert "高血压".encode() not in path.read_bytes()
    assert "secret" not in caplog.text
    assert "高血压" not in caplog.text
    with sqlite3.connect(tmp_path / "answers.sqlite") as db:
        assert {text for (text,) in db.execute("SELECT text FROM answers")} == {raw + "?"}


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda path: path.write_bytes(b"not a database" * 100), "damaged"),
        (lambda path: path.mkdir(), "can be written"),
        (os.mkfifo, "regular file"),
    ],
    ids=["damaged", "cannot be opened", "pipe"],
)
def test_a_journal_that_cannot_be_used_is_named_with_what_to_do(ask, tmp_path, make, advice):
    make(tmp_path / "answers.sqlite")
    with pytest.raises(MarError, match=advice) as refused:
        ask(prompts(1), llm_at("http://127.0.0.1:9/v1"))
    assert str(tmp_path / "answers.sqlite") in str(refused.value)
    assert ("damaged" in str(refused.value)) is (advice == "damaged")
