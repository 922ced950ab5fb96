"""Answers of experts to a sheet, with decisions on disagreements, weighted by sampling probability."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.agreement import fleiss_kappa
from medteb_mteb.curation.labels.sheet import (
    answered_by_all,
    check_free,
    read_answers,
    read_rows,
    read_sheet,
    write_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.labels.sheet import SheetPair

__all__ = ["DECISION_COLUMN", "Experts", "read_experts", "write_disagreements"]

#: Column of the decisions in a sheet of disagreements.
DECISION_COLUMN = "decision"


@dataclass(frozen=True)
class Experts:
    """Answers of experts on a sample of labels.

    Attributes:
        answers: 1 or 0 by pair: the majority of the experts, or their joint decision.
        drawn: The sampled pairs, with label and stratum.
        pairs: Number of pairs of each stratum, drawn or not.
        number: Number of experts.
        differing: Pairs without a majority.
        undecided: Of these, those without a decision; they have no answer.
        unanswered: Pairs that some expert has not answered; they have no answer.
        kappa: Fleiss' kappa of the experts before decisions; None for one expert.
    """

    answers: Mapping[tuple[str, str], int]
    drawn: Mapping[tuple[str, str], SheetPair]
    pairs: Mapping[str, int]
    number: int = 1
    differing: int = 0
    undecided: int = 0
    unanswered: int = 0
    kappa: float | None = None

    @cached_property
    def seen(self) -> Counter[str]:
        """Return the number of answers in each stratum."""
        return Counter(self.drawn[pair].stratum for pair in self.answers)

    def weight(self, pair: tuple[str, str]) -> float:
        """Return the number of pairs that an answer represents: one over its probability to be answered.

        Pairs without an answer count as a random part of their stratum.
        """
        stratum = self.drawn[pair].stratum
        return self.pairs[stratum] / self.seen[stratum]


def read_experts(sheet: Path, answered: Sequence[Path], decided: Path | None = None) -> Experts:
    """Read the answers of experts to the pairs of a sheet.

    Args:
        sheet: The sheet as it was exported; its key is next to it.
        answered: The returned files, one per expert.
        decided: The filled-in sheet of disagreements, see `write_disagreements`.

    Raises:
        BuildError: A file belongs to another sheet, an answer is invalid, or no pair has all answers.
    """
    key = read_sheet(sheet)
    returned = [read_answers(file, key) for file in answered]
    rows = answered_by_all(key.rows, returned)
    decisions = {} if decided is None else read_answers(decided, key, DECISION_COLUMN)
    votes = {row: sum(by_row[row] for by_row in returned) for row in rows}
    split = [row for row in rows if 2 * votes[row] == len(returned)]
    answers = {row: int(2 * votes[row] > len(returned)) for row in rows if row not in set(split)} | {
        row: decisions[row] for row in split if row in decisions
    }
    if stray := sorted(decisions.keys() - set(split)):
        raise BuildError(
            f"{decided} decides row {stray[0]}, on which the experts do not differ. Write the sheet of "
            "disagreements again (medteb review adjudicate)."
        )
    counts = np.array([[len(returned) - votes[row], votes[row]] for row in rows])
    return Experts(
        answers={key.rows[row].pair: answer for row, answer in answers.items()},
        drawn={one.pair: one for one in key.rows.values()},
        pairs=key.pairs,
        number=len(returned),
        differing=len(split),
        undecided=len(split) - len(decisions),
        unanswered=len(key.rows) - len(rows),
        kappa=fleiss_kappa(counts) if len(returned) > 1 else None,
    )


def write_disagreements(sheet: Path, answered: Mapping[str, Path], out: Path) -> int:
    """Write the pairs on which experts have no majority, with their answers and an empty column `decision`.

    Args:
        sheet: The sheet as it was exported; its key is next to it.
        answered: Returned file of each expert, by name; two or more.
        out: File to write, `.csv` or `.jsonl`.

    Returns:
        Number of pairs.

    Raises:
        BuildError: There are fewer than two experts, a name is that of a column, or see `read_experts`.
    """
    if len(answered) < 2:
        raise BuildError("Disagreements need the files of two experts or more.")
    own = ("row", "query", "document", DECISION_COLUMN, "comment")
    if clashing := sorted(set(answered) & set(own)):
        raise BuildError(f"A file is called {clashing[0]!r}, which is a column of the sheet; rename it.")
    check_free(out)
    key = read_sheet(sheet)
    texts = _texts(sheet)
    returned = {name: read_answers(file, key) for name, file in answered.items()}
    rows = []
    for number in sorted(key.rows):
        votes = [by_row[number] for by_row in returned.values() if number in by_row]
        if len(votes) < len(returned) or 2 * sum(votes) != len(votes):
            continue
        answers = {name: str(by_row[number]) for name, by_row in returned.items()}
        rows.append({"row": number, **texts[number], **answers, DECISION_COLUMN: "", "comment": ""})
    out.parent.mkdir(parents=True, exist_ok=True)
    write_rows(out, ("row", "query", "document", *returned, DECISION_COLUMN, "comment"), rows)
    return len(rows)


def _texts(sheet: Path) -> dict[int, dict[str, str]]:
    try:
        return {
            int(row["row"]): {"query": row["query"], "document": row["document"]}
            for _, row in read_rows(sheet)
        }
    except (KeyError, TypeError, ValueError):
        raise BuildError(f"{sheet} is not as it was exported; give the sheet without answers.") from None
