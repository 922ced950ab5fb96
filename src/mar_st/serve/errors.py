"""Error responses: one JSON object, which never quotes the texts of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

Header: TypeAlias = tuple[bytes, bytes]

#: `error.type` for each status, as OpenAI's clients expect it.
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "timeout_error",
}


class ApiError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: HTTP status.
        code: Short name of the error, also the label `kind` of the metric `mar_errors_total`.
        param: The invalid field, if one is invalid.
        headers: Additional headers of the response.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Sequence[Header] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.headers = status, code, param, tuple(headers)

    def body(self) -> bytes:
        """Return the answer's JSON, in the form that OpenAI's clients read."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        message = str(self).encode("utf-8", "backslashreplace").decode()  # a path may not be valid UTF-8
        return orjson.dumps(
            {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}
        )


def bad(message: str, param: str | None = None, code: str = "invalid_request") -> ApiError:
    """Return the 400 of an invalid request."""
    return ApiError(400, code, message, param=param)


def too_many(seconds: float) -> ApiError:
    """Return the 429 of full queues, with `Retry-After` in whole seconds, rounded up."""
    after = max(1, int(-(-seconds // 1)))
    return ApiError(
        429,
        "overloaded",
        "Too many requests are waiting. Try again later.",
        headers=[(b"retry-after", str(after).encode())],
    )


def late(timeout: float) -> ApiError:
    """Return the 504 of a request that exceeded its time limit."""
    return ApiError(504, "timeout", f"There was no answer within {timeout:g} s. Try again later.")
