"""Tests of the client with endpoint errors over a real connection."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import threading
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fault_server import FaultEndpoint, rules
from llm_server import llm_at, running
from tests.medteb_mteb.curation.llm.conftest import expected, prompts, write


@pytest.fixture
def server():
    return FaultEndpoint(answer=write)


def error(status, message="not now", headers=None, **more):
    return rules.Answer(status, {"error": {"message": message, **more}}, headers or {})


def times(count, answer):
    """Return a handler that gives `answer` to the first `count` requests, then leaves it to the server."""
    left = [count]

    def special(call):
        left[0] -= 1
        return answer if left[0] >= 0 else None

    return special


def test_an_attempt_is_the_same_bytes_under_the_same_key(ask, server):
    server.instead.append(times(3, error(503)))
    with running(server) as url:
        generation = ask(prompts(1), llm_at(url))
    assert len(generation.answers) == 1
    assert len({headers["idempotency-key"] for headers in server.headers}) == 1
    assert len({json.dumps(body, sort_keys=True) for body in server.bodies}) == 1
    assert len(server.headers) == 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (error(401, "Incorrect API key provided: sk-abc"), r"401.*Incorrect API key provided: \*\*\*"),
        (error(402, "Insufficient Balance"), "402"),
        (error(404, "no such model"), "no such model"),
        (error(429, "you are out of money", code="insufficient_quota"), "out of money"),
        (error(500), "status-500"),
        (error(503), "503"),
        (rules.Answer(200, b"<html>busy</html>"), "garbage"),
        (error(400, "make sure your account is in good standing", code="Arrearage"), "good standing"),
        (error(200, "Insufficient Balance"), "Insufficient Balance"),
        (error(200, "upstream failed"), "no-choices"),
    ],
)
def test_an_endpoint_without_usable_answers_is_given_up(ask, server, monkeypatch, answer, message):
    monkeypatch.setenv("SOME_KEY", "sk-abc")
    server.instead.append(lambda call: answer)
    asked = prompts(30)
    with running(server) as url:
        llm = llm_at(url, retries=1, concurrency=2, api_key_env="SOME_KEY")
        generation = ask(asked, llm)
        assert re.search(message, generation.stopped)
        assert generation.answers == {}
        assert len(generation.failed) < 5
        server.instead.clear()
        generation = ask(asked, llm)
    assert len(generation.answers) == server.made == 30


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_prompts_are_not_sent_to_the_target_of_a_redirect(ask, server, status):
    other = FaultEndpoint(answer=write)
    with running(other) as target, running(server) as url:
        location = {"Location": f"{target}/chat/completions"}
        server.instead.append(lambda call: error(status, headers=location))
        generation = ask(prompts(4), llm_at(url, concurrency=1))
    assert re.search(rf"redirects to {target}/chat/completions \(status {status}\)", generation.stopped)
    assert (server.arrived, other.arrived, generation.answers) == (1, 0, {})


def test_an_unreachable_endpoint_stops_the_run(ask):
    generation = ask(prompts(4), llm_at("http://127.0.0.1:9/v1", retries=1))
    assert "does not answer" in generation.stopped
    assert (generation.answers, generation.failed) == ({}, {})


def test_a_message_cannot_control_the_terminal(ask, server):
    server.instead.append(lambda call: error(401, "no\x1b]0;title\x07\x1b[2J\u202e"))
    with running(server) as url:
        stopped = ask(prompts(1), llm_at(url)).stopped
    assert "\\x1b" in stopped
    assert not {"\x1b", "\x07", "\u202e"} & set(stopped)


@pytest.mark.parametrize("between", ["", " ", "\n"])
def test_a_message_that_repeats_our_texts_is_not_shown(ask, server, between):
    """A server may also break the lines of what it quotes elsewhere."""
    asked = prompts(1)
    quoted = between.join("".join(asked[0].user.split()))
    server.instead.append(lambda call: error(401, f"not allowed: {quoted}"))
    with running(server) as url:
        assert ask(asked, llm_at(url)).stopped.endswith("refuses (status 401)")


@pytest.mark.parametrize("form", ["json_schema", "json_object", "text"])
def test_the_response_format_is_sent(ask, server, form):
    asked = prompts(1)
    with running(server) as url:
        ask(asked, llm_at(url, answer=form))
    sent = server.bodies[-1].get("response_format")
    if form == "json_schema":
        assert sent["json_schema"]["schema"] == asked[0].schema
    else:
        assert sent == ({"type": "json_object"} if form == "json_object" else None)


FILTERS = [
    error(400, "Content Exists Risk"),
    error(400, "Input data may contain inappropriate content.", code="data_inspection_failed"),
    error(400, "The response was filtered", code="content_filter"),
    error(400, "系统检测到输入或生成内容可能包含不安全或敏感内容", code="1301"),
    error(403, "flagged", code="content_policy_violation"),
    error(403, "Rejected by the safety system."),
    rules.Answer(403, {"code": "permission", "error": "Content violates usage guidelines. SAFETY_CHECK"}),
    error(200, "The response was filtered by a gateway", code="content_filter"),
]


@pytest.mark.parametrize("answer", FILTERS, ids=lambda answer: str(answer.content["error"])[:40])
@pytest.mark.parametrize("filtered", [range(5), [7]], ids=["first", "later"])
def test_a_filtered_text_is_its_own_failure(ask, server, answer, filtered):
    asked = prompts(12)
    refused = {asked[number].user for number in filtered}
    server.instead.append(lambda call: answer if call.body["messages"][-1]["content"] in refused else None)
    with running(server) as url:
        generation = ask(asked, llm_at(url, concurrency=1))
    assert generation.failed == {asked[number].key: "filtered" for number in filtered}
    assert len(generation.answers) == 12 - len(filtered)
    assert {body["response_format"]["type"] for body in server.bodies} == {"json_object"}
    assert len(server.bodies) == 12  # none is asked for twice


def test_an_endpoint_that_refuses_every_text_is_given_up(ask, server):
    server.instead.append(lambda call: error(400, "unknown parameter: temperature"))
    with running(server) as url:
        generation = ask(prompts(12), llm_at(url, concurrency=1))
    assert "unknown parameter: temperature" in generation.stopped
    assert len(server.bodies) == 3


def message(call, **fields):
    answer = rules.completion(call.body["model"], "", (10, 10))
    reason = fields.pop("finish_reason", "stop")
    said = {"role": "assistant", "content": None, **fields}
    answer["choices"][0] |= {"message": said, "finish_reason": reason}
    return rules.Answer(200, answer)


SAID = '{"reply": "好"}'


@pytest.mark.parametrize(
    "fields",
    [
        {"content": [{"type": "text", "text": SAID}]},
        {"content": [{"type": "thinking", "thinking": "{}"}, {"type": "text", "text": SAID}]},
        {"content": [{"type": "text", "text": SAID[:5]}, {"type": "text", "text": SAID[5:]}]},
        {"reasoning_content": f"想一想。{SAID}"},
        {"content": "", "reasoning_content": SAID},
        {"content": "\n", "reasoning": SAID},
        {"content": SAID, "reasoning_content": '{"reply": "something else"}'},
    ],
)
def test_an_answer_is_found_in_every_known_field(ask, server, fields):
    server.instead.append(lambda call: message(call, **fields))
    with running(server) as url:
        assert ask(prompts(1), llm_at(url)).answers == {"p0": "好"}


def test_a_reply_may_begin_with_a_byte_order_mark(ask, server):
    def marked(call):
        return rules.Answer(200, b"\xef\xbb\xbf" + json.dumps(message(call, content=SAID).content).encode())

    server.instead.append(marked)
    with running(server) as url:
        assert ask(prompts(1), llm_at(url, retries=0)).answers == {"p0": "好"}


def test_an_answer_whose_characters_cannot_be_decoded_is_asked_for_again(ask, server):
    def gbk(call):
        content = message(call, content=write(call.body["messages"])).content
        return rules.Answer(200, json.dumps(content, ensure_ascii=False).encode("gbk"))

    first = iter([gbk])
    server.instead.append(lambda call: next(first, lambda _: None)(call))
    asked = prompts(1)
    with running(server) as url:
        assert ask(asked, llm_at(url)).answers == expected(asked)


def test_truncated_reasoning_is_not_an_answer(ask, server):
    server.instead.append(
        lambda call: message(call, reasoning_content='{"reply": "draft"}', finish_reason="length")
    )
    with running(server) as url:
        assert ask(prompts(1), llm_at(url)).failed == {"p0": "cut"}


def test_only_the_named_key_is_sent(ask, server, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, f"sk-secret-{name}")
    monkeypatch.setenv("MY_KEY", "sk-mine")
    with running(server) as url:
        ask(prompts(1), llm_at(url))
        assert server.headers[-1]["authorization"] == "Bearer none"
        ask(prompts(2), llm_at(url, api_key_env="MY_KEY"))
        assert server.headers[-1]["authorization"] == "Bearer sk-mine"
    assert "sk-secret" not in str(server.headers)


def test_temperature_may_be_left_out(ask, server):
    with running(server) as url:
        ask(prompts(1), llm_at(url, temperature=0.3))
        assert server.bodies[-1]["temperature"] == 0.3
        ask(prompts(1), llm_at(url, temperature=None, extra={"top_p": 0.5}))
    assert "temperature" not in server.bodies[-1]
    assert server.bodies[-1]["top_p"] == 0.5


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": "many"}])
def test_tokens_are_estimated_if_the_endpoint_does_not_count_them(ask, server, usage):
    def special(call):
        answer = rules.completion(call.body["model"], write(call.body["messages"]), (0, 0))
        return rules.Answer(200, {**answer, "usage": usage})

    server.instead.append(special)
    (asked,) = prompts(1)
    with running(server) as url:
        account = ask([asked], llm_at(url, price_in=10.0)).account
    assert account.estimated == account.answers == 1
    assert account.tokens_in >= (len(asked.system) + len(asked.user)) / 2
    assert account.cost == pytest.approx(account.tokens_in * 1e-5)


def test_limits_and_concurrency_are_kept(ask, server, tmp_path):
    server.latency = 0.05
    with running(server) as url:
        ask(prompts(12), llm_at(url, concurrency=3))
    assert server.busiest == 3
    server.latency, arrivals = 0.0, []
    server.on_arrival = lambda number: arrivals.append(time.monotonic())
    with running(server) as url:
        ask(prompts(12), llm_at(url, requests_per_minute=600), journal=tmp_path / "slow.sqlite")
    assert len(arrivals) == 12
    assert arrivals[-1] - arrivals[0] > 0.8  # ten a second


class Endless(BaseHTTPRequestHandler):
    """Sends a body without end, or one that unpacks to 2 GB, with the status that the path names."""

    def log_message(self, *words):
        del words

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        _, status, kind, *_ = self.path.split("/")
        self.send_response(int(status))
        self.send_header("Content-Type", "application/json")
        if kind == "gzip":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        packed = gzip.compress(bytes(1 << 20))
        sent = 0
        with contextlib.suppress(OSError):
            for _ in range(2048):
                piece = packed if kind == "gzip" else bytes(1 << 20)
                self.wfile.write(piece)
                sent += len(piece)
        self.server.sent.append(sent)


@pytest.mark.parametrize("kind", ["endless", "gzip"])
@pytest.mark.parametrize("status", [200, 400])
def test_a_reply_without_end_takes_no_memory(ask, kind, status):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    server.sent = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tracemalloc.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/{status}/{kind}"
        generation = ask(prompts(1), llm_at(url, retries=1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        server.shutdown()
        server.server_close()
    assert set(generation.failed) == {"p0"}
    assert peak < 64 << 20
    assert all(sent < 40 << 20 for sent in server.sent)
