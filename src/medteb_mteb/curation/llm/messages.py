"""Question to an LLM and the reply of its endpoint: text, tokens, refusals, pauses."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol

from medteb_mteb.curation.llm.budget import tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BodyError", "Question", "Reply", "body_error", "decoded", "filtered", "read_reply", "retry_after"]

#: Tokens of one request or answer at most; larger counts of a server are ignored.
MAX_TOKEN_COUNT = 10**8

#: How content filters call themselves: Azure and OpenAI, DeepSeek, Qwen, GLM, Moonshot, ERNIE.
_FILTER_CODE = re.compile(r"content_?(filter|policy)|data_?inspection|responsibleai|^1301$", re.IGNORECASE)
_FILTER_WORDS = re.compile(
    r"content exists risk|content[ _]filter|content management policy|data_?inspection|inappropriate content|"
    r"(considered|judged) (high risk|sensitive)|usage polic|敏感|不安全|不适当|违规|合规",
    re.IGNORECASE,
)

#: Values of `finish_reason` for an answer that is not whole: OpenAI and most others; Anthropic, Gemini and
#: Mistral behind gateways; DeepSeek; GLM; OpenRouter; vLLM.
_CUT = frozenset(
    ("length", "max_tokens", "max_output_tokens", "model_length", "repetition_truncation",
     "insufficient_system_resource", "network_error", "error", "abort")
)  # fmt: skip
#: Values of `finish_reason` for an answer that a filter has stopped: OpenAI; GLM; Gemini; Anthropic.
_REFUSED = frozenset(("content_filter", "sensitive", "safety", "prohibited_content", "refusal"))
#: Types of the parts of a message that hold its answer; the others hold reasoning, images or calls of tools.
_TEXT_PARTS = (None, "text", "output_text")


class Question(Protocol):
    """Interface of a prompt that can be sent to an endpoint."""

    def messages(self) -> list[dict[str, str]]:
        """Return the messages in the form of the chat completions API."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of an answer."""

    def tokens(self) -> tuple[int, int]:
        """Return the estimated tokens, in and out."""

    def salt(self) -> str:
        """Return a string that distinguishes equal prompts, each of which gets its answer; may be empty."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, paid for.

    Attributes:
        content: Text of the answer.
        refused: Whether the answer is a refusal.
        cut: Whether the answer was cut, at the maximum number of tokens or by a failure.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the answer.
        estimated: Whether the tokens are estimated, since the endpoint did not count them.
        model: Model that answered, according to the endpoint; empty if it names none.
        fingerprint: Its `system_fingerprint`; empty if it gives none.
    """

    content: str | None
    refused: bool
    cut: bool
    tokens_in: int
    tokens_out: int
    estimated: bool
    model: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class BodyError:
    """An error that an endpoint reports in the body of a reply with status 200, as gateways do.

    Attributes:
        status_code: The error's code, if it is an HTTP error status; else 200.
        code: The error's code.
        message: The error's message.
    """

    status_code: int
    code: Any
    message: str

    @property
    def body(self) -> dict[str, Any]:
        """Return the error as an object."""
        return {"code": self.code, "message": self.message}


def decoded(body: bytes, charset: str | None) -> Any:
    """Return the JSON of a reply.

    JSON is UTF-8 (RFC 8259, section 8.1), whatever the headers say; only other bytes are read in the declared
    character set.

    Raises:
        ValueError: The body is not JSON, or its characters cannot be decoded.
    """
    try:
        return json.loads(body)
    except UnicodeDecodeError:
        if charset is None:
            raise
    try:
        return json.loads(body.decode(charset))
    except LookupError as error:
        raise ValueError(f"unknown character set {charset}") from error


def body_error(completion: Any) -> BodyError | None:
    """Return the error in a reply without choices; `None` if it holds none."""
    content = _object(completion)
    error = content.get("error") or content.get("base_resp") or content  # base_resp: MiniMax
    if isinstance(error, str):
        error = {"message": error}
    fields = _object(error)
    message = next((fields[name] for name in ("message", "msg", "status_msg") if fields.get(name)), None)
    if not isinstance(message, str):
        return None
    code = fields.get("code") or fields.get("status_code")
    number = int(code) if isinstance(code, (int, str)) and re.fullmatch(r"[45]\d\d", str(code)) else 200
    return BodyError(number, code, message)


def filtered(error: Any) -> bool:
    """Return True if a content filter refused the texts, by the error's code or, without one, its message."""
    return _FILTER_CODE.search(str(error.code or "")) is not None or (
        error.status_code != 403 and _FILTER_WORDS.search(str(error.message)) is not None
    )


def read_reply(completion: Any, question: Question) -> Reply | None:
    """Return the answer in a chat completion; `None` if it holds none.

    Args:
        completion: The endpoint's JSON.
        question: The question, from which tokens are estimated if the endpoint counts none.
    """
    content = _object(completion)
    choices = content.get("choices")
    if not isinstance(choices, list) or not choices:
        return None
    choice = _object(choices[0])
    message, reason = _object(choice.get("message")), choice.get("finish_reason")
    ending = reason.lower() if isinstance(reason, str) else ""
    refused, cut = bool(message.get("refusal")) or ending in _REFUSED, ending in _CUT
    text = _content(message, cut=cut)
    usage = _object(content.get("usage"))
    tokens_in, tokens_out = (_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    origin = [content.get(name) for name in ("model", "system_fingerprint")]
    model, fingerprint = (one if isinstance(one, str) else "" for one in origin)
    estimated = tokens_in is None or tokens_out is None
    if tokens_in is None or tokens_out is None:
        tokens_in, tokens_out = question.tokens()[0], tokens_of(text or "")
    return Reply(text, refused, cut, tokens_in, tokens_out, estimated, model, fingerprint)


def _count(value: Any) -> int | None:
    """Return a plausible number of tokens; `None` for any other value."""
    return value if type(value) is int and 0 <= value <= MAX_TOKEN_COUNT else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _content(message: Mapping[str, Any], *, cut: bool) -> str | None:
    """Return the text of a message: a string, or the text parts of a list, without reasoning.

    If there is none, the server took the whole answer for reasoning, which is returned instead in `<think>`,
    unless it is cut off and so holds no answer.
    """
    content = message.get("content")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") in _TEXT_PARTS]
        content = "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    if isinstance(content, str) and content.strip():
        return content
    for name in ("reasoning_content", "reasoning"):
        thoughts = message.get(name)
        if isinstance(thoughts, str) and thoughts.strip() and not cut:
            return f"<think>{thoughts}</think>"
    return content if isinstance(content, str) else None


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that `Retry-After-Ms` or `Retry-After` (seconds, or a date) asks for, else 0."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                date = parsedate_to_datetime(value)
            except (ValueError, OverflowError):
                continue
            # A date without a zone is in UTC (RFC 9110, section 5.6.7).
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time()
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return 0.0
