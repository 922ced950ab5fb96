"""What reading gives: triples of texts, or single texts, and an account of what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mar_st.errors import MarError

if TYPE_CHECKING:
    from mar_st.schema import Data


class DataError(MarError):
    """Training data that cannot be used; the message names file and line."""


@dataclass(frozen=True)
class Triple:
    """A query with the texts that answer it and texts that look so but do not.

    Attributes:
        query: The bare query.
        positives: Documents that answer it.
        negatives: Hard negatives.
        instruction: What training puts before the query in the place of a prompt, separators included.
        source: Where the row comes from, if it says so.
    """

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    instruction: str = ""
    source: str = ""


@dataclass(frozen=True)
class Source:
    """A data entry of a recipe with what was read for it: triples, or texts (form `texts`).

    Attributes:
        entry: The data entry.
        triples: Its triples.
        texts: Its texts, of the form `texts` alone.
        left_out: Rows, triples or texts of the files that are not in it, by reason.
    """

    entry: Data
    triples: list[Triple] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def summary(self) -> str:
        """How much there is, and what was left out and why."""
        what = f"{len(self.texts)} texts" if self.entry.form == "texts" else f"{len(self.triples)} triples"
        reasons = ", ".join(f"{number} {reason}" for reason, number in self.left_out.items())
        return f"{what}; left out: {reasons}" if reasons else what
