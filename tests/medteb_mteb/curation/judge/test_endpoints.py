"""Tests of judging with an endpoint that fails, or that refuses one text."""

from __future__ import annotations

import re

import pytest
from fault_server import rules

from medteb_mteb.curation.judge import judge


def run(source, config, out="out", **options):
    return judge(
        *source.paths, source.folder / out, config, already_anonymous=True, show_progress=False, **options
    )


def error(status, message="not now", headers=None, **more):
    return rules.Answer(status, {"error": {"message": message, **more}}, headers or {})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            error(401, "Incorrect API key provided: sk-abc"),
            r"refuses \(status 401: Incorrect API key provided: \*\*\*",
        ),
        (error(500), r"does not answer \(status-500, 3 attempts\)"),
    ],
)
def test_a_judge_without_usable_answers_is_given_up(
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


def test_a_filtered_query_fails_alone(make_input, make_server, endpoint, judges_of):
    """It is the first that is asked for, and no other judgement waits for it."""
    source, server = make_input(4, 6), endpoint()
    bad = source.rows("queries")[0]["text"]
    server.instead.append(
        lambda call: (
            error(400, "Content Exists Risk") if bad in call.body["messages"][-1]["content"] else None
        )
    )
    config = judges_of(make_server(server), "rule-words", "rule-strict", concurrency=1)
    report = run(source, config)
    assert report.complete
    for result in report.judges:
        assert result.outcome.failed == {"filtered": 6}
        assert sum(result.outcome.grades.values()) == 18
    assert {body["response_format"]["type"] for body in server.bodies} == {"json_object"}
    made = server.arrived
    assert run(source, config).complete
    assert server.arrived == made
