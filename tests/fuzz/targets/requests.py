"""Bodies of requests and filters, for the application with a real index."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from mar_st.index import Searcher
from mar_st.serve import ServeSettings, create_app
from tests.fuzz.engine import Target
from tests.mar_st.serve.fakes import DOCUMENTS, FakeDocumentEncoder, FakeEncoder
from tests.mar_st.serve.servers import make_index

if TYPE_CHECKING:
    from pathlib import Path

_PATHS = {b"s": "/search", b"e": "/v1/embeddings"}


def prepare(folder: Path) -> Target:
    """Set up the target: bodies of requests to the server."""
    searcher = Searcher.open(make_index(folder, DOCUMENTS), encoder=FakeEncoder())
    app = create_app(searcher, ServeSettings(), documents=FakeDocumentEncoder())
    loop = asyncio.new_event_loop()

    async def ask(path: str, body: bytes) -> tuple[int, bytes]:
        sent: list[dict[str, Any]] = []
        bodies = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return bodies.pop() if bodies else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        await app(
            {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http",
             "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
             "headers": headers,
             "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {}},
            receive, send,
        )  # fmt: skip
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])

    good = json.dumps({"query": DOCUMENTS[0]}).encode()

    def check(data: bytes) -> str:
        status, body = loop.run_until_complete(ask(_PATHS.get(data[:1], "/search"), data[1:]))
        answer = json.loads(body)
        assert status in (200, 400, 404, 413), (status, body[:500])
        if status == 200:
            return f"answer {sorted(answer)}"
        refusal: str = answer["error"]["message"]
        assert "\n" not in refusal, refusal
        check.number += 1  # type: ignore[attr-defined]
        if check.number % 200 == 0:  # type: ignore[attr-defined]
            assert loop.run_until_complete(ask("/search", good))[0] == 200
        return f"{status}: {refusal}"

    check.number = 0  # type: ignore[attr-defined]
    bodies: list[Any] = [
        {"query": "头疼", "k": 3},
        {"query": "头疼", "hybrid": True, "where": {"department": ["内科", "外科"]}, "truncate": True},
        {"vector": [0.1] * 16, "k": 1000, "where": {"department": {"gte": "内", "lt": "外"}}},
        {"query": "x" * 3000, "truncate": True, "hybrid": True},
        {"query": "感冒", "vector": [0.5] * 16, "hybrid": True, "where": {"department": "内科"}},
    ]
    inputs: list[Any] = [
        {"input": "头疼"}, {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 4},
        {"input": ["a"], "input_type": "document", "model": "mar", "truncate": True, "user": "u"},
        {"input": [1, 2, 3]},
    ]  # fmt: skip
    seeds = [b"s" + json.dumps(body).encode() for body in bodies]
    seeds += [b"e" + json.dumps(body).encode() for body in inputs]
    words = (
        b'"where"',
        b'"vector"',
        b'"query"',
        b'"k"',
        b'"gte"',
        b"1e308",
        b"1e16",
        b"[0.1]",
        b'"hybrid":true',
        b"-0",
    )
    return Target(seeds, check, words=words)
