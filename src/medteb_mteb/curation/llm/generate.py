"""Generation of text by an LLM: every answer is paid for once and stored."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sized
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tqdm.auto import tqdm

from mar_st.errors import MarError
from medteb_mteb.curation.llm.ask import INTERRUPTED, Asker, Order, ask_all
from medteb_mteb.curation.llm.config import settings_digest
from medteb_mteb.curation.llm.journal import Account, Journal
from medteb_mteb.curation.llm.tolerant import Rejected, spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.llm.config import LLM
    from medteb_mteb.curation.llm.journal import Answer

__all__ = [
    "Generation",
    "answer_key",
    "generate",
    "refuse_private",
    "refuse_unanswered",
]

T = TypeVar("T")


@dataclass
class Generation(Generic[T]):
    """Result of a call of `generate`.

    Attributes:
        answers: Result of `read` for each answer, by key of the prompt.
        failed: Reason by key, for prompts without a valid answer.
        known: Number of prompts whose answer was in the journal.
        bought: Number of answers received in this run, valid or not.
        account: Cost of this LLM in the journal, over all runs.
        stopped: Why the run ended early; empty if it did not.
        answered: Models that answered, with dates and numbers of answers, as in `provenance.json`.
    """

    answers: dict[str, T] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    known: int = 0
    bought: int = 0
    account: Account = field(default_factory=Account)
    stopped: str = ""
    answered: list[dict[str, Any]] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Return True if the run did not end early: each prompt has an answer or has failed."""
        return not self.stopped

    def counts(self) -> dict[str, Any]:
        """Return the numbers of a report."""
        reasons = dict(sorted(Counter(self.failed.values()).items()))
        paid = {"known": self.known, "bought": self.bought, "paid": asdict(self.account)}
        return {"failed": reasons, **paid, **({"stopped": self.stopped} if self.stopped else {})}


class _Generator(Asker, Generic[T]):
    """Asks for the answers to prompts; prompts with the same text and variant share one."""

    def __init__(
        self,
        prompts: Iterable[Prompt],
        llm: LLM,
        journal: Journal,
        version: str,
        read: Callable[[Prompt, str], T],
        retry_failed: bool,
        bar: tqdm[Any],
    ) -> None:
        super().__init__(llm)
        self.journal = journal
        self.prompts, self.read, self.retry_failed, self.bar = prompts, read, retry_failed, bar
        self.settings = settings_digest(llm.settings(version))
        self.result: Generation[T] = Generation()
        self.waiting: dict[bytes, list[Prompt]] = {}
        self.origins: Counter[int] = Counter()

    def orders(self) -> Iterator[Order]:
        """Yield a request for each distinct prompt."""
        for prompt in self.prompts:
            key = answer_key(self.settings, prompt)
            if key in self.waiting:
                self.waiting[key].append(prompt)
            else:
                self.waiting[key] = [prompt]
                yield Order(key, prompt)

    def settle(self, order: Order, answer: Answer, *, known: bool) -> list[Order]:
        """Keep a valid answer; an invalid one is requested again, once."""
        reason = "" if answer.received else answer.ending
        rejected: list[Prompt] = []
        for prompt in self.waiting[order.key]:
            try:
                self.result.answers[prompt.key] = self._read(prompt, answer)
            except Rejected as error:
                reason = error.reason
                rejected.append(prompt)
        if not known and answer.received:
            self.used(reason)
        done = len(self.waiting[order.key]) - len(rejected)
        self.result.known += done if known else 0
        self.origins[answer.id] += 1 if answer.received else 0
        self.waiting[order.key] = rejected
        following = Order(order.key, order.prompt, order.attempt + 1)
        wanted = (order.attempt == 0 and answer.received) or (known and self.retry_failed)
        if rejected and (wanted or self.journal.get(order.key, following.attempt) is not None):
            self.bar.update(done)
            return [following]
        self.result.failed.update((prompt.key, reason) for prompt in rejected)
        del self.waiting[order.key]
        self.bar.update(done + len(rejected))
        return []

    def _read(self, prompt: Prompt, answer: Answer) -> T:
        if answer.ending not in ("", "cut"):
            raise Rejected(answer.ending)
        # A draft in thoughts that were cut off does not count as an answer.
        text = spoken(answer.text, cut=True) if answer.ending else answer.text
        if not text.strip():
            raise Rejected(answer.ending or "empty")
        try:
            return self.read(prompt, text)
        except Rejected as error:
            raise Rejected(answer.ending or error.reason) from None


