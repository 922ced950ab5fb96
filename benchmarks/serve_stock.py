"""The same engine behind FastAPI's own routing, uvicorn's own connections, or both, for comparison.

    python benchmarks/serve.py --app mar,routes,connections,stock
    python benchmarks/limits.py --app stock

`routes` is FastAPI's routing on the connections of `mar serve`, `connections` is the application of
`mar serve` on uvicorn's connections, `stock` is FastAPI's routing on uvicorn's connections. Requests and
answers are pydantic models, and FastAPI reads and writes the JSON. Middleware and uvicorn's settings limit
hosts, bodies and connections. Micro-batches, queues and the index are those of `mar serve`.
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from mar_st.online import DeadlinePassed
from mar_st.serve import ServeSettings
from mar_st.serve.api.handlers import Handlers
from mar_st.serve.api.http import ReceivedRequest
from mar_st.serve.api.requests import EmbeddingsRequest, SearchRequest  # noqa: TC001 -- FastAPI reads them
from mar_st.serve.api.responses import (
    EmbeddingItem,
    EmbeddingsResponse,
    SearchHit,
    SearchResponse,
    SearchTiming,
    TokenUsage,
)
from mar_st.serve.app import create_app
from mar_st.serve.engine.aside import SWITCH_SECONDS
from mar_st.serve.errors import ApiError, late
from mar_st.serve.launch import _address, _listen, launch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Limits:
    """Middleware: refuses bodies that say they are too large, and counts requests."""

    def __init__(self, app: ASGIApp, most: int, metrics: Any) -> None:
        self.app, self.most, self.metrics = app, most, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), 0
        length = dict(scope["headers"]).get(b"content-length", b"0")

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        if int(length) > self.most:
            await JSONResponse({"error": {"code": "body_too_large"}}, 413)(scope, receive, watch)
        else:
            await self.app(scope, receive, watch)
        self.metrics.answered(scope["path"], status, time.monotonic() - started)


def make_app(index: str, encoder: str, settings: ServeSettings, folder: Path | None = None) -> FastAPI:
    """Return FastAPI's own routing of searches and embeddings to the engine of `mar serve`."""
    del folder
    sys.setswitchinterval(SWITCH_SECONDS)
    own = create_app(index, settings, encoder=encoder)
    handlers = Handlers(own.state.generations, None, settings)
    app = FastAPI(title="MAR search", lifespan=own.router.lifespan_context)
    app.state = own.state

    @app.exception_handler(ApiError)
    async def refuse(request: Request, error: ApiError) -> Response:
        del request
        return Response(error.body(), error.status, dict(_texts(error.headers)), "application/json")

    @app.get("/healthz")
    @app.get("/readyz")
    async def ready() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/search")
    async def search(asked: SearchRequest) -> SearchResponse:
        call = _call(settings)
        with handlers.generations.current as engine:
            handlers._check(engine, asked)
            ask, encoded, truncated = await handlers._prepared(engine, asked, call)
            try:
                hits = await engine.search(ask, encoded)
            except DeadlinePassed:
                raise late(settings.timeout) from None
            match = engine.searcher.match(hits)
        now = time.monotonic()
        timing = SearchTiming(
            encode_ms=1000 * (ask.encoded - call.started),
            search_ms=1000 * (ask.searched - ask.encoded),
            total_ms=1000 * (now - call.started),
        )
        hits = [SearchHit(**hit.to_json()) for hit in hits]
        return SearchResponse(hits=hits, match=match, timing=timing, truncated=bool(truncated))

    @app.post("/v1/embeddings")
    async def embeddings(asked: EmbeddingsRequest) -> EmbeddingsResponse:
        call = _call(settings)
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        with handlers.generations.current as engine:
            encoding = handlers._encoding(engine, "query", "model")
            vectors, counts = await handlers._encode(encoding, texts, None, call.deadline)
        rows = enumerate(vectors.tolist())
        data = [EmbeddingItem(object="embedding", index=place, embedding=row) for place, row in rows]
        usage = TokenUsage(prompt_tokens=sum(counts), total_tokens=sum(counts))
        return EmbeddingsResponse(object="list", data=data, model=asked.model or "mar", usage=usage)

    app.add_middleware(Limits, most=settings.max_body, metrics=own.state.metrics)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return app


def _call(settings: ServeSettings) -> ReceivedRequest:
    now = time.monotonic()
    return ReceivedRequest(b"", now, now + settings.timeout)


def _texts(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value in headers]


def serve_stock(app: FastAPI, settings: ServeSettings) -> None:
    """Run an application on uvicorn's own connections."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        timeout_keep_alive=settings.keep_alive,
        timeout_graceful_shutdown=settings.shutdown_timeout,
        limit_concurrency=settings.max_connections,
    )
    with _listen(settings.host, settings.port) as listening:
        server = uvicorn.Server(config)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: None)
        print(f"listening on {_address(listening)}", flush=True)
        server.run(sockets=[listening])


def main() -> None:
    """Serve an index."""
    parser = argparse.ArgumentParser()
    parser.add_argument("index")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--app", choices=("routes", "connections", "stock"), required=True)
    parser.add_argument("--timeout", type=float, default=10)
    parser.add_argument("--max-connections", type=int, default=ServeSettings().max_connections)
    given = parser.parse_args()
    settings = ServeSettings(port=0, timeout=given.timeout, max_connections=given.max_connections)
    if given.app == "routes":
        launch(
            functools.partial(make_app, given.index, given.encoder, settings),
            settings,
            say=functools.partial(print, flush=True),
        )
        return
    make = make_app if given.app == "stock" else _own
    serve_stock(make(given.index, given.encoder, settings), settings)


def _own(index: str, encoder: str, settings: ServeSettings) -> FastAPI:
    sys.setswitchinterval(SWITCH_SECONDS)
    return create_app(index, settings, encoder=encoder)


if __name__ == "__main__":
    main()
