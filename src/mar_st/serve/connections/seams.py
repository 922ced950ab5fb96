"""Internals of uvicorn that `GuardedProtocol` and `Workers` use, and a check that they are still there."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pydoc import locate

from mar_st.errors import MarError

__all__ = ["ATTRIBUTES", "METHODS", "TESTED_VERSION", "UvicornError", "check_uvicorn"]

#: Version of uvicorn that the tests run with.
TESTED_VERSION = "0.54"

#: Methods by class, with the number of their parameters besides `self`.
METHODS = {
    "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol": {
        "_start_asgi_task": 2,
        "_unset_keepalive_if_required": 0,
        "connection_lost": 1,
        "connection_made": 1,
        "data_received": 1,
        "on_body": 1,
        "on_header": 2,
        "on_headers_complete": 0,
        "on_message_begin": 0,
        "on_message_complete": 0,
        "on_response_complete": 0,
        "on_url": 1,
        "pause_writing": 0,
        "resume_writing": 0,
        "send_400_response": 1,
        "shutdown": 0,
        "timeout_keep_alive_handler": 0,
    },
    "uvicorn.supervisors.Multiprocess": {
        "handle_hup": 0,
        "keep_subprocess_alive": 0,
        "terminate_all": 0,
    },
}

#: Attributes that the constructor of `HttpToolsProtocol` sets.
ATTRIBUTES = (
    "app_state",
    "connections",
    "cycle",
    "expect_100_continue",
    "flow",
    "headers",
    "loop",
    "parser",
    "pipeline",
    "server_state",
    "tasks",
    "timeout_keep_alive_task",
    "transport",
)


class UvicornError(MarError):
    """The installed uvicorn lacks a piece that the server relies on."""


def check_uvicorn() -> None:
    """Check that uvicorn still has every piece that the server overrides or reads.

    Raises:
        UvicornError: A piece is missing or takes other arguments; the message names the first one.
    """
    for name, methods in METHODS.items():
        owner = locate(name)
        for method, number in methods.items():
            function = getattr(owner, method, None)
            if function is None or len(inspect.signature(function).parameters) != number + 1:
                raise UvicornError(_changed(f"{name}.{method}"))
    name = next(iter(METHODS))
    assigned = vars(locate(name))["__init__"].__code__.co_names
    for attribute in ATTRIBUTES:
        if attribute not in assigned:
            raise UvicornError(_changed(f"{name}().{attribute}"))


def _changed(piece: str) -> str:
    return (
        f"uvicorn {version('uvicorn')} has another {piece}, or none; mar serve was tested with uvicorn "
        f"{TESTED_VERSION}. Install that version: pip install 'uvicorn[standard]=={TESTED_VERSION}.*'"
    )
