"""Client of one LLM's endpoint: a request returns an answer, or the reason why there is none.

All attempts at a request send the same bytes with the same `Idempotency-Key`, a digest of them (and of a
salt, if several answers to the same words are wanted). A gateway that honours the key returns the answer to
an earlier attempt whose reply was lost, without charging again. Others charge twice for a lost reply.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import random
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, get_args

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm.config import AnswerFormat
from medteb_mteb.curation.llm.messages import (
    Question,
    Reply,
    body_error,
    decoded,
    filtered,
    read_reply,
    retry_after,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.curation.llm.config import LLM
    from medteb_mteb.curation.llm.limits import RateLimits, Stop

__all__ = ["Endpoint", "GiveUp", "Unanswered", "quiet_libraries"]

#: Longest `Retry-After` that is waited for, in seconds; a longer one stops the LLM.
MAX_RETRY_AFTER = 600.0
#: Failed requests in a row before an LLM is given up, if the cause of a single failure may be its request.
MAX_CONSECUTIVE_FAILURES = 3
#: Refused requests in a row before an LLM is given up that has answered others.
MAX_CONSECUTIVE_REFUSALS = 20
#: Codes and messages of errors whose cause is the account; some endpoints send them with status 400 or 429.
#: The word "billing" alone is not one: OpenAI's message for a rate limit has it.
_ACCOUNT_WORDS = re.compile(
    r"arrear|insufficient.?(?:quota|balance|funds)|in good.?standing|overdue|欠费|余额不足", re.IGNORECASE
)
#: Messages about a single request, which are not counted as refusals in a row.
_LENGTH_WORDS = re.compile(r"context|length|too long|maximum.{0,20}tokens|长度|过长", re.IGNORECASE)


class Unanswered(Exception):  # noqa: N818 - an outcome, not a mistake
    """A request that gets no answer, while others may: `reason` is a short key."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class GiveUp(Exception):  # noqa: N818
    """An endpoint that will not answer any further request; the message is shown to the user."""


class _Failed(Exception):  # noqa: N818
    """An attempt that failed temporarily.

    Attributes:
        reason: Short key of the reason.
        outage: Whether the failure cannot be caused by the request itself.
        after: Seconds that the endpoint asks clients to wait.
        message: Error message of the endpoint, after a colon; may be empty.
    """

    def __init__(self, reason: str, *, outage: bool, after: float = 0.0, message: str = "") -> None:
        super().__init__(reason)
        self.reason, self.outage, self.after, self.message = reason, outage, after, message


class _Refused(Exception):  # noqa: N818
    """The endpoint refuses a request in this form.

    Attributes:
        reason: Short key of the reason.
        message: Error message of the endpoint.
        form: Whether the endpoint names the answer format as the cause; if not, format or texts may be it.
    """

    def __init__(self, reason: str, message: str, *, form: bool) -> None:
        super().__init__(reason)
        self.reason, self.message, self.form = reason, message, form


