"""The server: `mar serve`, or `create_app` for your own ASGI server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.files import load_package
from mar_st.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["ServeSettings", "create_app", "run"]


def create_app(*args: Any, **kwargs: Any) -> FastAPI:
    """Return the server as an ASGI application; see `mar_st.serve.app.create_app`.

    Raises:
        MarError: A package is missing.
    """
    app: FastAPI = load_package("mar_st.serve.app", extra="serve").create_app(*args, **kwargs)
    return app


def run(settings: ServeSettings) -> None:
    """Serve an index over HTTP: a search page, /search, an OpenAI-compatible /v1/embeddings, and metrics.

    SIGHUP or POST /admin/reload reopens the index without losing a request; SIGTERM finishes the accepted
    requests.
    """
    load_package("mar_st.serve.launch", extra="serve").launch(settings)