def generate(
    prompts: Iterable[Prompt],
    llm: LLM,
    journal: str | Path,
    *,
    version: str,
    read: Callable[[Prompt, str], T],
    retry_failed: bool = False,
    show_progress: bool = True,
    name: str = "generate",
) -> Generation[T]:
    """Have an LLM answer prompts; an answer that was paid for is never bought again.

    An answer is stored in the journal unchanged, under the digest of (settings of the LLM, version, system,
    user, variant), before `read` parses it. One that is rejected is requested once more; then its prompt has
    failed. If a run is killed at any moment and called again, only pending answers are bought twice (and not
    even those if the endpoint honours `Idempotency-Key`), and no answer that arrived is lost.

    Args:
        prompts: The prompts, each with a unique key; they are taken one after another, as they are sent.
        llm: The LLM.
        journal: The journal, see `journal_path`; created if it is missing.
        version: Version of the prompts: of everything that answers depend on and that is not in their texts,
            such as the schema.
        read: Returns the result to keep of a prompt and its answer, or raises `Rejected`.
        retry_failed: Ask again, once, for everything that failed in earlier runs.
        show_progress: Show a progress bar.
        name: Label of the progress bar.

    Raises:
        MarError: The LLM's key or the openai package is missing, or the journal cannot be used.
        KeyboardInterrupt: After Ctrl-C, once the pending answers are stored.
    """
    total = len(prompts) if isinstance(prompts, Sized) else None
    with (
        Journal(journal) as opened,
        tqdm(total=total, desc=name, unit="answers", disable=not show_progress) as bar,
    ):
        asker = _Generator(prompts, llm, opened, version, read, retry_failed, bar)
        ask_all([asker], opened)
        if asker.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        result = asker.result
        result.bought, result.stopped = asker.bought, asker.stopped
        result.account = opened.account(llm.name)
        result.answered = opened.origins(+asker.origins, "answers")
    return result


def answer_key(settings: bytes, prompt: Prompt) -> bytes:
    """Return the key of an answer, 16 bytes, from the digest of the settings and the prompt."""
    parts = (prompt.system, prompt.user, prompt.variant)
    digests = [hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest() for part in parts]
    return hashlib.sha256(settings + b"".join(digests)).digest()[:16]


def refuse_unanswered(generation: Generation[Any]) -> None:
    """Refuse a result that is empty because every prompt failed.

    Raises:
        MarError: There are prompts, and all of them failed.
    """
    if generation.complete and generation.failed and not generation.answers:
        reasons = ", ".join(f"{name} {n:,}" for name, n in generation.counts()["failed"].items())
        raise MarError(
            f"The LLM gave no valid answer to any of {len(generation.failed):,} prompts ({reasons}), so "
            "nothing is written. Correct the cause, then run the same command with --retry-failed."
        )


def refuse_private(texts: Mapping[str, Sequence[Text]]) -> None:
    """Refuse to send texts that have not been anonymised.

    Args:
        texts: Texts by name for messages, for instance `{"queries": [...], "documents": [...]}`.

    Raises:
        MarError: A text has not been anonymised.
    """
    counts = {name: sum(not text.anonymised for text in some) for name, some in texts.items()}
    if any(counts.values()):
        summary = " and ".join(f"{count} of {len(texts[name])} {name}" for name, count in counts.items())
        raise MarError(
            f"{summary} have not been anonymised, and this step would send them to an LLM. Run 'medteb "
            "anonymize' on them first; if they hold no personal data, give --already-anonymous."
        )
