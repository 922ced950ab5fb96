"""Internals of uvicorn that the server overrides or uses, and a check that they are still there."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pydoc import locate

from mar_st.errors import MarError

__all__ = ["ATTRIBUTES", "METHODS", "NAMES", "TESTED_VERSION", "UvicornError", "check_uvicorn"]

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
    "uvicorn.protocols.http.flow_control.FlowControl": {"pause_reading": 0},
    "uvicorn.Server": {"startup": 1},
    "uvicorn.supervisors.Multiprocess": {
        "handle_hup": 0,
        "keep_subprocess_alive": 0,
        "terminate_all": 0,
    },
    "uvicorn.supervisors.multiprocess.Process": {"is_ready": 1},
}

#: Attributes of instances, by class.
ATTRIBUTES = {
    "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol": (
        "app_state",
        "config",
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
        "url",
    ),
    "uvicorn.protocols.http.httptools_impl.RequestResponseCycle": (
        "disconnected",
        "keep_alive",
        "message_event",
        "response_complete",
    ),
    "uvicorn.protocols.http.flow_control.FlowControl": ("write_paused",),
    "uvicorn.Config": ("timeout_worker_healthcheck",),
    "uvicorn.Server": ("started",),
    "uvicorn.supervisors.Multiprocess": ("processes", "sockets"),
    "uvicorn.supervisors.multiprocess.Process": ("exitcode", "pid"),
}

#: Constants.
NAMES = ("uvicorn.config.STARTUP_FAILURE", "uvicorn.protocols.http.httptools_impl.STATUS_LINE")


class UvicornError(MarError):
    """The installed uvicorn lacks a piece that the server relies on."""


def check_uvicorn() -> None:
    """Check that uvicorn still has every piece that the server overrides or reads.

    Raises:
        UvicornError: A piece is missing or takes other arguments; the message names the first one.
    """
    for name in NAMES:
        if locate(name) is None:
            raise UvicornError(_changed(name))
    for name, methods in METHODS.items():
        owner = locate(name)
        for method, number in methods.items():
            function = getattr(owner, method, None)
            if function is None or len(inspect.signature(function).parameters) != number + 1:
                raise UvicornError(_changed(f"{name}.{method}"))
    for name, attributes in ATTRIBUTES.items():
        owner = locate(name)
        functions = filter(inspect.isfunction, vars(owner).values()) if inspect.isclass(owner) else ()
        used = {attribute for function in functions for attribute in function.__code__.co_names}
        for attribute in attributes:
            if attribute not in used and not hasattr(owner, attribute):
                raise UvicornError(_changed(f"{name}().{attribute}"))


def _changed(piece: str) -> str:
    return (
        f"uvicorn {version('uvicorn')} has another {piece}, or none; mar serve was tested with uvicorn "
        f"{TESTED_VERSION}. Install that version: pip install 'uvicorn[standard]=={TESTED_VERSION}.*'"
    )
