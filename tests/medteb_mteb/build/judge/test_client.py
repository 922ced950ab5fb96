"""What the client makes of an endpoint's moods, over a real line."""

from __future__ import annotations

import json
import re
import time
from email.utils import formatdate

import pytest
from fault_server import rules

from medteb_mteb.build.judge import judge


def run(source, config, out="out", **options):
    return judge(
        *source.paths, source.folder / out, config, already_anonymous=True, show_progress=False, **options
    )


def error(status, message="not now", headers=None, **more):
    return rules.Answer(status, {"error": {"message": message, **more}}, headers or {})


def times(count, answer):
    """That answer to the first so many requests, the server's own after that."""
    left = [count]

    def special(call):
        left[0] -= 1
        return answer if left[0] >= 0 else None

    return special


@pytest.mark.parametrize("header", ["Retry-After", "Retry-After-Ms", "date"])
def test_a_pause_that_is_asked_for_is_kept(make_input, make_server, endpoint, judges_of, header):
    source, server = make_input(1, 8), endpoint()

    def special(call):
        date = formatdate(time.time() + 2, usegmt=True)  # of whole seconds
        value = {"Retry-After": "1", "Retry-After-Ms": "1000", "date": date}[header]
        name = header.replace("date", "Retry-After")
        return error(429, headers={name: value}) if server.arrived == 1 else None

    server.instead.append(special)
    arrivals = []
    server.on_arrival = lambda number: arrivals.append(time.monotonic())
    report = run(source, judges_of(make_server(server), concurrency=1))
    assert report.complete
    assert arrivals[1] - arrivals[0] >= 0.9
    assert set(server.sold.values()) == {1}


def test_an_attempt_is_the_same_bytes_under_the_same_key(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 4), endpoint()
    server.instead.append(times(3, error(503)))
    run(source, judges_of(make_server(server)))
    assert len({headers["idempotency-key"] for headers in server.headers}) == 1
    assert len({json.dumps(body, sort_keys=True) for body in server.bodies}) == 1
    assert len(server.headers) == 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            error(401, "Incorrect API key provided: sk-abc"),
            r"refuses \(status 401: Incorrect API key provided: \*\*\*",
        ),
        (error(402, "Insufficient Balance"), "status 402: Insufficient Balance"),
        (error(403), "status 403"),
        (error(404, "no such model"), "no such model"),
        (error(429, "you are out of money", code="insufficient_quota"), "out of money"),
        (error(429, headers={"Retry-After": "86400"}), "come back in 86400 seconds"),
        (error(500), r"does not answer \(status-500, 3 attempts\)"),
        (rules.Answer(200, b"<html>busy</html>"), r"does not answer \(garbage-\w+, 3 attempts\)"),
        (rules.Answer(200, {"object": "chat.completion", "choices": []}), "garbage-no-choices"),
    ],
)
def test_an_endpoint_that_is_no_use_is_given_up(
    make_input, make_server, endpoint, judges_of, monkeypatch, answer, message
):
    monkeypatch.setenv("SOME_KEY", "sk-abc")
    source, server = make_input(4, 12), endpoint()
    server.instead.append(lambda call: answer if call.body["model"] == "rule-strict" else None)
    url = make_server(server)
    config = judges_of(url, "rule-words", "rule-strict", retries=2, concurrency=2, api_key_env="SOME_KEY")
    report = run(source, config)
    words, strict = report.judges
    assert not report.complete
    assert (words.outcome.left, words.stopped) == (0, "")  # the other judge is not held up
    assert re.search(message, strict.stopped)
    assert strict.outcome.left + strict.outcome.failed.total() == 48
    assert len(server.bodies) < 60
    server.instead.clear()
    report = run(source, config, retry_failed=True)
    assert report.complete
    assert set(server.sold.values()) == {1}


def test_nothing_listens(make_input, judges_of):
    source = make_input(1, 4)
    report = run(source, judges_of("http://127.0.0.1:9/v1", retries=1))
    assert "does not answer (connection, 2 attempts)" in report.judges[0].stopped
    assert report.judges[0].outcome.left == 4


