"""The folder of a judging: what the journal says about the pairs that were asked for.

::

    step.json            what is judged: digests of the input, the judges and their settings
    judgements.jsonl     a row per pair and judge, sorted: query-id, corpus-id, judge, grade; `suspicious` is
                         true where the passage looks as if it wanted to instruct a judge
    failed.jsonl         pairs that a judge gave no grade for: query-id, corpus-id, judge, reason
    report.json          what it took: answers, tokens, cost, control passages; differs from run to run
    manifest.json        written last: counts, digests of the first two, the steps before this one
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from medteb_mteb.build.grades import GRADES
from medteb_mteb.build.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from medteb_mteb.build.judge.journal import Journal
    from medteb_mteb.build.judge.plan import Planner

__all__ = ["FAILED", "JUDGEMENTS", "Outcome", "export", "outcomes"]

JUDGEMENTS = "judgements.jsonl"
FAILED = "failed.jsonl"


@dataclass
class Outcome:
    """Number of pairs by a judge's grade.

    Attributes:
        grades: Pairs by grade, of all five.
        failed: Pairs without a grade, by reason.
        left: Pairs not asked for yet.
    """

    grades: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GRADES, 0))
    failed: Counter[str] = field(default_factory=Counter)
    left: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the counts as stored in the manifest."""
        return {"grades": self.grades, "failed": dict(sorted(self.failed.items()))}


def outcomes(planners: Sequence[Planner], journal: Journal) -> dict[str, Outcome]:
    """Count the pairs of each judge in the journal."""
    found = {planner.judge.name: Outcome() for planner in planners}
    for row in _rows(planners, journal):
        _count(found[row["judge"]], row)
    return found


def export(folder: Path, planners: Sequence[Planner], journal: Journal) -> dict[str, Outcome]:
    """Write `judgements.jsonl` and `failed.jsonl`, aside and then moved.

    Returns:
        What they hold, by judge.

    Raises:
        BuildError: They cannot be written.
    """
    import os

    found = {planner.judge.name: Outcome() for planner in planners}
    targets = [folder / name for name in (JUDGEMENTS, FAILED)]
    parts = [target.with_name(target.name + ".part") for target in targets]
    try:
        with (
            parts[0].open("w", encoding="utf-8") as graded,
            parts[1].open("w", encoding="utf-8") as failed,
        ):
            for row in _rows(planners, journal):
                _count(found[row["judge"]], row)
                stream = graded if "grade" in row else failed
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            for stream in (graded, failed):
                stream.flush()
                os.fsync(stream.fileno())
        for part, target in zip(parts, targets, strict=True):
            part.replace(target)
    except OSError as error:
        for part in parts:
            part.unlink(missing_ok=True)
        raise BuildError(
            f"{folder} cannot be written to ({error.strerror}); every judgement is in the journal. Make "
            "room, and start again."
        ) from error
    return found


def _rows(planners: Sequence[Planner], journal: Journal) -> Iterator[dict[str, Any]]:
    """Rows by query, document and judge; of a pair not asked for yet without grade and reason."""
    ordered = sorted(planners, key=lambda planner: planner.judge.name)
    pools = ordered[0].material.pools
    for query in sorted(pools):
        known = []
        for planner in ordered:
            keys = {document: planner.key(query, document) for document in pools[query]}
            wanted = list(keys.values())
            known.append((planner.judge.name, keys, journal.grades(wanted), journal.failures(wanted)))
        for document in sorted(pools[query]):
            for name, keys, grades, failures in known:
                key = keys[document]
                row = {"query-id": query, "corpus-id": document, "judge": name}
                if key in grades:
                    marked = {"suspicious": True} if ordered[0].material.suspect(document) else {}
                    yield {**row, "grade": grades[key], **marked}
                elif key in failures:
                    yield {**row, "reason": failures[key].reason}
                else:
                    yield row


def _count(outcome: Outcome, row: dict[str, Any]) -> None:
    if "grade" in row:
        outcome.grades[row["grade"]] += 1
    elif "reason" in row:
        outcome.failed[row["reason"]] += 1
    else:
        outcome.left += 1
