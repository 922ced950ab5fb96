"""Report of a judging."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.read import MANIFEST
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.entries import JudgeAccount
from medteb_mteb.curation.judge.export import Outcome

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["JudgeReport", "JudgeResult", "finished"]


@dataclass(frozen=True)
class JudgeResult:
    """Result of one judge.

    Attributes:
        name: Name of the judge.
        outcome: Grades, and pairs without a grade.
        bought: Number of grades bought by this run.
        known: Number of judgements already in the journal.
        account: Cost of the judge in the journal, over all runs.
        details: Counts of this run: discarded answers, passages requested again, network faults.
        stopped: Why the run ended before all requests were sent; empty if it did not.
    """

    name: str
    outcome: Outcome
    bought: int = 0
    known: int = 0
    account: JudgeAccount = field(default_factory=JudgeAccount)
    details: dict[str, Any] = field(default_factory=dict)
    stopped: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the judge's entry of `report.json`."""
        return {
            "judge": self.name,
            **self.outcome.to_json(),
            "left": self.outcome.left,
            "bought": self.bought,
            "known": self.known,
            "paid": asdict(self.account),
            **self.details,
            **({"stopped": self.stopped} if self.stopped else {}),
        }


@dataclass(frozen=True)
class JudgeReport:
    """Report of a judging.

    Attributes:
        folder: Folder of the output.
        journal: Journal with all judgements.
        pairs: Number of pairs.
        judges: Result of each judge.
        complete: True if every pair has a grade or has failed; only then `judgements.jsonl` exists.
        notes: Remarks for the reader.
    """

    folder: Path
    journal: Path
    pairs: int
    judges: tuple[JudgeResult, ...]
    complete: bool
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the content of `report.json`."""
        return {
            "pairs": self.pairs,
            "complete": self.complete,
            "judges": [result.to_json() for result in self.judges],
            "notes": list(self.notes),
        }


def finished(folder: Path, journal: Path, manifest: dict[str, Any]) -> JudgeReport:
    """Return the report of a folder that an earlier run has finished, from its manifest.

    Raises:
        BuildError: The manifest does not hold the numbers of the judges.
    """
    results = []
    try:
        pairs = manifest["pairs"]
        for name, counts in manifest["judges"].items():
            outcome = Outcome(dict(counts["grades"]))
            outcome.failed.update(counts["failed"])
            results.append(
                JudgeResult(name, outcome, known=sum(outcome.grades.values()) + outcome.failed.total())
            )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BuildError(
            f"{folder / MANIFEST} is damaged (expected the numbers of grades and failures of each judge). "
            "Restore it, or delete it and run the command again: the journal holds all answers."
        ) from error
    return JudgeReport(folder, journal, pairs, tuple(results), complete=True)
