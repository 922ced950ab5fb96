"""The application: its endpoints, and its lifetime from start to stop."""

from __future__ import annotations

import asyncio
import base64
import html
import logging
import time
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from mar_st.errors import MarError
from mar_st.serve import ServeSettings
from mar_st.serve.engine import Engine, Generations
from mar_st.serve.guard import RELOAD, ApiError, Guard, Keys, as_json, bad, explain
from mar_st.serve.metrics import Metrics
from mar_st.serve.schemas import MAX_HITS, MAX_TEXTS, EmbeddingsRequest, RerankRequest, SearchRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mar_st.index.searcher import Searcher

#: Logger of query texts; used only with `log_queries`.
QUERY_LOG = logging.getLogger("mar_st.serve.queries")

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}

#: Headers of the page: nothing from other sites, nothing inline, no framing, forms only to this site.
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}

_PUBLIC = ["/", "/page.js", "/texts.js", "/page.css", "/openapi.json", "/healthz", "/readyz"]


def create_app(index: str | Path | Searcher | None = None, settings: ServeSettings | None = None) -> FastAPI:
    """Return the server as an ASGI application.

    Args:
        index: Index in place of that of the settings. A reload takes an open searcher as it is.
        settings: Index, models, limits and keys; `host` and `port` have no effect here.

    Raises:
        MarError: The index or an encoder cannot be opened, or they do not match.
    """
    settings, searcher = settings or ServeSettings(), None
    if isinstance(index, str | Path):
        settings = settings.model_copy(update={"index": str(index)})
    else:
        searcher = index
    if searcher is None and settings.index is None:
        raise MarError("The server needs an index, or settings with one.")
    keys, metrics = Keys(settings.api_keys), Metrics()
    generations = Generations(settings, keys, metrics, searcher)
    server = _Server(settings, generations, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        server.stopping = True
        generations.stop()

    app = FastAPI(
        title="MAR search", version=version("medteb"), docs_url=None, redoc_url=None, lifespan=lifespan,
        redirect_slashes=False, telemetry={"tracing": False, "metrics": False, "logs": False},
        responses={"4XX": {"description": "The request was refused: `error` says why."}},
    )  # fmt: skip
    app.state.generations, app.state.metrics = generations, metrics
    for error in (HTTPException, RequestValidationError, ValidationError):
        app.add_exception_handler(error, explain)
    for method, path, endpoint, summary in (
        ("POST", "/search", server.search, "Search the index"),
        ("POST", "/v1/embeddings", server.embeddings, "Encode texts"),
        ("POST", "/rerank", server.rerank, "Score texts for a query"),
        ("GET", "/document", server.document, "Return one document of the index"),
        ("GET", "/v1/models", server.models, "List the models"),
        ("GET", "/info", server.info, "Describe the index and the limits"),
        ("POST", RELOAD, server.reload, "Read the keys and open the index again"),
        ("GET", "/healthz", server.health, "Say that the server runs"),
        ("GET", "/readyz", server.ready, "Say whether the server takes requests"),
        ("GET", "/metrics", server.show_metrics, "Return Prometheus metrics"),
    ):
        app.add_api_route(path, endpoint, methods=[method], summary=summary, response_model=None)
    _add_page(app, settings.title)
    paths = [getattr(route, "path", "") for route in app.routes]
    app.add_middleware(Guard, settings=settings, keys=keys, metrics=metrics, public=_PUBLIC, paths=paths)
    if settings.cors:
        names = ["Authorization", "Content-Type", "X-API-Key"]
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors, allow_methods=["GET", "POST"], allow_headers=names
        )
    return app


