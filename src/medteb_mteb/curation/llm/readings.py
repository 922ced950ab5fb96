"""State of prompts: valid answers, failed prompts, and prompts still to be sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from medteb_mteb.curation.llm.budget import tokens_of
from medteb_mteb.curation.llm.database import Failure
from medteb_mteb.curation.llm.journal import UNREAD, answer_key
from medteb_mteb.curation.llm.prompt import Rejected
from medteb_mteb.curation.llm.tolerant import spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from medteb_mteb.curation.llm.journal import Answer, AnswerJournal
    from medteb_mteb.curation.llm.prompt import Prompt

__all__ = ["AnswerRequest", "Readings", "by_answer"]

T = TypeVar("T")

#: Number of keys in one query.
_KEYS_PER_QUERY = 5_000


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """An answer to request.

    Attributes:
        key: Key of the answer in the journal.
        words: A prompt that requests the answer.
        attempt: Number of earlier requests for the answer.
    """

    key: bytes
    words: Prompt
    attempt: int = 0

    @property
    def prompt(self) -> AnswerRequest:
        """Return the prompt to send: the request itself."""
        return self

    def messages(self) -> list[dict[str, str]]:
        """Return the messages in the form of the chat completions API."""
        return [
            {"role": "system", "content": self.words.system},
            {"role": "user", "content": self.words.user},
        ]

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of an answer."""
        return dict(self.words.schema)

    def tokens(self) -> tuple[int, int]:
        """Return the estimated tokens of the prompt and of the answer."""
        return tokens_of(self.words.system) + tokens_of(self.words.user), self.words.answer_tokens

    def salt(self) -> str:
        """Return a text that distinguishes variants and repeated requests, whose prompts are equal."""
        return f"{self.key.hex()} {self.attempt}"


def by_answer(prompts: Sequence[Prompt], settings: bytes) -> dict[bytes, list[Prompt]]:
    """Return the prompts by the answer that they ask for, in their order.

    Raises:
        ValueError: Two prompts have the same key.
    """
    by_key: dict[bytes, list[Prompt]] = {}
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.key in seen:
            raise ValueError(f"two prompts have the key {prompt.key!r}")
        seen.add(prompt.key)
        by_key.setdefault(answer_key(settings, prompt), []).append(prompt)
    return by_key


class Readings(Generic[T]):
    """Answers of the journal, as parsed by a reader.

    Args:
        prompts: Prompts by the key of their answer.
        read: Parses an answer; raises `Rejected`.

    Attributes:
        good: Result of `read`, by key of the prompt.
        failed: Reason of failure, by key of the prompt.
    """

    def __init__(self, prompts: dict[bytes, list[Prompt]], read: Callable[[Prompt, str], T]) -> None:
        self.prompts, self._read = prompts, read
        self.good: dict[str, T] = {}
        self.failed: dict[str, str] = {}

    def orders(self, journal: AnswerJournal, *, retry_failed: bool) -> Iterator[AnswerRequest]:
        """Parse the answers in the journal, and yield the requests that remain.

        An answer that arrived just before its run was killed was not parsed; it is parsed now, and requested
        once more if it is unusable. One that a changed reader no longer accepts has failed.
        """
        keys = list(self.prompts)
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            chunk = keys[start : start + _KEYS_PER_QUERY]
            answers, failures = journal.answers(chunk), journal.failures(chunk)
            accepted: list[bytes] = []
            for key in chunk:
                attempt = self._next_attempt(
                    key, answers.get(key, []), failures.get(key), journal, retry_failed
                )
                if attempt is not None:
                    yield AnswerRequest(key, self.prompts[key][0], attempt)
                elif key in failures and not self._unanswered(key):
                    accepted.append(key)
            if accepted:
                journal.accept(accepted)

    def _next_attempt(
        self,
        key: bytes,
        answers: list[Answer],
        failure: Failure | None,
        journal: AnswerJournal,
        retry_failed: bool,
    ) -> int | None:
        """Return the number of the attempt to make for a key; `None` if none is to be made."""
        reason = ""
        for answer in answers:
            reason = self.take(key, answer)
        attempt = answers[-1].attempt + 1 if answers else 0
        if not self._unanswered(key):
            return None
        if failure is None and not answers:
            return attempt
        if failure is not None and failure.reason == UNREAD:
            if attempt == 1:
                return attempt
            journal.fail(key, Failure(reason, attempt - 1))
        elif failure is not None and failure.attempt == attempt:
            reason = failure.reason  # there was no answer at all
        if retry_failed:
            return attempt
        self.fail(key, reason)
        return None

    def take(self, key: bytes, answer: Answer) -> str:
        """Parse an answer for its prompts without one; return why it fails for one, or an empty string."""
        reason = ""
        for prompt in self._unanswered(key):
            try:
                self.good[prompt.key] = self._reading(prompt, answer)
            except Rejected as rejected:
                reason = rejected.reason
        return reason

    def fail(self, key: bytes, reason: str) -> None:
        """Mark those prompts of an answer as failed that have no valid one."""
        for prompt in self._unanswered(key):
            self.failed[prompt.key] = reason

    def _unanswered(self, key: bytes) -> list[Prompt]:
        return [prompt for prompt in self.prompts[key] if prompt.key not in self.good]

    def _reading(self, prompt: Prompt, answer: Answer) -> T:
        if answer.ending == "refused":
            raise Rejected("refused")
        # A draft in thoughts that were cut off does not count as an answer.
        text = spoken(answer.text, cut=True) if answer.ending == "cut" else answer.text
        if not text.strip():
            raise Rejected(answer.ending or "empty")
        try:
            return self._read(prompt, text)
        except Rejected:
            if answer.ending:
                raise Rejected(answer.ending) from None
            raise