def test_a_message_that_repeats_our_texts_is_not_shown(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 4), endpoint()
    query = source.rows("queries")[0]["text"]
    server.instead.append(lambda call: error(403, f"content policy: {query}患者"))
    report = run(source, judges_of(make_server(server)))
    assert report.judges[0].stopped.endswith("refuses (status 403)")


def test_one_text_that_the_endpoint_cannot_take_fails_alone(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 12), endpoint()
    bad = source.rows("documents")[5]["text"]

    def special(call):
        if bad in call.body["messages"][-1]["content"]:
            return error(400, "this model's maximum context length is exceeded")
        return None

    server.instead.append(special)
    report = run(source, judges_of(make_server(server), concurrency=1, seed=1))
    assert report.complete
    assert report.judges[0].outcome.failed == {"status-400": 1}
    assert sum(report.judges[0].outcome.grades.values()) == 11


@pytest.mark.parametrize("asked", ["json_schema", "json_object", "text"])
def test_an_endpoint_that_does_not_know_the_form_of_answer(
    make_input, make_server, endpoint, judges_of, asked
):
    source, server = make_input(2, 12), endpoint(latency=0.02)

    def special(call):
        kind = call.body.get("response_format", {}).get("type")
        return error(400, f"response_format {kind} is not supported") if kind else None

    server.instead.append(special)
    report = run(source, judges_of(make_server(server), answer=asked))
    assert report.complete
    assert not report.judges[0].outcome.failed
    assert set(server.sold.values()) == {1}
    forms = [body.get("response_format", {}).get("type", "text") for body in server.bodies]
    assert forms[0] == asked
    assert forms[-1] == "text"
    server.instead.clear()
    run(source, judges_of(make_server(server), answer=asked), out="two", journal=source.folder / "two.sqlite")
    known = server.bodies[-1].get("response_format")
    if asked == "json_schema":
        prompt = rules.read_prompt(server.bodies[-1]["messages"])
        assert known["json_schema"]["schema"]["required"] == list(prompt.passages)
    else:
        assert known == ({"type": "json_object"} if asked == "json_object" else None)


def test_temperature_may_be_left_out(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 4), endpoint()
    url = make_server(server)
    run(source, judges_of(url))
    assert server.bodies[-1]["temperature"] == 0
    run(source, judges_of(url, temperature=None), out="none")
    assert "temperature" not in server.bodies[-1]


def test_an_endpoint_that_does_not_count_tokens(make_input, make_server, endpoint, judges_of):
    source, server = make_input(1, 4), endpoint()
    whole = rules.completion

    def special(call):
        prompt = rules.read_prompt(call.body["messages"])
        answer = whole(call.body["model"], json.dumps(server.grades(call.body["model"], prompt)), (0, 0))
        del answer["usage"]
        return rules.Answer(200, answer)

    server.instead.append(special)
    report = run(source, judges_of(make_server(server), price_in=10.0))
    account = report.judges[0].account
    assert account.estimated == account.answers == 1
    assert account.tokens_in > 500
    assert account.cost == pytest.approx(account.tokens_in * 1e-5)


def test_limits_and_concurrency_are_kept(make_input, make_server, endpoint, judges_of):
    source = make_input(2, 12)
    server = endpoint(latency=0.05)
    run(source, judges_of(make_server(server), concurrency=3, passages=2))
    assert server.busiest == 3
    server = endpoint()
    arrivals = []
    server.on_arrival = lambda number: arrivals.append(time.monotonic())
    run(
        source, judges_of(make_server(server), requests_per_minute=600, passages=1, control_rate=0.0),
        out="slow", journal=source.folder / "slow.sqlite",
    )  # fmt: skip
    assert len(arrivals) == 24
    assert arrivals[-1] - arrivals[0] > 0.8  # ten a second, after a burst of ten
