"""What a judging would ask for and cost, before a cent is spent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from medteb_mteb.build.judge.config import Judges, load_judges
from medteb_mteb.build.judge.journal import Journal
from medteb_mteb.build.judge.material import read_material
from medteb_mteb.build.judge.plan import Planner

__all__ = ["JOURNAL_VARIABLE", "Estimate", "estimate", "journal_path"]

JOURNAL_VARIABLE = "MEDTEB_JOURNAL"


@dataclass(frozen=True)
class Estimate:
    """What a judging will take, if every answer is good.

    Attributes:
        judge: The judge.
        judgements: Different judgements that are wanted.
        known: Of these, in the journal.
        failed: Of these, failed before and not asked for again.
        requests: Requests.
        tokens_in: Tokens of their prompts, estimated from the bytes.
        tokens_out: Tokens of the answers, estimated from the passages.
        cost: Their price.
        spent: What the journal has paid for the judge so far.
        budget: What it may pay in all.
        suspicious: Passages that look like instructions and are judged alone.
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


def journal_path(out: str | Path, journal: str | Path | None = None) -> Path:
    """Where judgements are kept: as given, or `$MEDTEB_JOURNAL`, or `judgements.sqlite` beside the output.

    Never inside it: who deletes the output keeps what was paid for.
    """
    return Path(
        journal or os.environ.get(JOURNAL_VARIABLE) or Path(out).resolve().parent / "judgements.sqlite"
    )


def estimate(
    queries: str | Path,
    documents: str | Path,
    pools: str | Path,
    judges: Judges | str | Path,
    *,
    journal: str | Path | None = None,
    out: str | Path = "judged",
    retry_failed: bool = False,
) -> list[Estimate]:
    """What `judge` would ask for and what that costs; nothing is sent, and no journal is made.

    Answers that have to be asked for again come on top.

    Raises:
        BuildError: The input or the journal cannot be used.
        FolderError: Rows of the input that cannot be used.
    """
    config = judges if isinstance(judges, Judges) else load_judges(judges)
    material = read_material(queries, documents, pools, already_anonymous=True)
    found = []
    with Journal.snapshot(journal_path(out, journal)) as known:
        for one in config.judges:
            planner = Planner(one, config, material, known, retry_failed=retry_failed)
            requests = tokens_in = tokens_out = 0
            for task in planner.tasks():
                requests += 1
                estimated = task.prompt.tokens()
                tokens_in, tokens_out = tokens_in + estimated[0], tokens_out + estimated[1]
            counts = planner.counts
            found.append(
                Estimate(
                    judge=one.name,
                    judgements=counts.judgements,
                    known=counts.known,
                    failed=counts.failed.total(),
                    requests=requests,
                    tokens_in=tokens_in,
                    tokens_out=tokens_out,
                    cost=one.cost(tokens_in, tokens_out),
                    spent=known.account(one.name).cost,
                    budget=one.budget,
                    suspicious=counts.suspicious,
                )
            )
    return found
