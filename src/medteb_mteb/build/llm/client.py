"""One LLM's endpoint: a request that comes back with an answer, or says why there is none.

Attempts at a request are the same bytes under the same `Idempotency-Key`, a digest of them (and of a salt,
where the same words are asked for another answer). A gateway that
honours it gives the answer that was made for an attempt whose reply was lost, without charging again. With
others, a reply that was lost on the way is paid twice; no client can help that.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import random
import time
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol, Self, get_args

from medteb_mteb.build.llm.budget import tokens_of
from medteb_mteb.build.llm.config import AnswerFormat
from medteb_mteb.build.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.build.llm.config import LLM
    from medteb_mteb.build.llm.limits import Limits, Stop

__all__ = ["Endpoint", "GiveUp", "Question", "Reply", "Unanswered", "quiet_libraries"]

#: An endpoint that asks for a longer pause than this is left alone.
MAX_RETRY_AFTER = 600.0
#: Requests in a row that come to nothing before an LLM is given up, where one alone may be to blame itself.
IN_A_ROW = 3


class Question(Protocol):
    """What an endpoint can be asked."""

    def messages(self) -> list[dict[str, str]]:
        """As the chat completions API takes it."""

    def schema(self) -> dict[str, Any]:
        """JSON schema of an answer."""

    def tokens(self) -> tuple[int, int]:
        """Estimated tokens, in and out."""

    def salt(self) -> str:
        """Tells it apart from others of the same words that want an answer of their own; may be empty."""


class Unanswered(Exception):  # noqa: N818 - an outcome, not a mistake
    """A request that gets no answer, while others may: `reason` is a short key."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class GiveUp(Exception):  # noqa: N818
    """An endpoint that is not worth asking any more: the message is for people."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, paid for.

    Attributes:
        content: What the LLM said.
        refused: It is a refusal.
        cut: It ends where the tokens ended.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the answer.
        estimated: The endpoint did not count them.
    """

    content: str | None
    refused: bool
    cut: bool
    tokens_in: int
    tokens_out: int
    estimated: bool


