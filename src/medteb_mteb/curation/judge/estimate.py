"""Estimate of the requests, tokens and cost of a judging, before anything is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.judge.config import Judges, LearnedJudge, load_judges
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.judge.learned import LearnedPlanner
from medteb_mteb.curation.judge.material import read_material
from medteb_mteb.curation.judge.plan import (
    PASSAGE_OVERHEAD_TOKENS,
    PROMPT_OVERHEAD_TOKENS,
    JudgementCounts,
    RequestPlanner,
    control_tokens,
)
from medteb_mteb.curation.judge.prompt import answer_tokens
from medteb_mteb.curation.llm.budget import tokens_of
from medteb_mteb.curation.llm.paths import journal_place

if TYPE_CHECKING:
    from pathlib import Path

    from medteb_mteb.curation.judge.config import AnyJudge

__all__ = ["JOURNAL_VARIABLE", "Estimate", "at_most", "estimate", "journal_path"]

JOURNAL_VARIABLE = "MEDTEB_JOURNAL"


@dataclass(frozen=True)
class Estimate:
    """Requests, tokens and cost of a judging, if every answer is valid.

    Attributes:
        judge: The judge.
        judgements: Number of distinct judgements to make.
        known: Of these, in the journal.
        failed: Of these, failed before and not requested again.
        requests: Number of requests.
        tokens_in: Tokens of their prompts, estimated from the bytes.
        tokens_out: Tokens of the answers, estimated from the passages.
        cost: Cost of the requests.
        spent: Cost of the judge in the journal so far.
        budget: Upper limit of the total cost.
        suspicious: Number of passages that look like instructions and are judged alone.
        checks: Maximum number of requests that show the judge its positives again; not part of `requests`,
            as their number depends on the answers.
    """

    judge: str
    judgements: int
    known: int
    failed: int
    requests: int
    tokens_in: int
    tokens_out: int
    cost: float
    spent: float
    budget: float | None
    suspicious: int
    checks: int = 0


def journal_path(out: str | Path, journal: str | Path | None = None) -> Path:
    """Return the journal: as given, or `$MEDTEB_JOURNAL`, or `judgements.sqlite` beside the output."""
    return journal_place(out, journal, JOURNAL_VARIABLE, "judgements.sqlite")


def estimate(
    queries: str | Path,
    documents: str | Path,
    pools: str | Path,
    judges: Judges | str | Path,
    *,
    journal: str | Path | None = None,
    out: str | Path = "judged",
    gold: str | Path | None = None,
    retry_failed: bool = False,
) -> list[Estimate]:
    """Estimate the requests and cost of `judge`; nothing is sent, and no journal is created.

    Repeated requests for invalid answers are not included.

    Raises:
        BuildError: The input or the journal cannot be used.
        FolderError: The input has unusable rows.
    """
    config = judges if isinstance(judges, Judges) else load_judges(judges)
    material = read_material(queries, documents, pools, already_anonymous=True, gold=gold)
    estimates = []
    with JudgementJournal.snapshot(journal_path(out, journal)) as known:
        for judge in config.judges:
            if isinstance(judge, LearnedJudge):
                survey = LearnedPlanner(judge, config, material, known, retry_failed=retry_failed).survey()
                estimates.append(_free(judge, survey))
                continue
            planner = RequestPlanner(judge, config, material, known, retry_failed=retry_failed)
            requests = tokens_in = tokens_out = 0
            for task in planner.tasks():
                requests += 1
                estimated = task.prompt.tokens()
                tokens_in, tokens_out = tokens_in + estimated[0], tokens_out + estimated[1]
            counts = planner.counts
            estimates.append(
                Estimate(
                    judge=judge.name,
                    judgements=counts.judgements,
                    known=counts.known,
                    failed=counts.failed.total(),
                    requests=requests,
                    tokens_in=tokens_in,
                    tokens_out=tokens_out,
                    cost=judge.cost(tokens_in, tokens_out),
                    spent=known.account(judge.name).cost,
                    budget=judge.budget,
                    suspicious=counts.suspicious,
                    checks=_checks(planner) if config.check_positives else 0,
                )
            )
    return estimates


def _free(judge: LearnedJudge, survey: JudgementCounts) -> Estimate:
    """Return the estimate of a judge that nothing is sent to."""
    return Estimate(
        judge=judge.name,
        judgements=survey.judgements,
        known=survey.known,
        failed=survey.failed.total(),
        requests=0,
        tokens_in=0,
        tokens_out=0,
        cost=0.0,
        spent=0.0,
        budget=None,
        suspicious=0,
    )


def _checks(planner: RequestPlanner) -> int:
    """Return the requests that show a judge its positives again, if every passage had the maximum length."""
    documents = planner.material.documents
    distinct = {planner.material.digests["d", name]: text for name, text in documents.items()}
    longest = max(map(tokens_of, distinct.values())) + PASSAGE_OVERHEAD_TOKENS
    judge, judges = planner.judge, planner.judges
    fixed = PROMPT_OVERHEAD_TOKENS
    fixed += max(tokens_of(query) + control_tokens(judges, query) for query in judges.checks)
    per_prompt = max(1, min(judge.passages, (judge.prompt_tokens - fixed) // longest))
    suspects = sum(planner.material.suspect(name) for name in documents)
    # The last prompt of every query may be only partly filled.
    return math.ceil(len(distinct) / per_prompt) + min(len(judges.checks), len(distinct)) - 1 + suspects


def at_most(
    judge: AnyJudge, *, queries: int, query_tokens: float, pairs: int, document_tokens: float
) -> Estimate:
    """Estimate an upper bound of a judging before its pools and texts exist.

    Args:
        judge: The judge.
        queries: The queries.
        query_tokens: Mean tokens of a query.
        pairs: Number of pairs of all pools.
        document_tokens: Mean tokens of a document.
    """
    if isinstance(judge, LearnedJudge):
        return _free(judge, JudgementCounts(pairs))
    passage_tokens = document_tokens + PASSAGE_OVERHEAD_TOKENS
    # Every request may carry two control passages.
    room = int((judge.prompt_tokens - PROMPT_OVERHEAD_TOKENS - query_tokens) // passage_tokens) - 2
    passages = max(1, min(judge.passages, room))
    requests = queries * math.ceil(pairs / max(1, queries) / passages)
    shown = pairs + 2 * requests
    tokens_in = round(requests * (PROMPT_OVERHEAD_TOKENS + query_tokens) + shown * passage_tokens)
    tokens_out = requests * answer_tokens(math.ceil(shown / max(1, requests)))
    return Estimate(
        judge=judge.name,
        judgements=pairs,
        known=0,
        failed=0,
        requests=requests,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=judge.cost(tokens_in, tokens_out),
        spent=0.0,
        budget=judge.budget,
        suspicious=0,
    )
