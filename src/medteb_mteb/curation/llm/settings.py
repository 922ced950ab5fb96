"""LLMs behind OpenAI-compatible endpoints, settings of steps that ask them, and no private text sent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from mar_st.errors import MarError
from mar_st.options import FromFile, Settings
from medteb_mteb.curation.lineage import provenance_of
from medteb_mteb.curation.llm.generate import Generation, Job, ask
from medteb_mteb.curation.llm.journal import Journal, journal_path
from medteb_mteb.curation.step import Estimate, Runtime, StepSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.llm.client import Prompt


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


class PrivateSettings(StepSettings):
    """Options of a step that sends its texts to LLMs."""

    already_anonymous: Annotated[bool, Runtime()] = Field(
        False, description="Also send texts that were not anonymised: they hold no personal data."
    )

    def refuse_private(self, **texts: Sequence[Text]) -> None:
        """Refuse to send texts that have not been anonymised.

        Args:
            **texts: Texts by name for messages, for instance `queries` and `documents`.

        Raises:
            MarError: A text has not been anonymised.
        """
        counts = {name: sum(not text.anonymised for text in some) for name, some in texts.items()}
        if any(counts.values()) and not self.already_anonymous:
            summary = " and ".join(f"{count} of {len(texts[name])} {name}" for name, count in counts.items())
            raise MarError(
                f"{summary} have not been anonymised, and this step would send them to an LLM. Run 'medteb "
                "anonymize' on them first; if they hold no personal data, give --already-anonymous."
            )

    def refuse_raw(self, *sources: Path) -> None:
        """Refuse to send rows that were not made of anonymised texts.

        Args:
            *sources: Files or folders of the rows.

        Raises:
            MarError: No step has anonymised what the rows were made of.
        """
        raw = [str(one) for one in sources if not provenance_of([one]).get("anonymisers")]
        if raw and not self.already_anonymous:
            raise MarError(
                f"{raw[0]} was not made of anonymised texts, and this step would send it to an LLM. Run "
                "'medteb anonymize' first; if it holds no personal data, give --already-anonymous."
            )


def ask_llm(
    llm: LLM,
    prompts: Sequence[Prompt],
    version: str,
    read: Callable[[Prompt, str], Any],
    *,
    name: str,
    out: Path,
    may_fail: bool = False,
) -> Generation[Any]:
    """Have an LLM answer prompts, see `Job`; what failed in earlier runs is asked for once more.

    Args:
        llm: The LLM.
        prompts: The prompts.
        version: Their version.
        read: Returns the result of an answer.
        name: Label of the progress bar.
        out: Folder of the step; the journal is beside it.
        may_fail: Do not stop the run if all of them fail.
    """
    job = Job(llm, prompts, version, read, count=len(prompts))
    with Journal(journal_path(out)) as journal:
        generation = ask([job], journal, name=name)[0]
    if generation.failed and not (generation.stopped or generation.answers or may_fail):
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in generation.counts()["failed"].items())
        generation.stopped = (
            f"the LLM gave no valid answer to any of {len(generation.failed):,} prompts ({reasons}). "
            "Correct the cause"
        )
    return generation


class WriterSettings(StepSettings):
    """Options of a step that has one LLM answer prompts."""

    llm: Annotated[LLM, FromFile()] = Field(description="YAML file of the LLM.")

    def check(self) -> None:
        """Check that the key of the LLM is set."""
        self.llm.key()

    def ask(
        self,
        prompts: Sequence[Prompt],
        version: str,
        read: Callable[[Prompt, str], Any],
        name: str,
        **options: Any,
    ) -> Generation[Any]:
        """Have the LLM answer prompts, see `ask_llm`."""
        return ask_llm(self.llm, prompts, version, read, name=name, out=self.out, **options)

    def estimate(self, like: Prompt, requests: int, rows: int) -> Estimate:
        """Return the estimate of a step that writes `rows` rows and sends prompts like the given one."""
        return self.llm.estimate(rows, requests, like.tokens)

    def provenance(self, version: str, generation: Generation[Any]) -> dict[str, list[dict[str, Any]]]:
        """Return who has written the texts, in the form of `provenance.json`."""
        return {"writers": [written_by(self.llm, version, generation)]}


def written_by(llm: LLM, version: str, generation: Generation[Any]) -> dict[str, Any]:
    """Return an LLM with what it has answered, in the form of `provenance.json`."""
    return {"name": llm.name, **llm.settings(version), "answered": generation.answered}
