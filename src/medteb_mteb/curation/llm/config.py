"""Configuration of an LLM behind an OpenAI-compatible endpoint, from a YAML file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mar_st.files.yaml_text import YamlError, parse_yaml
from medteb_mteb.curation.files.records import BuildError

__all__ = ["LLM", "AnswerFormat", "load_llm", "load_settings"]

#: Formats of answers to request. If an endpoint refuses one, the next is tried.
AnswerFormat = Literal["json_schema", "json_object", "text"]

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")

SettingsT = TypeVar("SettingsT", bound=BaseModel)


class LLM(BaseModel):
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
        tokens_per_minute: Limit on tokens in and out; null: none.
        timeout: Maximum seconds for a whole answer.
        retries: Further attempts at a request that failed temporarily.
        backoff: Seconds of the first pause; it doubles with every attempt.
        max_pause: Seconds of the longest pause, unless the endpoint asks for more.
        price_in: Price of a million tokens of a prompt.
        price_out: Price of a million tokens of an answer.
        unreadable: Number of unusable answers in a row after which the LLM is stopped; null: never.
        budget: Money to spend on this LLM in total, over all runs of the journal; null: no limit.
        budget_tokens: Tokens (prompts and answers) to spend in total; null: no limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=100)
    model: str = Field(min_length=1)
    base_url: str
    api_key_env: str | None = Field(default=None, min_length=1)
    variant: str = ""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    extra: dict[str, Any] = Field(default_factory=dict)
    answer: AnswerFormat = "json_object"
    concurrency: int = Field(default=16, ge=1, le=1024)
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)
    timeout: float = Field(default=120.0, gt=0)
    retries: int = Field(default=8, ge=0)
    backoff: float = Field(default=0.5, gt=0)
    max_pause: float = Field(default=60.0, gt=0)
    price_in: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    price_out: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    unreadable: int | None = Field(default=20, ge=1)
    budget: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    budget_tokens: int | None = Field(default=None, ge=0)

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        address = urlsplit(value)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError("no address; for instance https://api.openai.com/v1")
        if address.username or address.password or address.query:
            raise ValueError(
                "leave user, password and query out of the address; the key belongs in api_key_env"
            )
        if address.path.rstrip("/").endswith("/chat/completions"):
            raise ValueError("leave the final /chat/completions out of the address; it is added")
        return value.rstrip("/")

    @field_validator("extra")
    @classmethod
    def _own_fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        reserved = sorted(set(value) & {"model", "messages", "temperature", "response_format", "stream", "n"})
        if reserved:
            raise ValueError(f"{reserved[0]!r} is set by the step itself")
        return value

    @model_validator(mode="after")
    def _money_needs_prices(self) -> Self:
        if self.budget is not None and not (self.price_in or self.price_out):
            raise ValueError("a budget needs price_in or price_out; without prices give budget_tokens")
        return self

    @property
    def local(self) -> bool:
        """Return True if the endpoint is on this machine."""
        return urlsplit(self.base_url).hostname in LOOPBACK_HOSTS

    def key(self) -> str:
        """Return the API key for the endpoint.

        Raises:
            BuildError: The environment variable is not set or its value cannot be a key, or none is named and
                the endpoint is not on this machine.
        """
        who = f"{type(self).__name__} {self.name}"
        if self.api_key_env is None:
            if self.local:
                return "none"
            raise BuildError(
                f"{who} names no key for {self.base_url}: give it api_key_env, the environment variable that "
                "holds the key of this service (for api.openai.com that is OPENAI_API_KEY). Keys are only "
                "sent if api_key_env names them."
            )
        api_key = os.environ.get(self.api_key_env, "").strip()
        if not api_key:
            raise BuildError(
                f"{who}: set {self.api_key_env} to the key for {self.base_url}; it is read only from there."
            )
        if not all("!" <= character <= "~" for character in api_key):
            raise BuildError(
                f"{who}: {self.api_key_env} is not a key: it has blanks, quotation marks or other characters "
                "that keys do not have. Set it again, without them."
            )
        return api_key

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


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    llm: LLM


def load_llm(path: str | Path) -> LLM:
    """Load the LLM of a YAML file, a mapping with the single key `llm`.

    Raises:
        BuildError: The file does not exist, or its content does not fit `LLM`.
    """
    return load_settings(path, _File, "'llm'").llm


def load_settings(path: str | Path, kind: type[SettingsT], holds: str) -> SettingsT:
    """Return the settings of a YAML file.

    Args:
        path: The file.
        kind: Model of the content.
        holds: Required content of the mapping, for messages.

    Raises:
        BuildError: The file does not exist, or its content does not fit `kind`.
    """
    file = Path(path)
    try:
        content = parse_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BuildError(f"{file} cannot be read ({error.strerror}).") from error
    except (YamlError, UnicodeDecodeError) as error:
        raise BuildError(f"{file} is not valid YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(content, dict):
        raise BuildError(f"{file} must be a mapping with {holds}.")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise BuildError(f"{file}: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    errors = error.errors()
    # Pydantic also calls a tuple with invalid items too short.
    own = [e for e in errors if e["type"] != "too_short" or len(errors) == 1]
    # Without the values: they may hold secrets.
    lines = [f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in own]
    return "; ".join(line.replace("Value error, ", "") for line in lines[:5])
