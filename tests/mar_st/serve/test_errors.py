"""Tests of error responses: their form, their headers, and text that is not UTF-8."""

from __future__ import annotations

import json

import pytest

from mar_st.serve.errors import ApiError, bad, late, too_many


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (bad("Wrong.", "k"), 400, "invalid_request_error"),
        (ApiError(418, "teapot", "Short and stout."), 418, "invalid_request_error"),
        (ApiError(401, "invalid_api_key", "No key."), 401, "authentication_error"),
        (too_many(1), 429, "rate_limit_error"),
        (late(0.5), 504, "timeout_error"),
    ],
)
def test_the_body_has_the_form_that_clients_of_openai_read(error, status, kind):
    content = json.loads(error.body())
    assert content == {
        "error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    }
    assert error.status == status


def test_a_message_that_is_no_utf8_is_still_an_answer():
    path = b"/data/\xff/\xe5\xa4\xb4".decode("utf-8", "surrogateescape")
    message = json.loads(bad(f"{path} cannot be read.").body())["error"]["message"]
    assert message == "/data/\\udcff/头 cannot be read."


@pytest.mark.parametrize(
    ("seconds", "after"), [(0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.01, b"2"), (7.5, b"8"), (60.0, b"60")]
)
def test_a_refused_client_waits_at_least_as_long_as_expected(seconds, after):
    assert dict(too_many(seconds).headers)[b"retry-after"] == after
