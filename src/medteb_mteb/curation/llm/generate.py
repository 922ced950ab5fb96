"""Generation of text by an LLM: every answer is paid for once and stored."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tqdm.auto import tqdm

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm.database import settings_digest
from medteb_mteb.curation.llm.journal import AnswerJournal, answer_key
from medteb_mteb.curation.llm.loop import INTERRUPTED, run_workers
from medteb_mteb.curation.llm.origins import answered
from medteb_mteb.curation.llm.readings import Readings, by_answer
from medteb_mteb.curation.llm.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.llm.account import Account
    from medteb_mteb.curation.llm.config import LLM
    from medteb_mteb.curation.llm.prompt import Prompt

__all__ = ["Generation", "generate", "refuse_unanswered"]

T = TypeVar("T")


@dataclass(frozen=True)
class Generation(Generic[T]):
    """Result of a call of `generate`.

    Attributes:
        answers: Result of `read` for each answer, by key, in the order of the prompts.
        failed: Reason by key, for prompts without a valid answer, in the same order.
        known: Number of prompts whose answer was in the journal.
        bought: Number of answers received in this run, valid or not.
        account: Cost of this LLM in the journal, over all runs.
        faults: Number of attempts that failed temporarily, by reason.
        stopped: Why the run ended early; empty if it did not.
        answered: Models that answered, with dates, see `medteb_mteb.curation.llm.origins.answered`.
    """

    answers: dict[str, T]
    failed: dict[str, str]
    known: int
    bought: int
    account: Account
    faults: dict[str, int] = field(default_factory=dict)
    stopped: str = ""
    answered: tuple[dict[str, Any], ...] = ()

    @property
    def complete(self) -> bool:
        """Return True if the run did not end early: each prompt has an answer or has failed."""
        return not self.stopped


def generate(
    prompts: Sequence[Prompt],
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

    A known answer is parsed again by every call. If a changed reader rejects it, its prompt has failed; only
    `retry_failed` asks again.

    Args:
        prompts: The prompts, each with a unique key.
        llm: The LLM.
        journal: The journal, see `answers_path`; created if it is missing.
        version: Version of the prompts: of everything that answers depend on and that is not in their texts,
            such as the schema.
        read: Returns the result to keep of a prompt and its answer, or raises `Rejected`. Called
            for every answer while others wait, so it must be fast.
        retry_failed: Ask again, once, for everything that failed in earlier runs.
        show_progress: Show a progress bar.
        name: Label of the progress bar.

    Raises:
        BuildError: The LLM's key or the openai package is missing.
        JournalError: The journal is in use, is damaged, is something else or cannot be written.
        ValueError: Two prompts have the same key.
        KeyboardInterrupt: After Ctrl-C, once the pending answers are stored.
    """
    description = llm.settings(version)
    settings = settings_digest(description)
    readings = Readings(by_answer(prompts, settings), read)
    with AnswerJournal(journal) as opened:
        orders = list(readings.orders(opened, retry_failed=retry_failed))
        known = len(readings.good)
        with tqdm(
            total=len(orders), desc=name, unit="answers", disable=not (show_progress and orders)
        ) as bar:

            def done(spent: float, failed: int) -> None:
                bar.set_postfix(spent=f"{spent:.4g}", failed=failed, refresh=False)
                bar.update()

            writer = Writer(readings, orders, llm, opened, settings, description, done)
            if orders:
                run_workers([writer])
        account = opened.account(llm.name)
        origins = Counter(opened.origins([answer_key(settings, p) for p in prompts]).values())
    if writer.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    return Generation(
        answers={p.key: readings.good[p.key] for p in prompts if p.key in readings.good},
        failed={p.key: readings.failed[p.key] for p in prompts if p.key in readings.failed},
        known=known,
        bought=writer.bought,
        account=account,
        faults=dict(sorted(writer.faults.items())),
        stopped=writer.stopped,
        answered=tuple(answered(origins, "answers")),
    )


def refuse_unanswered(prompts: int, failed: Mapping[str, int]) -> None:
    """Refuse a result that is empty because every prompt failed.

    Args:
        prompts: Number of prompts.
        failed: Number of prompts without a valid answer, by reason.

    Raises:
        BuildError: There are prompts, and all of them failed.
    """
    if 0 < prompts <= sum(failed.values()):
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(failed.items()))
        raise BuildError(
            f"The LLM gave no valid answer to any of {prompts:,} prompts ({reasons}), so nothing is written. "
            "Correct the cause, then run the same command with --retry-failed (retry_failed=True)."
        )
