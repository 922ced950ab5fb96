"""Configuration of an LLM behind an OpenAI-compatible endpoint, from a YAML file."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from mar_st.errors import MarError
from mar_st.options import Settings
from medteb_mteb.curation.step import Estimate, Runtime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class LLM(Settings):
    """Configuration of one LLM.

    Attributes:
        name: Name under which its answers are stored.
        model: Name of the model at the endpoint.
        base_url: Address, without the final `/chat/completions`.
        api_key_env: Environment variable that holds the key. Only this variable is read, so that a key is
            never sent to another address; a server on this machine needs none.
        variant: Part of an answer's identity; distinguishes models of the same name.
        temperature: Sampling temperature; null: not sent, for models that refuse it.
        extra: Further fields of the request (`top_p`, `reasoning_effort`, ...), part of an answer's identity.
        answer: Requested format of answers.
        concurrency: Maximum number of pending requests.
        requests_per_minute: Limit; null: none.
        timeout: Maximum seconds until a reply begins, and from there to its end.
        retries: Further attempts at a request that failed temporarily.
        backoff: Seconds before the first repetition after a reply without an answer, doubled each time.
        price_in: Price of a million tokens of a prompt.
        price_out: Price of a million tokens of an answer.
        budget: Money to spend on this LLM in total, over all runs of the journal; null: no limit.
    """

    name: str = Field(min_length=1, max_length=100)
    model: str = Field(min_length=1)
    base_url: Annotated[str, Runtime()]
    api_key_env: Annotated[str | None, Runtime()] = Field(default=None, min_length=1)
    variant: str = ""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    extra: dict[str, Any] = Field(default_factory=dict)
    answer: Literal["json_schema", "json_object", "text"] = "json_object"
    concurrency: Annotated[int, Runtime()] = Field(default=16, ge=1, le=1024)
    requests_per_minute: Annotated[float | None, Runtime()] = Field(default=None, gt=0)
    timeout: Annotated[float, Runtime()] = Field(default=120.0, gt=0)
    retries: Annotated[int, Runtime()] = Field(default=8, ge=0)
    backoff: Annotated[float, Runtime()] = Field(default=0.5, ge=0, le=60)
    price_in: Annotated[float, Runtime()] = Field(default=0.0, ge=0, allow_inf_nan=False)
    price_out: Annotated[float, Runtime()] = Field(default=0.0, ge=0, allow_inf_nan=False)
    budget: Annotated[float | None, Runtime()] = Field(default=None, ge=0, allow_inf_nan=False)

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        address = urlsplit(value)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError("expected an address such as https://api.openai.com/v1")
        if address.username or address.password or address.query:
            raise ValueError(
                "leave user, password and query out of the address; the key belongs in api_key_env"
            )
        return value.rstrip("/").removesuffix("/chat/completions")

    @field_validator("extra")
    @classmethod
    def _own_fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        reserved = sorted(set(value) & {"model", "messages", "temperature", "response_format", "stream", "n"})
        if reserved:
            raise ValueError(f"{reserved[0]!r} is set by the step itself")
        try:
            json.dumps(value).encode()
        except (TypeError, ValueError) as error:
            raise ValueError("expected JSON values; in YAML, put dates in quotes") from error
        return value

    @model_validator(mode="after")
    def _money_needs_prices(self) -> Self:
        if self.budget is not None and not (self.price_in or self.price_out):
            raise ValueError("a budget needs price_in or price_out; give the prices of its endpoint")
        return self

    @property
    def local(self) -> bool:
        """Return True if the endpoint is on this machine."""
        return urlsplit(self.base_url).hostname in ("localhost", "127.0.0.1", "::1")

    def key(self) -> str:
        """Return the API key for the endpoint.

        Raises:
            MarError: The environment variable is not set or its value cannot be a key, or none is named and
                the endpoint is not on this machine.
        """
        if self.api_key_env is None:
            if self.local:
                return "none"
            raise MarError(
                f"{self.name}: expected api_key_env, the environment variable that holds the key for "
                f"{self.base_url}; got none. Keys are only sent if api_key_env names them."
            )
        key = os.environ.get(self.api_key_env, "").strip()
        if not key or not all("!" <= character <= "~" for character in key):
            what = "has characters that keys do not have" if key else "is not set"
            raise MarError(
                f"{self.name}: {self.api_key_env} {what}. Set it to the key for {self.base_url}; it is read "
                "only from there."
            )
        return key

    def settings(self, prompt_version: str) -> dict[str, Any]:
        """Return everything an answer depends on besides its texts; the endpoint is not part of it."""
        return {
            "model": self.model,
            "variant": self.variant,
            "prompt": prompt_version,
            "temperature": self.temperature,
            "extra": self.extra,
        }

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """Return the price of an answer."""
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6

    def estimate(self, rows: int, requests: int, tokens: tuple[int, int]) -> Estimate:
        """Return the estimate of requests whose prompts and answers have these mean numbers of tokens."""
        tokens_in, tokens_out = requests * tokens[0], requests * tokens[1]
        return Estimate(
            rows,
            requests=requests,
            prompt_tokens=tokens_in,
            answer_tokens=tokens_out,
            cost=self.cost(tokens_in, tokens_out),
        )


def added(estimates: Iterable[Estimate], rows: int, queries: int = 0) -> Estimate:
    """Return the sum of the requests of several estimates, for a step that writes `rows` rows."""
    each = list(estimates)
    names = ("requests", "prompt_tokens", "answer_tokens", "cost")
    sums = {name: sum(getattr(one, name) for one in each) for name in names}
    return Estimate(rows, queries=queries, **sums)


def settings_digest(settings: Mapping[str, Any]) -> bytes:
    """Return the digest (8 bytes) of an LLM's settings."""
    text = json.dumps(dict(settings), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).digest()[:8]
