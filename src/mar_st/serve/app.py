"""The application: opening the index and encoders, and its lifetime from start to stop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from mar_st.serve.api.gate import Gate
from mar_st.serve.api.keys import KeyRing
from mar_st.serve.api.routes import add_routes
from mar_st.serve.engine.fleet import follow
from mar_st.serve.engine.generations import Generations, OpenedSearcher, SearcherSource
from mar_st.serve.engine.search_engine import Encoding
from mar_st.serve.metrics import Metrics
from mar_st.serve.settings import ServeError, ServeSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp, Receive, Scope, Send

    from mar_st.index import Searcher
    from mar_st.online import QueryEncoder
    from mar_st.serve.engine.fleet import Fleet


def create_app(
    index: Searcher | str | Path,
    settings: ServeSettings | None = None,
    *,
    encoder: QueryEncoder | str | Path | None = None,
    documents: QueryEncoder | None = None,
    fleet: Fleet | None = None,
) -> FastAPI:
    """Return the server as an ASGI application.

    Args:
        index: Folder or URI of an index, or an open searcher. An open searcher cannot be reopened.
        settings: Limits and keys. Host, port and workers have no effect here.
        encoder: Encodes queries; default the encoder of an open searcher.
        documents: Encodes documents for `input_type: document`.
        fleet: Folder through which workers are asked to reopen the index.

    Raises:
        MarError: The index or an encoder cannot be opened, or they do not match.
    """
    settings = settings or ServeSettings()
    keys = KeyRing(settings.api_keys)
    metrics = Metrics()
    seen = fleet.wanted if fleet is not None else 0
    if isinstance(index, str | Path):
        source = SearcherSource(
            str(index),
            encoder,
            settings.reranker,
            query=settings.query,
            backend=settings.backend,
            threads=settings.threads,
        )
        opened = source.open()
    elif settings.query is not None:
        raise ServeError("The searcher is open already, so its query encoder cannot be chosen by name.")
    else:
        source, opened = None, OpenedSearcher(index, encoder if encoder is not None else index.encoder)
    settings = replace(settings, model_name=settings.model_name or _name(opened.model))
    generations = Generations(source, opened, settings, metrics, documents, keys.reread)
    own = Encoding(documents, settings, metrics) if documents is not None else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        following = None
        if fleet is not None:
            following = asyncio.create_task(follow(fleet, generations, seen=seen, watch=settings.watch))
        yield
        app.state.ready = False
        if following is not None:
            following.cancel()
        await generations.close()
        if own is not None:
            await asyncio.to_thread(own.batcher.close)

    app = Application(
        title="MAR search",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # it looks for providers every time
    )
    app.state.ready = True
    app.state.generations, app.state.metrics = generations, metrics
    direct = add_routes(app, generations, own, fleet, settings=settings, metrics=metrics)
    app.add_middleware(Gate, settings=settings, keys=keys, metrics=metrics, direct=direct)
    return app


class Application(FastAPI):
    """An application whose middleware runs before all of FastAPI's own layers.

    Fast routes bypass these layers. As in any application, middleware that is added later runs earlier.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._entry: ASGIApp = super().__call__

    def add_middleware(self, middleware_class: Any, *args: Any, **kwargs: Any) -> None:
        """Wrap the application in a middleware, as `starlette.applications.Starlette.add_middleware`."""
        self._entry = middleware_class(self._entry, *args, **kwargs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer through the middleware."""
        await self._entry(scope, receive, send)


def _name(model: str | Path | None) -> str:
    """Return the default name of a model: the name of its folder."""
    return (Path(model).name if model is not None else "") or "mar"
