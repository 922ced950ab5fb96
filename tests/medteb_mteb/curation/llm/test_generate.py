"""Answers are bought once, kept, and read again."""

from __future__ import annotations

import asyncio
import json
import sqlite3

import pytest
from fault_server import FaultEndpoint, rules
from filelock import FileLock
from llm_server import llm_at, running, serving

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm import JournalError, Prompt, Rejected, answers_path, estimate_cost, json_object


@pytest.fixture
def server(write):
    return FaultEndpoint(answer=write)


def test_answers_come_in_the_order_of_the_prompts(ask, prompts, write, expected):
    asked = prompts(40)[::-1]
    with serving(write) as url:
        generation = ask(asked, llm_at(url, price_in=2.0, price_out=8.0))
    assert generation.answers == expected(asked)
    assert list(generation.answers) == [prompt.key for prompt in asked]
    assert (generation.failed, generation.known, generation.bought, generation.stopped) == ({}, 0, 40, "")
    assert generation.complete
    assert generation.account.answers == 40
    assert generation.account.cost == pytest.approx(
        (generation.account.tokens_in * 2 + generation.account.tokens_out * 8) / 1e6
    )


def test_a_known_answer_is_not_bought_and_needs_no_endpoint(ask, prompts, server, monkeypatch):
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
    with pytest.raises(BuildError, match="LLM writer: set MY_KEY"):
        ask(prompts(13), elsewhere)


def test_a_changed_prompt_or_setting_needs_another_answer(ask, prompts, server):
    asked = prompts(2)
    p = asked[0]
    with running(server) as url:
        ask(asked, llm_at(url))
        for change in ({"system": "你是医生。"}, {"user": "别的"}, {"variant": "1"}):
            fields = {"key": p.key, "system": p.system, "user": p.user, "variant": ""} | change
            assert ask([Prompt(**fields, schema={}, answer_tokens=5)], llm_at(url)).bought == 1, change
        for settings in (
            {"temperature": 0.0},
            {"model": "other"},
            {"variant": "q4"},
            {"extra": {"top_p": 0.5}},
        ):
            assert ask(asked, llm_at(url, **settings)).bought == 2, settings
        assert ask(asked, llm_at(url), version="2").bought == 2
        # The name of a prompt, its schema and the estimate are not.
        same = Prompt("other", p.system, p.user, {"type": "string"}, 99)
        assert ask([same], llm_at(url)).known == 1


def test_variants_are_answers_of_their_own_though_their_words_are_the_same(ask, prompts, server):
    asked = [*prompts(3, "0"), *prompts(3, "1"), *prompts(3, "2")]
    with running(server) as url:
        generation = ask(asked, llm_at(url))
    assert generation.bought == server.made == 9
    assert server.replayed == 0  # no endpoint takes one for an attempt at the other
    assert set(server.sold.values()) == {3}


def test_the_same_words_under_two_keys_are_bought_once(ask, prompts, server):
    one = prompts(1)[0]
    asked = [one, Prompt("twin", one.system, one.user, one.schema, 20)]
    with running(server) as url:
        generation = ask(asked, llm_at(url))
        assert list(generation.answers) == ["p0", "twin"]
        assert generation.bought == server.made == 1
        assert estimate_cost(asked, llm_at(url), "none.sqlite", version="1").requests == 1
        with pytest.raises(ValueError, match="two prompts have the key 'p0'"):
            ask([one, one], llm_at(url))


def test_an_answer_rejected_for_one_prompt_is_kept_for_the_other(ask, prompts, server, read):
    """The result of the first answer is kept; the other prompt is sent once more."""
    one = prompts(1)[0]
    asked = [one, Prompt("picky", one.system, one.user, one.schema, 20)]

    def picky(prompt, answer):
        if prompt.key == "picky":
            raise Rejected("picky")
        return read(prompt, answer)

    with running(server) as url:
        generation = ask(asked, llm_at(url), read=picky)
        assert list(generation.answers) == ["p0"]
        assert (generation.failed, generation.bought) == ({"picky": "picky"}, 2)
        again = ask(asked, llm_at(url), read=picky)
    assert (again.answers, again.failed, again.known, again.bought) == (
        generation.answers,
        generation.failed,
        1,
        0,
    )