class _Server:
    """What the endpoints do."""

    def __init__(self, settings: ServeSettings, generations: Generations, metrics: Metrics) -> None:
        self.settings, self.generations, self.metrics = settings, generations, metrics
        self.stopping = False
        engine = generations.engine
        source = settings.encoder or (engine.index.model if settings.query_encoder else None)
        self.name = settings.name or Path(source or "").name or "mar"
        metrics.encoder.labels(self.name, engine.query or "").set(1)

    @property
    def engine(self) -> Engine:
        return self.generations.engine

    async def search(self, body: SearchRequest) -> Response:
        """Search the index."""
        started, engine = time.monotonic(), self.engine
        deadline = started + self.settings.timeout
        if body.hybrid and not engine.index.has_words:
            raise bad("This index has no BM25, so 'hybrid' is not possible.", "hybrid", "no_bm25")
        if body.rerank and engine.searcher.reranker is None:
            raise bad("This server has no reranker; start it with --reranker.", "rerank", "no_reranker")
        truncated = False
        if body.query is not None and engine.encoder is not None:
            (query,), _, truncated = await engine.checked(
                [body.query], "query", truncate=body.truncate, count=False
            )
            body = body.model_copy(update={"query": query}) if truncated else body
        if self.settings.log_queries and body.query is not None:
            QUERY_LOG.info("%s", body.query)
        hits, encoded = await engine.search(body, deadline)
        now = time.monotonic()
        return as_json(
            {
                "hits": [hit.to_json() for hit in hits],
                "timing": {
                    "encode_ms": _ms(encoded - started),
                    "search_ms": _ms(now - encoded),
                    "total_ms": _ms(now - started),
                },
                "truncated": truncated,
            }
        )

    async def document(self, id: str) -> Response:  # noqa: A002 -- the parameter's name
        """Return one document as stored in the index."""
        stored = await asyncio.to_thread(self.engine.index.document, id)
        if stored is None:
            raise ApiError(404, "no_such_document", "The index has no document with this id.", "id")
        return as_json(stored._asdict())

    async def embeddings(self, body: EmbeddingsRequest) -> Response:
        """Encode texts as OpenAI's endpoint does."""
        deadline = time.monotonic() + self.settings.timeout
        texts = [body.input] if isinstance(body.input, str) else body.input
        if body.model not in (None, self.name):
            raise ApiError(404, "model_not_found", f"This server has the model {self.name}.", "model")
        engine = self.engine
        encoder = engine.needed("model")
        dim = encoder.dim
        if body.dimensions is not None and body.dimensions > dim:
            raise bad(f"'dimensions' must be at most {dim}.", "dimensions")
        texts, used, _ = await engine.checked(texts, "input", truncate=body.truncate)
        if self.settings.log_queries:
            for text in texts:
                QUERY_LOG.info("%s", text)
        vectors = await engine.encode(texts, deadline)
        if body.dimensions is not None and body.dimensions < dim:
            vectors = vectors[:, : body.dimensions]
            if encoder.normalised:
                vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        rows: Any = np.ascontiguousarray(vectors, dtype="<f4")
        if body.encoding_format == "base64":
            rows = [base64.b64encode(row).decode("ascii") for row in rows]
        data = [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(rows)]
        usage = {"prompt_tokens": used, "total_tokens": used}
        content = {"object": "list", "data": data, "model": body.model or self.name, "usage": usage}
        return await asyncio.to_thread(as_json, content)

    async def rerank(self, body: RerankRequest) -> Response:
        """Score texts as text-embeddings-inference does, the best first."""
        scores = await self.engine.scores(body, time.monotonic() + self.settings.timeout)
        ranks = [
            {"index": place, "score": float(scores[place])} for place in np.argsort(-scores, kind="stable")
        ]
        if body.return_text:
            ranks = [{**rank, "text": body.texts[int(rank["index"])]} for rank in ranks]
        return as_json(ranks)

    async def models(self) -> Response:
        """List the models."""
        entry = {"id": self.name, "object": "model", "created": 0, "owned_by": "medteb"}
        entries = [] if self.engine.encoder is None else [{**entry, "query_encoder": self.engine.query}]
        return as_json({"object": "list", "data": entries})

    async def reload(self) -> Response:
        """Read the keys and open the index again."""
        try:
            await self.generations.reload()
        except (MarError, OSError) as error:
            raise ApiError(409, "not_reloaded", f"The old index still answers. {error}") from error
        return as_json({"documents": len(self.engine.index)})

    async def health(self) -> Response:
        """Say that the server runs."""
        return as_json({"status": "ok"})

    async def ready(self) -> Response:
        """Say whether the server takes requests."""
        status = "stopping" if self.stopping else "ready"
        return as_json({"status": status}, 503 if self.stopping else 200)

    async def show_metrics(self) -> Response:
        """Return Prometheus metrics."""
        return Response(self.metrics.page(), media_type=self.metrics.content_type)

    async def info(self) -> Response:
        """Describe the index and the limits of requests."""
        engine = self.engine
        return as_json(
            {
                "model": self.name,
                "query_encoder": engine.query,
                "effort": engine.searcher.effort,
                "documents": len(engine.index),
                "dim": engine.index.dim,
                "fields": dict(engine.index.fields),
                "hybrid": engine.index.has_words,
                "rerank": engine.searcher.reranker is not None,
                "texts": engine.index.has_texts,
                "examples": engine.examples,
                "max_k": MAX_HITS,
                "max_texts": MAX_TEXTS,
                "generation": self.generations.number,
            }
        )


def _add_page(app: FastAPI, title: str | None) -> None:
    """Add the search page: `/`, its scripts and its style."""
    for file in sorted(_PAGE.iterdir()):
        content = file.read_text(encoding="utf-8")
        if title is not None:
            content = content.replace('data-title=""', f'data-title="{html.escape(title)}"')
        response = Response(content, media_type=_TYPES[file.suffix], headers=_PAGE_HEADERS)

        async def show(_: Request, response: Response = response) -> Response:
            return response

        path = "/" if file.name == "index.html" else f"/{file.name}"
        app.add_route(path, show)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
