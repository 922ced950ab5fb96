"""Client of one LLM's endpoint: a prompt gets an answer, or the reason why there is none.

Retries of temporary failures are those of openai's client, with the same `Idempotency-Key`, a digest of the
request: a gateway that honours the key does not charge again for an answer whose reply was lost.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import printable
from medteb_mteb.curation.llm.journal import Answer
from medteb_mteb.curation.step import tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.curation.llm.settings import LLM

#: Bytes of a reply that are read; an answer has a few thousand.
MAX_REPLY = 8 << 20
#: Requests in a row without an answer before an LLM is given up: one that has not answered any, and others.
MAX_FAILURES, MAX_FAILURES_OF_PROVEN = 3, 20

#: How content filters call themselves: Azure and OpenAI, DeepSeek, Qwen, GLM, Moonshot, ERNIE.
_FILTER_CODE = re.compile(r"content_?(filter|policy)|data_?inspection|responsibleai|^1301$", re.IGNORECASE)
_FILTER_WORDS = re.compile(
    r"content exists risk|content[ _]filter|content management policy|data_?inspection|inappropriate content|"
    r"(considered|judged) (high risk|sensitive)|usage polic|safety|敏感|不安全|不适当|违规|合规",
    re.IGNORECASE,
)
#: Errors whose cause is the account; some endpoints send them with status 400 or 429.
_ACCOUNT_WORDS = re.compile(
    r"arrear|insufficient.?(?:quota|balance|funds)|in good.?standing|overdue|欠费|余额不足", re.IGNORECASE
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


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt.

    Attributes:
        key: The caller's key of the prompt, unique within a call.
        system: The system message.
        user: The user message.
        schema: JSON schema of the answer.
        answer_tokens: Estimated tokens of the answer.
        variant: Part of the answer's identity: requests another answer to the same text (`"0"`, `"1"`, ...).
            Two prompts with the same text and variant share one answer, whatever their keys.
        texts: The texts of persons in the messages, whole and unchanged; the journal notes their digests, so
            that `medteb forget` finds the answer.
    """

    key: str
    system: str
    user: str
    schema: Mapping[str, Any]
    answer_tokens: int
    variant: str = ""
    texts: tuple[str, ...] = ()

    @property
    def tokens(self) -> tuple[int, int]:
        """Return the estimated tokens of the prompt and of the answer."""
        return tokens_of(self.system) + tokens_of(self.user), self.answer_tokens


def prompt_text(module: str, name: str) -> str:
    """Return the file `prompts/NAME.txt` beside a module, given the module's `__file__`."""
    return Path(module).with_name("prompts").joinpath(f"{name}.txt").read_text(encoding="utf-8")