def replies(*texts):
    """Those answers one after the other, the last one for ever."""
    left = list(texts)
    return lambda messages: left.pop(0) if len(left) > 1 else left[0]


def test_a_rejected_answer_is_asked_for_once_more_then_counted(ask, prompts):
    good = '{"reply": "好"}'
    with serving(replies('{"other": 1}', good)) as url:
        generation = ask(prompts(1), llm_at(url))
    assert (generation.answers, generation.failed, generation.bought) == ({"p0": "好"}, {}, 2)
    server = FaultEndpoint(answer=replies("说不好", '{"other": 1}', "没有", good))
    with running(server) as url:
        llm = llm_at(url, variant="bad")
        generation = ask(prompts(1), llm)
        assert (generation.answers, generation.failed, generation.bought) == ({}, {"p0": "missing-key"}, 2)
        assert generation.complete
        assert len({headers["idempotency-key"] for headers in server.headers}) == 2
        again = ask(prompts(1), llm)
        assert (again.failed, again.bought) == ({"p0": "missing-key"}, 0)
        # Once for each run that is told to.
        assert ask(prompts(1), llm, retry_failed=True).failed == {"p0": "no-json"}
        generation = ask(prompts(1), llm, retry_failed=True)
        assert (generation.answers, generation.failed, generation.bought) == ({"p0": "好"}, {}, 1)
        assert (generation.account.answers, server.made, server.replayed) == (2 + 4, 4, 0)
        assert ask(prompts(1), llm).known == 1


def test_a_changed_reader_needs_no_new_answer(ask, prompts, server):
    asked = prompts(4)

    def whole(prompt, answer):
        return json_object(answer)

    def strict(prompt, answer):
        if "第2问" in answer:
            raise Rejected("length")
        return answer

    with running(server) as url:
        ask(asked, llm_at(url))
        assert all(
            set(answer) == {"reply"} for answer in ask(asked, llm_at(url), read=whole).answers.values()
        )
        generation = ask(asked, llm_at(url), read=strict)
        assert (generation.failed, generation.known, generation.bought) == ({"p2": "length"}, 3, 0)
        assert ask(asked, llm_at(url)).known == 4  # and the first one takes it still
        assert server.made == 4
        generation = ask(asked, llm_at(url), read=strict, retry_failed=True)
        assert (generation.failed, generation.bought) == ({"p2": "length"}, 1)


def test_refused_cut_and_empty_answers_fail_with_the_reason(ask, prompts):
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


def test_one_prompt_that_the_endpoint_cannot_take_fails_alone(ask, prompts, server, write):
    def special(call):
        if "第1问" in call.body["messages"][-1]["content"]:
            return rules.Answer(400, {"error": {"message": "context length exceeded"}})
        return None

    server.instead.append(special)
    with running(server) as url:
        generation = ask(prompts(4), llm_at(url, concurrency=1))
        assert (generation.failed, generation.bought) == ({"p1": "status-400"}, 3)
        arrived = server.arrived
        assert ask(prompts(4), llm_at(url)).failed == {"p1": "status-400"}
        assert server.arrived == arrived
        server.instead.clear()
        assert ask(prompts(4), llm_at(url), retry_failed=True).failed == {}
    assert server.made == 4


def test_a_budget_stops_cleanly_and_a_larger_one_resumes(ask, prompts, server, expected):
    asked = prompts(20)
    prices = {"price_in": 1000.0, "price_out": 1000.0, "concurrency": 2}
    with running(server) as url:
        whole = estimate_cost(asked, llm_at(url, **prices), "none.sqlite", version="1")
        generation = ask(asked, llm_at(url, budget=whole.cost / 2, **prices))
        assert not generation.complete
        assert "is spent" in generation.stopped
        assert 0 < generation.account.cost <= whole.cost / 2
        assert 0 < len(generation.answers) == generation.bought < 20
        assert generation.failed == {}
        resumed = ask(asked, llm_at(url, budget=whole.cost * 1.05, **prices))
        assert resumed.complete
        assert (resumed.known, resumed.answers) == (generation.bought, expected(asked))
        assert server.made == 20
        assert "of its 3 tokens" in ask(asked, llm_at(url, budget_tokens=3, variant="x")).stopped


