"""Estimate of the requests, tokens and cost of generating, before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from medteb_mteb.curation.llm.database import settings_digest
from medteb_mteb.curation.llm.journal import UNREAD, AnswerJournal
from medteb_mteb.curation.llm.readings import AnswerRequest, by_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from medteb_mteb.curation.llm.config import LLM
    from medteb_mteb.curation.llm.prompt import Prompt

__all__ = ["Cost", "added", "estimate_cost"]

#: Fields of a cost that are the same in every call: they belong to the LLM, not to the prompts.
_LLM_FIELDS = ("spent", "budget")


@dataclass(frozen=True)
class Cost:
    """Requests, tokens and cost of a call of `generate`, if every answer is valid.

    Attributes:
        prompts: Number of prompts.
        known: Of these, with an answer in the journal.
        failed: Of these, failed before and not requested again.
        requests: Number of requests; prompts with the same text and variant share one.
        tokens_in: Tokens of their prompts, estimated from the bytes.
        tokens_out: Tokens of the answers, as estimated by the prompts.
        cost: Cost of the requests.
        spent: Cost of the LLM in the journal so far.
        budget: Upper limit of the total cost.
    """

    prompts: int
    known: int
    failed: int
    requests: int
    tokens_in: int
    tokens_out: int
    cost: float
    spent: float
    budget: float | None


def added(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs, of one LLM and one journal.

    Args:
        costs: One or more costs.
    """
    first, *others = costs
    summed = [field.name for field in fields(Cost) if field.name not in _LLM_FIELDS]
    totals = {name: sum(getattr(cost, name) for cost in (first, *others)) for name in summed}
    return replace(first, **totals)


def estimate_cost(
    prompts: Sequence[Prompt], llm: LLM, journal: str | Path, *, version: str, retry_failed: bool = False
) -> Cost:
    """Estimate the requests and cost of `generate`; nothing is sent, and no journal is created.

    Further requests for invalid answers are not counted. Answers are not parsed: one in the journal counts as
    known unless it was rejected before.

    Args:
        prompts: Prompts; see `generate`, also for the other arguments.
        llm: The LLM.
        journal: The journal.
        version: Version of the prompts.
        retry_failed: Ask again for prompts that failed in earlier runs.

    Raises:
        JournalError: The journal is damaged or is something else.
        ValueError: Two prompts have the same key.
    """
    wanted = by_answer(prompts, settings_digest(llm.settings(version)))
    known = failed = requests = tokens_in = tokens_out = 0
    with AnswerJournal.snapshot(journal) as opened:
        answers, failures = opened.known(list(wanted)), opened.failures(list(wanted))
        spent = opened.account(llm.name).cost
    for key, key_prompts in wanted.items():
        if key in failures and failures[key].reason != UNREAD:
            if not retry_failed:
                failed += len(key_prompts)
                continue
        elif key in answers:
            known += len(key_prompts)
            continue
        requests += 1
        tokens = AnswerRequest(key, key_prompts[0]).tokens()
        tokens_in, tokens_out = tokens_in + tokens[0], tokens_out + tokens[1]
    return Cost(
        prompts=len(prompts),
        known=known,
        failed=failed,
        requests=requests,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=llm.cost(tokens_in, tokens_out),
        spent=spent,
        budget=llm.budget,
    )
