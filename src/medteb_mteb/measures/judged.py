"""Judgements of a test besides its positives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Judged"]


@dataclass(frozen=True)
class Judged:
    """Judgements of a test besides its positives.

    Attributes:
        negatives: Query id -> ids of the documents judged irrelevant.
        disputed: Query id -> ids of the documents that the judges disagree on; neither positive nor negative.
        sources: Names of the files that the judgements come from.
        contradictions: Pairs that are positive in one file and negative in the other; the qrels count.
        dangling: Pairs of these files whose query or document does not exist.
    """

    negatives: Mapping[str, frozenset[str]] = field(default_factory=dict)
    disputed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    contradictions: int = 0
    dangling: int = 0

    @property
    def known(self) -> bool:
        """Return True if negatives are listed, which distinguishes wrong documents from unjudged ones."""
        return any(self.negatives.values())

    @property
    def pairs(self) -> int:
        """Return the number of judged negatives."""
        return sum(map(len, self.negatives.values()))