def test_an_estimate_sends_nothing_and_makes_no_journal(ask, prompts, server, tmp_path):
    asked, path = prompts(10), tmp_path / "answers.sqlite"
    bad = Prompt("bad", "坏", "坏", {}, 20)
    with running(server) as url:
        llm = llm_at(url, price_in=3.0, price_out=10.0, budget=5.0)
        estimate = estimate_cost([*asked, bad], llm, path, version="1")
        assert (server.arrived, path.exists()) == (0, False)
        assert (estimate.prompts, estimate.known, estimate.failed, estimate.requests) == (11, 0, 0, 11)
        assert estimate.tokens_in == sum(
            -(-len(p.encode()) // 3) for a in [*asked, bad] for p in (a.system, a.user)
        )
        assert estimate.tokens_out == 11 * 20
        assert estimate.cost == pytest.approx((estimate.tokens_in * 3 + estimate.tokens_out * 10) / 1e6)
        assert (estimate.spent, estimate.budget) == (0, 5.0)
        server.instead.append(
            lambda call: (
                rules.Answer(200, rules.completion("w", "坏", (1, 1)))
                if call.body["messages"][0]["content"] == "坏"
                else None
            )
        )
        cost = ask([*asked, bad], llm).account.cost
        after = estimate_cost([*asked, bad], llm, path, version="1")
        assert (after.known, after.failed, after.requests, after.cost) == (10, 1, 0, 0)
        assert after.spent == cost > 0
        again = estimate_cost([*asked, bad], llm, path, version="1", retry_failed=True)
        assert (again.known, again.failed, again.requests) == (10, 0, 1)


def test_a_reader_that_breaks_loses_no_answer(ask, prompts, server):
    def broken(prompt, answer):
        raise RuntimeError("a mistake of the reader")

    with running(server) as url:
        with pytest.raises(RuntimeError, match="a mistake of the reader"):
            ask(prompts(5), llm_at(url, concurrency=2), read=broken)
        made = server.made
        assert 1 <= made <= 3
        generation = ask(prompts(5), llm_at(url))
    assert (generation.known, generation.bought, server.made) == (made, 5 - made, 5)


def test_keys_and_prompts_are_kept_nowhere_and_answers_as_they_came(
    ask, prompts, server, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("MY_LLM_KEY", "sk-very-secret")
    caplog.set_level("DEBUG")
    for name in ("openai", "httpx", "httpx2"):
        caplog.set_level("DEBUG", logger=name)
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
    db = sqlite3.connect(tmp_path / "answers.sqlite")
    assert {text for (text,) in db.execute("SELECT answer FROM answers")} == {raw + "?"}
    assert db.execute("SELECT count(*) FROM failures").fetchone() == (0,)
    (described,) = db.execute("SELECT description FROM settings").fetchone()
    db.close()
    assert json.loads(described)["prompt"] == "1"


def test_only_one_process_may_use_a_journal(ask, prompts, server, tmp_path):
    path = tmp_path / "answers.sqlite"
    with running(server) as url:
        ask(prompts(2), llm_at(url))
        with FileLock(f"{path}.lock"):
            with pytest.raises(JournalError, match="Another process is writing answers to"):
                ask(prompts(2), llm_at(url))
            assert estimate_cost(prompts(2), llm_at(url), path, version="1").known == 2


def test_it_runs_inside_a_running_loop(ask, prompts, server):
    with running(server) as url:

        async def notebook():
            return ask(prompts(2), llm_at(url))

        assert len(asyncio.run(notebook()).answers) == 2


def test_answers_are_kept_in_the_documented_place(tmp_path, monkeypatch):
    monkeypatch.delenv("MEDTEB_ANSWERS", raising=False)
    assert answers_path(tmp_path / "out") == tmp_path / "answers.sqlite"
    monkeypatch.setenv("MEDTEB_ANSWERS", "/elsewhere/mine.sqlite")
    assert str(answers_path(tmp_path / "out")) == "/elsewhere/mine.sqlite"
    assert answers_path(tmp_path / "out", tmp_path / "given") == tmp_path / "given"


def test_a_run_without_prompts_is_complete(ask):
    generation = ask([], llm_at("http://127.0.0.1:9/v1"))
    assert (generation.answers, generation.failed, generation.complete) == ({}, {}, True)
