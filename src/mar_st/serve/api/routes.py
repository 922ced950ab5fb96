"""The routes of the server."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from mar_st.errors import MarError
from mar_st.serve.api.handlers import Handlers
from mar_st.serve.api.http import HandlerEndpoint, HttpResponse, ReceivedRequest, as_json
from mar_st.serve.api.models import DOCUMENT_SUFFIX, NO_DOCUMENTS, model_entry, served_models, unknown_model
from mar_st.serve.api.openapi import openapi
from mar_st.serve.api.pages import add_pages
from mar_st.serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp

    from mar_st.serve.engine.fleet import Fleet
    from mar_st.serve.engine.generations import Generations
    from mar_st.serve.engine.search_engine import Encoding
    from mar_st.serve.metrics import Metrics
    from mar_st.serve.settings import ServeSettings

#: Time limit in seconds for all workers to reopen the index.
RELOAD_SECONDS = 600.0


def add_routes(
    app: FastAPI,
    generations: Generations,
    documents: Encoding | None,
    fleet: Fleet | None,
    *,
    settings: ServeSettings,
    metrics: Metrics,
) -> dict[tuple[str, str], ASGIApp]:
    """Give an application its routes.

    Args:
        app: The application.
        generations: Holds the engine that answers.
        documents: Encodes documents; `None` if nothing does.
        fleet: The workers to reload; `None` if there is only this process.
        settings: Limits.
        metrics: Metrics for `/metrics`.

    Returns:
        Endpoints by method and path that bypass the middleware of the application.
    """
    handlers = Handlers(generations, documents, settings)
    limits: dict[str, Any] = {"limit": settings.max_body, "body_seconds": settings.body_timeout}
    timed = {**limits, "seconds": settings.timeout}

    async def reload(request: ReceivedRequest) -> HttpResponse:
        del request
        return await _reload(generations, fleet)

    direct: dict[tuple[str, str], ASGIApp] = {
        ("POST", "/search"): HandlerEndpoint(handlers.search, **timed),
        ("POST", "/v1/embeddings"): HandlerEndpoint(handlers.embeddings, **timed),
        ("POST", "/admin/reload"): HandlerEndpoint(reload, **limits),
        ("GET", "/document"): HandlerEndpoint(handlers.document, seconds=settings.timeout),
    }
    # Behind a proxy with TLS, a redirect to the path without a slash would lead to http.
    app.router.redirect_slashes = False
    for (method, path), endpoint in direct.items():
        app.router.routes.append(Route(path, endpoint, methods=[method]))
    app.add_exception_handler(HTTPException, _refuse)
    _add_status(app, metrics)
    _add_models(app, generations, documents, settings)

    @app.get("/info")
    async def info() -> Response:
        return _json(_info(generations, documents, settings))

    def document() -> dict[str, Any]:
        facts = _info(generations, documents, settings)
        return openapi(
            **{
                name: facts[name]
                for name in ("dim", "fields", "max_k", "max_texts", "model", "hybrid", "rerank")
            },
            documents=documents is not None,
            keys=bool(settings.api_keys),
            version=_version(),
        )

    app.openapi = document  # type: ignore[method-assign]
    add_pages(app, document)
    return direct


def _add_status(app: FastAPI, metrics: Metrics) -> None:
    """Add `/healthz`, `/readyz` and `/metrics`."""

    @app.get("/healthz")
    async def healthz() -> Response:
        return _json({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        ready = bool(app.state.ready)
        return _json({"status": "ready" if ready else "stopping"}, 200 if ready else 503)

    @app.get("/metrics")
    async def show_metrics() -> Response:
        return Response(
            metrics.page(), media_type=metrics.content_type, headers={"cache-control": "no-store"}
        )


def _add_models(
    app: FastAPI, generations: Generations, documents: Encoding | None, settings: ServeSettings
) -> None:
    """Add `/v1/models` and `/v1/models/{model}`."""

    @app.get("/v1/models")
    async def models() -> Response:
        names = _models(generations, documents, settings)
        return _json({"object": "list", "data": [_entry(name, generations, settings) for name in names]})

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> Response:
        if model in _models(generations, documents, settings):
            return _json(_entry(model, generations, settings))
        name = settings.model_name or ""
        if model == name + DOCUMENT_SUFFIX:
            return _failed(ApiError(404, "model_not_found", NO_DOCUMENTS, param="model"))
        return _failed(unknown_model(name))


async def _reload(generations: Generations, fleet: Fleet | None) -> HttpResponse:
    """Reopen the index in every worker."""
    try:
        if fleet is None:
            await generations.reload()
            return HttpResponse(as_json({"documents": generations.current.documents}))
        reports = await fleet.settled(fleet.raise_wanted(), RELOAD_SECONDS)
    except MarError as error:
        raise ApiError(409, "not_reloaded", f"The old index still answers. {error}") from None
    failed = [report for report in reports if not report.ok]
    if failed:
        raise ApiError(409, "not_reloaded", f"The old index still answers. {failed[0].message}")
    return HttpResponse(as_json({"documents": reports[0].documents, "workers": len(reports)}))


def _models(generations: Generations, documents: Encoding | None, settings: ServeSettings) -> list[str]:
    """Return the names of the models that answer now."""
    queries = generations.current.encoding is not None
    return served_models(settings.model_name or "", queries=queries, documents=documents is not None)


def _entry(name: str, generations: Generations, settings: ServeSettings) -> dict[str, Any]:
    """Return the entry of a served model; the entry of the query side names the query encoder."""
    return model_entry(name, generations.current.query if name == settings.model_name else None)


def _info(generations: Generations, documents: Encoding | None, settings: ServeSettings) -> dict[str, Any]:
    """Describe the index and the limits of requests."""
    engine = generations.current
    query = ["query"] if engine.encoding is not None else []
    return {
        "model": settings.model_name,
        "query_encoder": engine.query,
        "effort": engine.effort,
        "match": engine.match,
        "documents": engine.documents,
        "dim": engine.dim,
        "fields": dict(engine.fields),
        "hybrid": engine.hybrid,
        "rerank": engine.rerank,
        "texts": engine.texts,
        "input_types": query + (["document"] if documents is not None else []),
        "max_k": settings.max_k,
        "max_texts": settings.max_texts,
        "generation": generations.number,
    }


async def _refuse(_: Request, error: Exception) -> Response:
    """Return the router's 404 and 405 in the common form of errors."""
    status = getattr(error, "status_code", 500)
    code, message = {
        404: ("no_such_path", "There is no such path; see /docs."),
        405: ("method_not_allowed", "This path does not accept that method; see /docs."),
    }.get(status, ("refused", "The request was refused."))
    headers = dict(getattr(error, "headers", None) or {})
    if headers.get("Allow") == "GET":
        headers["Allow"] = "GET, HEAD"  # see the gate
    return _failed(ApiError(status, code, message), headers)


def _failed(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    return Response(error.body(), error.status, media_type="application/json", headers=headers)


def _json(content: object, status: int = 200) -> Response:
    return Response(
        as_json(content), status, media_type="application/json", headers={"cache-control": "no-store"}
    )


def _version() -> str:
    try:
        return version("medteb")
    except PackageNotFoundError:
        return "0"
