"""Requests in portions, with common counts and cost."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from medteb_mteb.curation.llm import Account, generate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from medteb_mteb.curation.llm import LLM, Prompt

__all__ = ["PROMPTS_PER_PORTION", "Asking", "portions"]

#: Number of prompts held in memory at once.
PROMPTS_PER_PORTION = 10_000

T = TypeVar("T")
Item = TypeVar("Item")


def portions(items: Iterable[Item], size: int = PROMPTS_PER_PORTION) -> Iterator[list[Item]]:
    """Yield items in lists of at most `size`."""
    rest = iter(items)
    while portion := list(islice(rest, size)):
        yield portion


class Asking:
    """Calls of `generate` with common counts.

    Attributes:
        known: Number of prompts whose answer was in the journal.
        bought: Number of answers received.
        failed: Number of prompts without a usable answer, by reason.
        faults: Number of attempts that failed temporarily, by reason.
        account: Cost of the LLM in the journal, over all runs.
        stopped: Why the last call ended early; empty if it did not.

    Args:
        llm: The LLM.
        journal: The journal of its answers.
        retry_failed: Ask again for prompts that failed in earlier runs.
        show_progress: Show progress bars.
    """

    def __init__(self, llm: LLM, journal: Path, *, retry_failed: bool, show_progress: bool) -> None:
        self._llm, self._journal = llm, journal
        self._retry_failed, self._show_progress = retry_failed, show_progress
        self.known = self.bought = 0
        self.failed: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.account = Account()
        self.stopped = ""

    def __call__(
        self, prompts: list[Prompt], version: str, read: Callable[[Prompt, str], T], name: str
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Return answers by key, and reasons of failed prompts by key; both are incomplete if `stopped`."""
        generation = generate(
            prompts,
            self._llm,
            self._journal,
            version=version,
            read=read,
            retry_failed=self._retry_failed,
            show_progress=self._show_progress,
            name=name,
        )
        self.known += generation.known
        self.bought += generation.bought
        self.failed.update(generation.failed.values())
        self.faults.update(generation.faults)
        self.account, self.stopped = generation.account, generation.stopped
        return generation.answers, generation.failed
