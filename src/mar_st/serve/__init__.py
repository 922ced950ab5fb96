"""The server: `mar serve`, or `create_app` for your own ASGI server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.serve.launch import check_packages
from mar_st.serve.settings import ServeError, ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["ServeError", "ServeSettings", "create_app"]


def create_app(*args: Any, **kwargs: Any) -> FastAPI:
    """Return the server as an ASGI application; see `mar_st.serve.app.create_app`.

    Raises:
        PackageError: A package is missing.
    """
    check_packages()
    from mar_st.serve.app import create_app as create  # lazy: fastapi

    return create(*args, **kwargs)