class _Failed(Exception):  # noqa: N818
    """One attempt has failed for the moment.

    Attributes:
        reason: Short key.
        outage: The request itself cannot be to blame.
        after: Seconds that the endpoint asks to wait.
    """

    def __init__(self, reason: str, *, outage: bool, after: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.outage, self.after = reason, outage, after


class Endpoint:
    """The endpoint of an LLM; use it as an async context manager.

    Args:
        llm: The LLM.
        limits: Its limits.
        stop: Once it is set no further attempts are made.

    Raises:
        BuildError: The `openai` package or the LLM's key is missing.
    """

    def __init__(self, llm: LLM, limits: Limits, stop: Stop) -> None:
        try:
            import openai
        except ImportError as error:
            raise BuildError(
                "Asking an LLM needs the openai package: pip install 'medteb[build]'."
            ) from error
        self.llm, self.limits, self.stop = llm, limits, stop
        self._key = llm.key()
        self._client = openai.AsyncOpenAI(
            base_url=llm.base_url, api_key=self._key, max_retries=0, timeout=llm.timeout
        )
        formats: tuple[AnswerFormat, ...] = get_args(AnswerFormat)
        self._formats = list(formats[formats.index(llm.answer) :])
        self._proven = False
        self._answered_at = -math.inf
        self._in_a_row = 0
        #: Attempts that failed for the moment, by reason.
        self.faults: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()

    async def ask(self, question: Question) -> Reply:
        """The answer to a question.

        Raises:
            Unanswered: This question gets none.
            GiveUp: No question gets any.
        """
        estimate = sum(question.tokens())
        attempt = 0
        while True:
            started = time.monotonic()
            await self.limits.ready(estimate, self.stop)
            if self.stop.reason:
                raise GiveUp(self.stop.reason)
            form = self._formats[0]
            try:
                reply = await self._attempt(question, form)
            except _Failed as failed:
                self.faults[failed.reason] = self.faults.get(failed.reason, 0) + 1
                if failed.outage and self._answered_at > started:
                    attempt = 0  # others get through: it is the line, or the limit
                if attempt >= self.llm.retries:
                    raise self._hopeless(failed) from None
                pause = min(self.llm.max_pause, self.llm.backoff * 2.0 ** min(attempt, 30))
                pause *= random.uniform(0.5, 1.0)
                attempt += 1
                await self.stop.nap(max(pause, failed.after))
                continue
            if reply is None:  # a form of answer that the endpoint does not know
                continue
            self._answered_at, self._in_a_row, self._proven = time.monotonic(), 0, True
            self.limits.used(reply.tokens_in + reply.tokens_out, estimate)
            return reply

    def _hopeless(self, failed: _Failed) -> Exception:
        """What a request has come to after all its attempts."""
        self._in_a_row += 1
        if failed.outage or self._in_a_row >= IN_A_ROW:
            return GiveUp(
                f"{self.llm.base_url} does not answer ({failed.reason}, {self.llm.retries + 1} attempts)"
            )
        return Unanswered(failed.reason)

    async def _attempt(self, question: Question, form: AnswerFormat) -> Reply | None:
        """One attempt; `None` if another form of answer has to be asked for."""
        import openai

        body = self._body(question, form)
        try:
            # The client's timeout is one of silence; a trickle of bytes would go on for ever.
            async with asyncio.timeout(self.llm.timeout):
                found = await self._client.chat.completions.create(
                    **body, extra_headers={"Idempotency-Key": _digest(body, question.salt())}
                )
        except (TimeoutError, openai.APITimeoutError):
            raise _Failed("timeout", outage=False) from None
        except openai.APIConnectionError:
            raise _Failed("connection", outage=True) from None
        except openai.APIStatusError as error:
            self._status(error, form, question)
            return None
        except (openai.OpenAIError, ValueError, TypeError) as error:
            # Answers with status 200 that are none: a proxy's page, half a body.
            raise _Failed(f"garbage-{type(error).__name__}", outage=False) from None
        return _reply(found, question)

    def _body(self, question: Question, form: AnswerFormat) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.llm.model, "messages": question.messages()}
        if self.llm.temperature is not None:
            body["temperature"] = self.llm.temperature
        if form == "json_object":
            body["response_format"] = {"type": "json_object"}
        elif form == "json_schema":
            schema = {"name": "answer", "strict": True, "schema": question.schema()}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if self.llm.extra:
            body["extra_body"] = self.llm.extra
        return body

    def _status(self, error: Any, form: AnswerFormat, question: Question) -> None:
        """What a status that is no success means; returns if another form of answer is to be tried."""
        status = int(error.status_code)
        said = self._said(error, question)
        if status in (401, 402, 403, 404) or error.code == "insufficient_quota":
            raise GiveUp(f"{self.llm.base_url} refuses (status {status}{said})") from None
        if status in (408, 409, 425, 429) or status >= 500:
            after = _retry_after(error.response.headers)
            if after > MAX_RETRY_AFTER:
                raise GiveUp(f"{self.llm.base_url} asks to come back in {after:.0f} seconds") from None
            if status in (429, 503, 529):
                self.limits.pause(after)
            raise _Failed(f"status-{status}", outage=status in (429, 503, 529), after=after) from None
        if form != self._formats[0]:  # given up meanwhile, by another request
            return
        words = ("response_format", "json_object", "json_schema")
        if form != "text" and (not self._proven or any(word in str(error.message) for word in words)):
            self._formats.pop(0)
            return
        if not self._proven:
            raise GiveUp(f"{self.llm.base_url} refuses the first request (status {status}{said})") from None
        raise Unanswered(f"status-{status}") from None

    def _said(self, error: Any, question: Question) -> str:
        """The endpoint's words for people, unless they repeat our texts; never the key."""
        body = error.body if isinstance(error.body, dict) else {}
        words = " ".join(str(body.get("message") or error.message).split()).replace(self._key, "***")[:300]
        sent = "\n".join(message["content"] for message in question.messages())
        if any(words[i : i + 12] in sent for i in range(max(1, len(words) - 11))):
            return ""
        return f": {words}"


def _reply(found: Any, question: Question) -> Reply:
    choices = getattr(found, "choices", None)
    if not choices:
        raise _Failed("garbage-no-choices", outage=False)
    message = choices[0].message
    content = message.content if message is not None and isinstance(message.content, str) else None
    reason = choices[0].finish_reason
    refused = bool(getattr(message, "refusal", None)) or reason == "content_filter"
    usage = getattr(found, "usage", None)
    counted = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
    if isinstance(counted[0], int) and isinstance(counted[1], int):
        return Reply(content, refused, reason == "length", counted[0], counted[1], estimated=False)
    tokens_in, tokens_out = question.tokens()[0], tokens_of(content or "")
    return Reply(content, refused, reason == "length", tokens_in, tokens_out, estimated=True)


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that `Retry-After-Ms` or `Retry-After` (seconds, or a date) asks for; 0 if neither does."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except ValueError:
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return 0.0


def _digest(body: Mapping[str, Any], salt: str) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=False) + salt
    return "medteb-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep the client's libraries from logging what is sent, whatever the environment asks of them."""
    loggers = [logging.getLogger(name) for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