class Endpoint:
    """The endpoint of an LLM; use it as an async context manager.

    Args:
        llm: The LLM.
        limits: Rate limits of the LLM.
        stop: Signal; once it is set, no further attempts are made.

    Raises:
        BuildError: The `openai` package or the LLM's key is missing.
    """

    def __init__(self, llm: LLM, limits: RateLimits, stop: Stop) -> None:
        try:
            import openai  # lazy: openai
        except ImportError as error:
            raise BuildError(
                "Asking an LLM needs the openai package: pip install 'medteb[build]'."
            ) from error
        self.llm, self.limits, self.stop = llm, limits, stop
        self._key = llm.key()
        self._client = openai.AsyncOpenAI(
            base_url=llm.base_url,
            api_key=self._key,
            max_retries=0,
            timeout=llm.timeout,
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),  # texts go to no other host
        )
        # The client reads them from the environment; they are meant for OpenAI's own service only.
        self._client.organization = self._client.project = None
        formats: tuple[AnswerFormat, ...] = get_args(AnswerFormat)
        self._formats = list(formats[formats.index(llm.answer) :])
        self._proven = False
        self._answered_at = -math.inf
        self._consecutive_failures = self._consecutive_refusals = 0
        #: Attempts that failed temporarily, by reason.
        self.faults: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()

    async def ask(self, question: Question) -> Reply:
        """Return the answer to a question.

        Raises:
            Unanswered: There is no answer to this question.
            GiveUp: There is no answer to any question.
        """
        estimate = sum(question.tokens())
        attempt = 0
        #: Answer formats left for this question only, whose refusal may have another cause.
        question_formats: list[AnswerFormat] = []
        while True:
            started = time.monotonic()
            await self.limits.ready(estimate, self.stop)
            if self.stop.reason:
                raise GiveUp(self.stop.reason)
            form = (question_formats or self._formats)[0]
            try:
                reply = await self._attempt(question, form)
            except _Failed as failed:
                self.faults[failed.reason] = self.faults.get(failed.reason, 0) + 1
                if failed.outage and self._answered_at > started:
                    attempt = 0  # others get through: the cause is the network or the limit
                if attempt >= self.llm.retries:
                    raise self._final_error(failed) from None
                pause = min(self.llm.max_pause, self.llm.backoff * 2.0 ** min(attempt, 30))
                pause *= random.uniform(0.5, 1.0)
                attempt += 1
                await self.stop.nap(max(pause, failed.after))
                continue
            except _Refused as refused:
                question_formats = self._other_forms(form, question_formats, refused)
                continue
            if question_formats and not self._proven:  # the format was the cause, for all questions
                self._formats = question_formats
            self._answered_at, self._proven = time.monotonic(), True
            self._consecutive_failures = self._consecutive_refusals = 0
            self.limits.used(reply.tokens_in + reply.tokens_out, estimate)
            return reply

    def _other_forms(
        self, form: AnswerFormat, question_formats: list[AnswerFormat], refused: _Refused
    ) -> list[AnswerFormat]:
        """Return the answer formats left for a refused question; empty: the format of all questions.

        Raises:
            Unanswered: There is no other format, or the format is not the cause.
            GiveUp: Several questions in a row were refused: 3 if none was answered before, else 20.
        """
        forms = question_formats or self._formats
        if form not in forms:  # given up meanwhile, by another question
            return []
        remaining = forms[forms.index(form) + 1 :]
        if refused.form and remaining:
            self._formats = [one for one in self._formats if one in remaining] or self._formats
            return []
        if remaining and not self._proven:
            return remaining
        if not self._proven or not _LENGTH_WORDS.search(refused.message):
            self._consecutive_refusals += 1
        limit = MAX_CONSECUTIVE_REFUSALS if self._proven else MAX_CONSECUTIVE_FAILURES
        if self._consecutive_refusals >= limit:
            raise GiveUp(f"{self.llm.base_url} refuses every request ({refused.message})") from None
        raise Unanswered(refused.reason) from None

    def _final_error(self, failed: _Failed) -> Exception:
        """Return the error of a request whose attempts have all failed."""
        self._consecutive_failures += 1
        if failed.outage or self._consecutive_failures >= MAX_CONSECUTIVE_FAILURES:
            return GiveUp(
                f"{self.llm.base_url} does not answer ({failed.reason}, {self.llm.retries + 1} attempts)"
                f"{failed.message}"
            )
        return Unanswered(failed.reason)

    async def _attempt(self, question: Question, form: AnswerFormat) -> Reply:
        """Make one attempt."""
        import openai  # lazy: openai

        body = self._body(question, form)
        try:
            # The client's timeout applies to silence only; a trickle of bytes would never end.
            async with asyncio.timeout(self.llm.timeout):
                # As bytes: servers give fields that the client's types lack, and character sets that are not
                # theirs. 3,003 requests of ten passages took 13.0 s of processor time without the client's
                # typed parameters and answers, with them 17.4 s.
                reply_bytes = await self._client.post(
                    "/chat/completions",
                    cast_to=openai.HttpxBinaryResponseContent,
                    body={key: value for key, value in body.items() if key != "extra_body"},
                    options={
                        "headers": {"Idempotency-Key": _digest(body, question.salt())},
                        "extra_json": body.get("extra_body", {}),
                    },
                )
            response = reply_bytes.response
            completion = decoded(response.content, response.charset_encoding)
        except (TimeoutError, openai.APITimeoutError):
            raise _Failed("timeout", outage=False) from None
        except openai.APIConnectionError:
            raise _Failed("connection", outage=True) from None
        except openai.APIStatusError as error:
            raise self._status(error, error.response.headers, form, question) from None
        except (openai.OpenAIError, ValueError, TypeError, RecursionError) as error:
            # Invalid answers with status 200: a proxy's page, half a body.
            raise _Failed(f"garbage-{type(error).__name__}", outage=False) from None
        reply = read_reply(completion, question)
        if reply is not None:
            return reply
        if in_body := body_error(completion):
            raise self._status(in_body, response.headers, form, question)
        raise _Failed("garbage-no-choices", outage=False)

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

    def _status(
        self, error: Any, headers: Mapping[str, str], form: AnswerFormat, question: Question
    ) -> Exception:
        """Turn an HTTP error status or a `BodyError` into the exception that tells how to proceed."""
        status = int(error.status_code)
        details = self._message(error, question)
        message = f"status {status}{details}"
        if status in (301, 302, 303, 307, 308):
            target = headers.get("Location", "no address")[:200]
            return GiveUp(
                f"{self.llm.base_url} redirects to {target} (status {status}); that is refused, so the texts "
                "were not sent there. Give the final address, if it may receive them."
            )
        if status in (200, 400, 403, 422) and filtered(error):
            return Unanswered("filtered")
        account = status < 500 and _ACCOUNT_WORDS.search(f"{error.code} {error.message}")
        if status in (401, 402, 403, 404) or account:
            return GiveUp(f"{self.llm.base_url} refuses ({message})")
        if status in (200, 408, 409, 425, 429) or status >= 500:
            after = retry_after(headers)
            if after > MAX_RETRY_AFTER:
                return GiveUp(f"{self.llm.base_url} requests a pause of {after:.0f} seconds")
            if status in (429, 503, 529):
                self.limits.pause(after)
            outage, reason = status in (429, 503, 529), "error" if status == 200 else f"status-{status}"
            return _Failed(reason, outage=outage, after=after, message=details)
        words = ("response_format", "json_object", "json_schema")
        named = form != "text" and any(word in str(error.message) for word in words)
        return _Refused(f"status-{status}", message, form=named)

    def _message(self, error: Any, question: Question) -> str:
        """Return the endpoint's error message, unless it quotes our texts; the key is masked."""
        body = error.body if isinstance(error.body, dict) else {}
        words = " ".join(str(body.get("message") or error.message).split()).replace(self._key, "***")[:300]
        # A server may quote a text with other white space.
        sent = "".join("".join(message["content"].split()) for message in question.messages())
        quoted = "".join(words.split())
        if any(quoted[i : i + 12] in sent for i in range(max(1, len(quoted) - 11))):
            return ""
        return f": {words}"


def _digest(body: Mapping[str, Any], salt: str) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=False) + salt
    return "medteb-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep the client's libraries from logging requests, whatever the environment sets."""
    loggers = [logging.getLogger(name) for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