def version_of(*parts: str) -> str:
    """Return the digest (16 hex digits) of the parts of a prompt that are the same for all its texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


#: JSON schema of a list of texts.
STRINGS_SCHEMA = {"type": "array", "items": {"type": "string"}}


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with these keys and no others, given the schema of each value."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


class GiveUp(Exception):  # noqa: N818 - an outcome, not a mistake
    """An endpoint that will not answer any further request; the message is shown to the user."""


class _Broken(Exception):  # noqa: N818
    """A reply with status 200 and without an answer."""


class Client:
    """The endpoint of an LLM, for several threads.

    Args:
        llm: The LLM.
        stop: No further requests are sent once it is set.

    Raises:
        MarError: The `openai` package or the LLM's key is missing.
    """

    def __init__(self, llm: LLM, stop: threading.Event) -> None:
        try:
            import openai  # lazy: openai
        except ImportError as error:
            raise MarError("Asking an LLM needs the openai package: pip install 'medteb[build]'.") from error
        self.llm, self.stop = llm, stop
        self._key = llm.key()
        self._openai = openai
        for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):  # they log requests
            logging.getLogger(name).setLevel(logging.WARNING)
        # Texts go to no other host, nor those for this machine to a proxy. A reply is limited before it is
        # read, and may not be compressed.
        http = openai.DefaultHttpxClient(
            follow_redirects=False, trust_env=not llm.local, event_hooks={"response": [self._limit]}
        )
        self._client = openai.OpenAI(
            base_url=llm.base_url,
            api_key=self._key,
            max_retries=llm.retries,
            timeout=llm.timeout,
            http_client=http,
            default_headers={"Accept-Encoding": "identity"},
        )
        # The client reads them from the environment; they are meant for OpenAI's own service only.
        self._client.organization = self._client.project = None
        self._proven = False
        self._failures = 0
        self._free_at = 0.0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, prompt: Prompt, identity: str) -> Answer:
        """Return the answer to a prompt, or an `Answer` with the reason why there is none.

        Args:
            prompt: The prompt.
            identity: Digest of the request and its attempt, the same for a repetition by another run.

        Raises:
            GiveUp: There is no answer to any prompt, or the client was stopped.
        """
        if self.stop.wait(self._pause()):
            raise GiveUp("stopped")
        answer = self._attempt(prompt, identity)
        with self._lock:
            if answer.received:
                self._proven, self._failures = True, 0
            elif answer.ending != "filtered":
                self._failures += 1
                if self._failures >= (MAX_FAILURES_OF_PROVEN if self._proven else MAX_FAILURES):
                    raise GiveUp(f"{self.llm.base_url} answers no request ({answer.ending}{answer.text})")
        return answer

    def _limit(self, response: Any) -> None:
        """Cut a reply off after `MAX_REPLY` bytes, or after the LLM's timeout; its rest is garbage."""
        read, end = response.iter_raw, time.monotonic() + self.llm.timeout
        response.headers.pop("Content-Encoding", None)  # so that it is not unpacked

        def limited(*size: int) -> Iterator[bytes]:
            left = MAX_REPLY
            for chunk in read(*size):
                left -= len(chunk)
                if left < 0 or time.monotonic() > end:
                    response.close()
                    return
                yield chunk

        response.iter_raw = limited

    def _pause(self) -> float:
        """Return the seconds to wait before the next request, so that they are sent evenly."""
        if self.llm.requests_per_minute is None:
            return 0.0
        with self._lock:
            now = time.monotonic()
            start = max(self._free_at, now)
            self._free_at = start + 60 / self.llm.requests_per_minute
        return start - now

    def _attempt(self, prompt: Prompt, identity: str) -> Answer:
        """Ask, with the retries of openai's client."""
        openai = self._openai
        broken = ""
        for attempt in range(self.llm.retries + 1):
            # openai's client repeats what fails, but not a reply without an answer, such as a proxy's page.
            pause = min(8.0, self.llm.backoff * 2.0 ** (attempt - 1)) if attempt else 0.0
            if self.stop.wait(pause * random.uniform(0.5, 1.0)):
                raise GiveUp("stopped")
            try:
                return self._read(self._send(prompt, identity), prompt)
            except openai.APITimeoutError:
                return Answer("", "timeout")
            except openai.APIConnectionError:
                raise GiveUp(f"{self.llm.base_url} does not answer (no connection)") from None
            except openai.APIStatusError as error:
                code, message = error.code, error.message
                if not isinstance(error.body, dict):  # the client leaves such a text out
                    message = f"{message}, {error.response.text[:1000]}"
                location = error.response.headers.get("Location", "")
                return self._status(error.status_code, code, message, prompt, location)
            except _Broken as error:
                broken = str(error)
            except (openai.OpenAIError, ValueError, TypeError, RecursionError) as error:
                broken = f"garbage-{type(error).__name__}"
        return Answer("", broken)

    def _send(self, prompt: Prompt, identity: str) -> Any:
        """Return the JSON of a reply."""
        body: dict[str, Any] = {
            **self.llm.extra,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
        }
        if self.llm.temperature is not None:
            body["temperature"] = self.llm.temperature
        if self.llm.answer == "json_object":
            body["response_format"] = {"type": "json_object"}
        elif self.llm.answer == "json_schema":
            schema = {"name": "answer", "strict": True, "schema": dict(prompt.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        # As extra fields, which replace the others: the client's typed parameters take a third of its time.
        reply = self._client.chat.completions.with_raw_response.create(
            model=self.llm.model,
            messages=[],
            extra_body=body,
            extra_headers={"Idempotency-Key": f"medteb-{identity}"},
        )
        return json.loads(reply.http_response.content)  # JSON is UTF-8, whatever the headers say

    def _read(self, completion: Any, prompt: Prompt) -> Answer:
        """Return the answer in a chat completion."""
        content = _object(completion)
        choices = content.get("choices")
        if not isinstance(choices, list) or not choices:
            error = _object(content.get("error") or content.get("base_resp") or content)  # MiniMax
            words = str(error.get("message") or error.get("msg") or error.get("status_msg") or "")
            code = error.get("code") or error.get("status_code")
            if _filtered(code, words) or _ACCOUNT_WORDS.search(f"{code} {words}"):
                return self._status(400, code, words, prompt)
            raise _Broken("garbage-no-choices")
        choice = _object(choices[0])
        message = _object(choice.get("message"))
        reason = str(choice.get("finish_reason") or "").lower()
        refused = bool(message.get("refusal")) or reason in _REFUSED
        ending = "refused" if refused else "cut" if reason in _CUT else ""
        text = _text(message, cut=ending == "cut")
        usage = _object(content.get("usage"))
        tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
        estimated = not (isinstance(tokens_in, int) and isinstance(tokens_out, int))
        if estimated:
            tokens_in, tokens_out = prompt.tokens[0], tokens_of(text)
        model = str(content.get("model") or "")
        return Answer(text, ending, int(tokens_in), int(tokens_out), estimated, model)  # type: ignore[arg-type]

    def _status(self, status: int, code: Any, message: str, prompt: Prompt, location: str = "") -> Answer:
        """Return the outcome of an HTTP error status.

        Raises:
            GiveUp: No other request would succeed.
        """
        if 300 <= status < 400:
            raise GiveUp(
                f"{self.llm.base_url} redirects to {printable(location[:200]) or 'no address'} (status "
                f"{status}); the texts were not sent there. Give the final address, if it may receive them"
            )
        words = self._shown(message, prompt)
        if status in (400, 403, 422) and _filtered(code, message):
            return Answer(words, "filtered")
        if status in (401, 402, 403, 404) or _ACCOUNT_WORDS.search(f"{code} {message}"):
            raise GiveUp(f"{self.llm.base_url} refuses (status {status}{words})")
        if status in (429, 503, 529):
            raise GiveUp(f"{self.llm.base_url} does not answer (status {status}{words})")
        return Answer(words, f"status-{status}")

    def _shown(self, message: str, prompt: Prompt) -> str:
        """Return the endpoint's error message, unless it quotes our texts; it shows no key."""
        words = printable(" ".join(message.split()).replace(self._key, "***")[:300])
        sent = "".join(f"{prompt.system}{prompt.user}".split())
        quoted = "".join(words.split())
        if not quoted or any(quoted[i : i + 12] in sent for i in range(max(1, len(quoted) - 11))):
            return ""
        return f": {words}"


def _filtered(code: Any, message: str) -> bool:
    return bool(_FILTER_CODE.search(str(code or "")) or _FILTER_WORDS.search(message))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(message: Mapping[str, Any], *, cut: bool) -> str:
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
    return ""
