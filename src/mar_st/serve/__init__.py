"""The server: `mar serve`, or `create_app` for your own ASGI server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.files import need_packages
from mar_st.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["ServeSettings", "create_app", "run"]


def create_app(*args: Any, **kwargs: Any) -> FastAPI:
    """Return the server as an ASGI application; see `mar_st.serve.app.create_app`.

    Raises:
        PackageError: A package is missing.
    """
    _check_packages()
    from mar_st.serve.app import create_app as create  # lazy: fastapi

    return create(*args, **kwargs)


def run(settings: ServeSettings) -> None:
    """Serve an index over HTTP: a search page, /search, an OpenAI-compatible /v1/embeddings, and metrics.

    SIGHUP or POST /admin/reload reopens the index without losing a request; SIGTERM finishes the accepted
    requests.
    """
    _check_packages()
    from mar_st.serve.launch import launch  # lazy: uvicorn

    launch(settings)


def _check_packages() -> None:
    need_packages("fastapi", "uvicorn", "orjson", "prometheus_client", extra="serve", purpose="mar serve")
