"""Replies of endpoints: texts, tokens, refusals and pauses, whatever a server sends."""

from __future__ import annotations

import json
import os
import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest

from medteb_mteb.curation.llm.messages import Reply, body_error, decoded, filtered, read_reply, retry_after
from medteb_mteb.curation.llm.prompt import Prompt
from medteb_mteb.curation.llm.readings import AnswerRequest

QUESTION = AnswerRequest(b"key", Prompt("p", "系统", "问题？", {}, 20))


def completion(message=None, finish="stop", **more):
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage, **more}


def read(message, finish="stop", **more):
    return read_reply(completion(message, finish, **more), QUESTION)


def test_a_reply_holds_text_tokens_and_origin():
    reply = read({"content": "好"}, model="m-1", system_fingerprint="f")
    assert reply == Reply("好", False, False, 7, 3, False, "m-1", "f")


@pytest.mark.parametrize(
    "answer", [None, [], "text", 1.5, {}, {"choices": None}, {"choices": []}, {"choices": {"0": {}}}]
)
def test_an_answer_without_choices_is_none(answer):
    assert read_reply(answer, QUESTION) is None


@pytest.mark.parametrize(
    "message",
    [None, "text", [], {}, {"content": None}, {"content": 3}, {"content": {"text": "好"}}],
)
def test_a_message_of_another_form_has_no_text(message):
    assert read(message).content is None


@pytest.mark.parametrize("parts", [[], [None, 3, "好", {"text": 4}, {"type": "image"}]])
def test_unknown_parts_of_a_message_are_empty_text(parts):
    assert read({"content": parts}).content == ""


@pytest.mark.parametrize("kind", ["thinking", "reasoning"])
def test_parts_with_reasoning_are_left_out(kind):
    parts = [
        {"type": kind, "text": "也许"},
        {"type": "text", "text": "是"},
        {"type": "output_text", "text": "的"},
    ]
    assert read({"content": parts}).content == "是的"


@pytest.mark.parametrize("charset", [None, "utf-8", "iso-8859-1", "utf8mb4"])
def test_json_is_utf_8_whatever_character_set_is_declared(charset):
    assert decoded('\ufeff{"a": "好"}'.encode(), charset) == {"a": "好"}


def test_other_bytes_are_read_in_the_declared_character_set_or_not_at_all():
    body = '{"a": "好的"}'.encode("gbk")
    assert decoded(body, "gbk") == {"a": "好的"}
    for charset in (None, "utf-8", "no-such-set"):
        with pytest.raises(ValueError, match=r"decode|unknown character set"):
            decoded(body, charset)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"error": {"message": "slow down", "code": 429}}, (429, 429, "slow down")),
        ({"error": {"message": "slow down", "code": "503"}}, (503, "503", "slow down")),
        ({"error": "overloaded"}, (200, None, "overloaded")),
        ({"code": 1113, "msg": "余额不足", "success": False}, (200, 1113, "余额不足")),
        ({"base_resp": {"status_code": 1008, "status_msg": "balance"}}, (200, 1008, "balance")),
        *[(content, None) for content in ({}, [], {"error": 5}, {"error": {}}, {"message": ["x"]})],
    ],
)
def test_an_error_in_a_body_has_status_code_and_message(content, expected):
    error = body_error(json.loads(json.dumps(content)))
    assert (error and (error.status_code, error.code, error.message)) == expected


@pytest.mark.parametrize(
    ("message", "finish", "refused", "cut"),
    [
        ({"content": "好"}, "stop", False, False),
        ({"content": "好", "refusal": None}, "length", False, True),
        ({"content": "", "refusal": "I can't"}, "stop", True, False),
        ({"content": "好"}, "content_filter", True, False),
        ({"content": "好"}, ["length"], False, False),
        ({"content": "好"}, None, False, False),
        ({"content": "好"}, "max_tokens", False, True),
        ({"content": "好"}, "MAX_TOKENS", False, True),
        ({"content": "好"}, "insufficient_system_resource", False, True),
        ({"content": "好"}, "sensitive", True, False),
    ],
)
def test_refused_and_cut_answers_are_marked(message, finish, refused, cut):
    reply = read(message, finish)
    assert (reply.refused, reply.cut) == (refused, cut)


def test_reasoning_is_the_answer_only_if_there_is_no_other_and_it_is_whole():
    thoughts = {"reasoning_content": "想"}
    assert read({"content": "好", **thoughts}).content == "好"
    assert read({"content": " ", **thoughts}).content == "<think>想</think>"
    assert read({"content": None, "reasoning": "思"}).content == "<think>思</think>"
    assert read({"content": None, **thoughts}, "length").content is None


@pytest.mark.parametrize(
    "usage",
    [
        *(None, [], 5, {}, {"prompt_tokens": 7}, {"prompt_tokens": "7", "completion_tokens": 3}),
        {"prompt_tokens": 7, "completion_tokens": -1},
        {"prompt_tokens": 7.0, "completion_tokens": 3},
        {"prompt_tokens": float("nan"), "completion_tokens": 3},
        {"prompt_tokens": 10**9, "completion_tokens": 3},
    ],
)
def test_implausible_counts_of_tokens_are_replaced_by_estimates(usage):
    reply = read({"content": "四个汉字"}, usage=usage)
    assert (reply.tokens_in, reply.tokens_out, reply.estimated) == (QUESTION.tokens()[0], 4, True)


def test_an_origin_of_another_type_is_left_out():
    reply = read({"content": "好"}, model=["m"], system_fingerprint=7)
    assert (reply.model, reply.fingerprint) == ("", "")


@pytest.mark.parametrize(
    ("status", "code", "message", "expected"),
    [
        (400, "content_filter", "", True),
        (400, 1301, "", True),
        (400, None, "Content Exists Risk", True),
        (400, "data_inspection_failed", "", True),
        (403, None, "your account is not allowed: usage policy", False),
        (403, "content_policy_violation", "", True),
        (400, 13010, "unknown parameter", False),
        (400, None, None, False),
    ],
)
def test_a_content_filter_is_recognised_by_code_or_words(status, code, message, expected):
    assert filtered(SimpleNamespace(status_code=status, code=code, message=message)) is expected


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20"}, 20),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "20"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "20"}, 20),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({}, 0),
    ],
)
def test_a_pause_is_read_in_seconds_or_milliseconds(headers, seconds):
    assert retry_after(headers) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "nan", "inf", "1e999", "soon", "9" * 5000, "Mon, 99 Foo 2026 99:99:99 GMT"),
        "Mon, 99999999999999999999 Jan 2026 00:00:00 GMT",
        "Mon, 01 Jan 2026 00:00:00 +99999999999999",
    ],
)
def test_a_pause_that_cannot_be_read_is_no_pause(value):
    assert retry_after({"retry-after": value, "retry-after-ms": value}) == 0


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
@pytest.mark.parametrize("form", ["usual", "obsolete", "without zone"])
def test_a_date_is_in_utc_wherever_it_is_read(monkeypatch, zone, form):
    then = time.time() + 60
    date = {
        "usual": formatdate(then, usegmt=True),
        "obsolete": time.asctime(time.gmtime(then)),
        "without zone": formatdate(then)[:-6],
    }[form]
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert 55 < retry_after({"retry-after": date}) <= 60
    finally:
        monkeypatch.undo()
        time.tzset()
    assert os.environ.get("TZ") != zone
