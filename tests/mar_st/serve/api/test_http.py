"""Tests of reading bodies and query strings, and of the headers and time limits of responses."""

from __future__ import annotations

import asyncio
import time

import pytest

from mar_st.serve.api.http import (
    STARTED_KEY,
    HandlerEndpoint,
    HttpResponse,
    ReceivedRequest,
    as_json,
    read_body,
)
from mar_st.serve.errors import ApiError

JSON = (b"content-type", b"application/json")
BODY = '{"query": "头疼"}'.encode()


def part(body, *, more=False):
    return {"type": "http.request", "body": body, "more_body": more}


def read(*messages, headers=(JSON,), limit=100):
    """Return the body, and how many messages were taken."""
    waiting = list(messages)

    async def receive():
        return waiting.pop(0)

    body = asyncio.run(read_body({"headers": headers}, receive, limit, 5))
    return body, len(messages) - len(waiting)


def refusal(call):
    with pytest.raises(ApiError) as error:
        call()
    return error.value.status, error.value.code


@pytest.mark.parametrize("size", [1, 3, 7, len(BODY) - 1])
def test_a_body_in_parts_equals_the_body_in_one(size):
    parts = [part(BODY[at : at + size], more=True) for at in range(0, len(BODY), size)]
    assert read(*parts, part(b"")) == (read(part(BODY))[0], len(parts) + 1)
    assert read(part(BODY))[0] == BODY


@pytest.mark.parametrize("length", [None, b"0", b"1", b"100"])
def test_received_bytes_are_limited_whatever_their_length_is_said_to_be(length):
    headers = [JSON] if length is None else [JSON, (b"content-length", length)]
    whole = [part(b" " * 50, more=True), part(b" " * 50)]
    assert read(*whole, headers=headers)[0] == b" " * 100
    assert read(part(b" " * 100), headers=headers)[0] == b" " * 100
    for messages in ([part(b" " * 101)], [part(b" " * 50, more=True), part(b" " * 51)]):
        assert refusal(lambda: read(*messages, headers=headers)) == (413, "body_too_large")  # noqa: B023


@pytest.mark.parametrize("length", [b"101", b"9" * 20, b"9" * 5000, b"-1", b"1e9", b"", "１".encode()])
def test_a_length_beyond_the_limit_is_refused_before_the_body_is_read(length):
    assert refusal(lambda: read(headers=[JSON, (b"content-length", length)])) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("kind", "accepted"),
    [
        (b"application/json", True),
        (b"Application/JSON ; charset=utf-8", True),
        (b"application/json-seq", False),
        (b"text/plain", False),
        (b"text/plain; a=application/json", False),
        (b"application/x-www-form-urlencoded", False),
        (b"multipart/form-data; boundary=application/json", False),
        (b"", False),
    ],
)
def test_only_json_is_read(kind, accepted):
    """Pages of other sites can send the other types without asking."""
    headers = [(b"content-type", kind)]
    if accepted:
        assert read(part(BODY), headers=headers)[0] == BODY
    else:
        assert refusal(lambda: read(headers=headers)) == (415, "not_json")
        assert refusal(lambda: read(headers=[])) == (415, "not_json")


@pytest.mark.parametrize(("coding", "accepted"), [(b"gzip", False), (b"Identity", True), (b"", True)])
def test_a_compressed_body_is_refused(coding, accepted):
    headers = (JSON, (b"content-encoding", coding))
    if accepted:
        assert read(part(BODY), headers=headers)[0] == BODY
    else:
        assert refusal(lambda: read(part(BODY), headers=headers)) == (415, "encoded_body")


@pytest.mark.parametrize("before", [[], [part(b"{", more=True)]])
def test_a_client_that_leaves_within_its_request_is_refused(before):
    assert refusal(lambda: read(*before, {"type": "http.disconnect"})) == (400, "disconnected")


@pytest.mark.parametrize("before", [[], [part(b"{", more=True)]])
def test_a_body_that_does_not_arrive_closes_the_connection(before):
    async def stalled():
        waiting = list(before)

        async def receive():
            return waiting.pop(0) if waiting else await asyncio.Event().wait()

        await read_body({"headers": [JSON]}, receive, 100, 0.01)

    with pytest.raises(ApiError, match=r"within 0\.01 s") as late:
        asyncio.run(stalled())
    assert late.value.status == 408
    assert (b"connection", b"close") in late.value.headers


@pytest.mark.parametrize(
    ("query", "value"),
    [
        (b"id=a+b", "a b"),
        (b"id=%2B%26%3D%3B", "+&=;"),
        (b"id=%E5%A4%B4", "头"),
        (b"id=a;id=b", "a;id=b"),
        (b"x=1&id=%00&y", "\0"),
    ],
)
def test_a_parameter_is_decoded(query, value):
    assert ReceivedRequest(b"", 0, 0, query).parameter("id") == value


@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"id=",
        b"id",
        b"ID=1",
        b"id=1&id=1",
        b"id=%ff",
        b"id=%ed%a0%80",
        "id=头".encode(),
        b"id=1" + b"&a=1" * 999,
    ],
)
def test_a_parameter_that_is_missing_repeated_or_no_utf8_is_refused(query):
    assert refusal(lambda: ReceivedRequest(b"", 0, 0, query).parameter("id")) == (400, "invalid_request")


@pytest.mark.parametrize(
    "body", [b'{"secret": x}', b'{"secret', b'"secret"', b"[secret]", b'{"secret": 1e999}']
)
def test_json_that_cannot_be_read_is_not_repeated(body):
    with pytest.raises(ApiError, match=r"^The body (is not valid JSON|must be a JSON object)") as refused:
        ReceivedRequest(body, 0, 0).json()
    assert b"secret" not in refused.value.body()


def sent(response):
    messages = []

    async def send(message):
        messages.append(message)

    asyncio.run(response.send(send))
    (start, body) = messages
    assert len(dict(start["headers"])) == len(start["headers"]), "a header is sent twice"
    return start["status"], dict(start["headers"]), body["body"]


def test_answers_are_json_that_is_not_stored_unless_they_say_otherwise():
    status, headers, body = sent(HttpResponse(as_json({"头": 1})))
    assert (status, body) == (200, '{"头":1}'.encode())
    assert headers[b"content-length"] == b"%d" % len(body)
    assert (headers[b"content-type"], headers[b"cache-control"]) == (b"application/json", b"no-store")
    own = ((b"content-type", b"text/plain"), (b"cache-control", b"no-cache"))
    assert sent(HttpResponse(b"x", 404, own))[1] == {
        b"content-length": b"1", b"x-content-type-options": b"nosniff", **dict(own)
    }  # fmt: skip


def test_the_time_limit_counts_from_the_head_of_the_request():
    """A request whose body took most of the time has only the rest left."""

    async def answer(seconds_ago):
        async def handler(request):
            assert request.deadline == pytest.approx(request.started + 5)
            if request.deadline < time.monotonic() + 4:
                await asyncio.Event().wait()
            return HttpResponse(request.body)

        async def receive():
            return part(BODY)

        async def send(message):
            messages.append(message)

        messages = []
        scope = {"headers": [JSON], "query_string": b"", STARTED_KEY: time.monotonic() - seconds_ago}
        endpoint = HandlerEndpoint(handler, limit=100, body_seconds=5, seconds=5)
        try:
            await endpoint(scope, receive, send)
        except ApiError as error:
            assert messages == []
            return error.status
        return messages[-1]["body"]

    assert asyncio.run(answer(0)) == BODY
    assert asyncio.run(answer(4.99)) == 504
