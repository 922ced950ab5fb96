"""Share of a ranking that was judged, and scores that are robust against unjudged documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medteb_mteb.measures import ENOUGH_JUDGED

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DATA_UNREADABLE", "HEADERS", "Holes"]

#: Columns of a table, see `Holes.cells`.
HEADERS = ("judged@10", "condensed nDCG@10", "bpref")

NEGATIVES_UNKNOWN = "not known: the data list no judged negatives"
DATA_UNREADABLE = "not known: the data of the saved result cannot be read"
OLD_RESULT = "not in the saved result; run again with --overwrite"


@dataclass(frozen=True)
class Holes:
    """The measures of `medteb_mteb.measures` for one model on one retrieval task.

    Attributes:
        judged: Share of the first 10 documents that were judged, or None.
        bpref: bpref, or None.
        condensed: nDCG@10 of only the judged documents, or None.
        reason: Why the measures are missing; empty if they are not.
    """

    judged: float | None = None
    bpref: float | None = None
    condensed: float | None = None
    reason: str = NEGATIVES_UNKNOWN

    @classmethod
    def of_scores(cls, scores: Mapping[str, Any], known: bool) -> Holes:
        """Create an instance from mteb's scores of a split.

        Args:
            scores: Scores by name.
            known: Whether the data say which pairs were judged.
        """
        values = [scores.get(name) for name in ("judged_at_10", "bpref", "condensed_ndcg_at_10")]
        if not known:
            return cls()
        if all(value is None for value in values):
            return cls(reason=OLD_RESULT)
        judged, bpref, condensed = (None if value is None else float(value) for value in values)
        return cls(judged, bpref, condensed, reason="")

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; `note` says why the measures are missing."""
        return {
            "judged_at_10": self.judged,
            "bpref": self.bpref,
            "condensed_ndcg_at_10": self.condensed,
            "note": self.reason or None,
        }

    def cells(self) -> list[str]:
        """Return the cells of a table, in the order of `HEADERS`."""
        share = "not known" if self.judged is None else f"{self.judged:.1%}"
        return [share, *("-" if value is None else f"{value:.4f}" for value in (self.condensed, self.bpref))]

    def warning(self) -> str:
        """Return advice if too little was judged; empty if enough was, or if the share is not known."""
        if self.judged is None or self.judged >= ENOUGH_JUDGED:
            return ""
        return (
            f"only {self.judged:.1%} of the first 10 documents were judged; nDCG@10 counts the others as "
            "wrong. Compare by condensed nDCG@10 and bpref, or have them judged for a new version: "
            "medteb edition extend EDITION OUT -r MODEL --judges FILE."
        )
