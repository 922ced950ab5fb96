"""Tests of the middleware: who is let in, what is counted and logged, and how errors are answered."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from starlette.routing import Route

from mar_st.serve.api.gate import Gate
from mar_st.serve.api.keys import KeyRing
from mar_st.serve.metrics import Metrics
from mar_st.serve.settings import ServeSettings

KEY = "a-key-of-enough-characters"

#: Paths that are answered without a key. They tell nothing about the index.
OPEN = {"/", "/page.js", "/texts.js", "/page.css", "/docs", "/openapi.json", "/healthz", "/readyz"}


def passed(inner, *headers, path="/search", method="POST", **settings):
    """Messages of one request through a gate in front of an ASGI application."""
    messages = []

    async def send(message):
        messages.append(message)

    async def receive():
        return {"type": "http.request", "body": b""}

    settings = ServeSettings(**settings)
    scope = {"type": "http", "method": method, "path": path, "headers": [*headers], "query_string": b""}
    asyncio.run(Gate(inner, settings, KeyRing(settings.api_keys), Metrics(), {})(scope, receive, send))
    return messages


async def greet(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def status(messages):
    return messages[0]["status"]


def test_every_path_needs_a_key_but_those_that_tell_nothing(make_client):
    client = make_client(api_keys=[KEY])
    routes = [route for route in client.app.routes if isinstance(route, Route)]
    paths = {route.path.replace("{model:path}", "fake") for route in routes}
    assert paths > OPEN
    asked = [(method, path) for path in [*paths, "/nowhere", "/docs/", "/Docs"] for method in ("GET", "POST")]
    answers = asyncio.run(client.many(*[(*one, {}) for one in asked]))
    open_ones = {one for one, answer in zip(asked, answers, strict=True) if answer.status_code != 401}
    assert open_ones == {(method, path) for path in OPEN for method in ("GET", "POST")}
    assert client.get("/nowhere", headers={"x-api-key": KEY}).status_code == 404
    assert client.get("/info").headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([b"LocalHost"], 200),
        ([b"localhost:"], 200),
        ([b"MINE.example:443"], 200),
        ([b"[::1]"], 200),
        ([b"localhost:999999"], 400),
        ([b"localhost\n"], 400),
        ([b"localhost."], 400),
        ([b"localhost,evil.example"], 400),
        ([b"evil@localhost"], 400),
        ([b"::1"], 400),
        ([b""], 400),
        ([b"\xff"], 400),
        (["lоcalhost".encode()], 400),
        ([b"localhost", b"localhost"], 400),
    ],
)
def test_only_known_hosts_are_answered(hosts, expected):
    headers = [(b"host", host) for host in hosts]
    assert status(passed(greet, *headers, allow_hosts=("Mine.Example",))) == expected
    assert status(passed(greet, *headers, allow_hosts=("*",))) == 200


def test_a_server_without_keys_is_not_administered():
    host = (b"host", b"localhost")
    for headers in ((), ((b"x-api-key", b""),), ((b"authorization", b"Bearer "),)):
        start, body = passed(greet, host, *headers, path="/admin/reload")
        assert (start["status"], json.loads(body["body"])["error"]["code"]) == (403, "no_api_keys")


def test_an_application_that_answers_get_answers_head_without_a_body():
    asked = []

    async def inner(scope, receive, send):
        asked.append(scope["method"])
        await greet(scope, receive, send)

    answers = {method: passed(inner, (b"host", b"localhost"), method=method) for method in ("GET", "HEAD")}
    assert asked == ["GET", "GET"]
    assert answers["GET"][0] == answers["HEAD"][0]
    assert (answers["GET"][1]["body"], answers["HEAD"][1]["body"]) == (b"hello", b"")


def test_an_error_within_an_answer_ends_it_without_a_second_one(caplog):
    async def torn(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("secret")

    messages = passed(torn, (b"host", b"localhost"))
    assert [message["type"] for message in messages] == ["http.response.start"]
    assert "secret" not in caplog.text


def test_an_error_whose_text_is_no_utf8_is_answered():
    async def failing(scope, receive, send):
        raise OSError(2, "No such file", "/data/\udcff")

    start, body = passed(failing, (b"host", b"localhost"))
    assert (start["status"], json.loads(body["body"])["error"]["code"]) == (500, "internal")


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_other_kinds_of_connection_pass_unchanged(kind):
    seen = []

    async def inner(scope, receive, send):
        seen.append(scope)

    scope = {"type": kind}
    asyncio.run(Gate(inner, ServeSettings(), KeyRing(()), Metrics(), {})(scope, None, None))
    assert seen == [{"type": kind}]


def test_head_is_answered_as_get_without_the_body(client):
    paths = (
        "/", "/page.js", "/texts.js", "/page.css", "/docs", "/openapi.json", "/info", "/healthz", "/readyz",
        "/metrics", "/v1/models", "/v1/models/fake", "/document?id=d0", "/document", "/nowhere", "/search",
    )  # fmt: skip
    for path in paths:
        get_response, head_response = client.get(path), client("HEAD", path)
        assert head_response.status_code == get_response.status_code, path
        assert head_response.content == b""
        # Only what counts requests is longer after one more.
        ignored = {"content-length"} if path == "/metrics" else set()
        assert {k: v for k, v in head_response.headers.items() if k not in ignored} == {
            k: v for k, v in get_response.headers.items() if k not in ignored
        }
    assert client.post("/").headers["allow"] == "GET, HEAD"
    tag = client.get("/").headers["etag"]
    assert client("HEAD", "/", headers={"if-none-match": tag}).status_code == 304


def test_metrics_do_not_hold_requested_model_names(client):
    for name in ("fake", "秘密"):
        client.get(f"/v1/models/{name}")
    metrics = client.get("/metrics").text
    assert '"/v1/models/{model}"' in metrics
    assert "秘密" not in metrics


def test_an_error_of_the_server_is_one_line_without_the_query(make_client, caplog):
    client = make_client()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert client.post("/search", {"query": "坏"}).status_code == 500
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(lines) == 3
    assert all("\n" not in line and "坏" not in line for line in lines)
    assert "KeyError in a request, at fakes.py:" in lines[0]
    assert " < " in lines[0]
