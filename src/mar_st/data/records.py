"""Records of training data: triples of texts or single texts, and counts of the rows left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from json.encoder import encode_basestring as _quoted
from typing import TYPE_CHECKING

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.recipes.schema import Data


class DataError(MarError):
    """Training data that cannot be used; the message names file and line."""


@dataclass(frozen=True)
class Triple:
    """A query with texts that answer it and texts that only seem to.

    Attributes:
        query: The bare query.
        positives: Documents that answer it.
        negatives: Hard negatives.
        instruction: Prefix of the query in training, instead of a prompt; includes separators.
        source: Origin of the row, if the row names it.
    """

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    instruction: str = ""
    source: str = ""


def row_line(row: Triple | str) -> bytes:
    """Return a triple or a text as a line of JSON, from which the digest of a source is computed."""
    if isinstance(row, str):
        return f"{_quoted(row)}\n".encode()
    positives, negatives = (", ".join(map(_quoted, texts)) for texts in (row.positives, row.negatives))
    return (
        f'{{"query": {_quoted(row.query)}, "positives": [{positives}], "negatives": [{negatives}], '
        f'"instruction": {_quoted(row.instruction)}, "source": {_quoted(row.source)}}}\n'
    ).encode()


@dataclass(frozen=True)
class Source:
    """A data entry of a recipe with its rows: triples, or texts (form `texts`).

    Attributes:
        entry: The data entry.
        form: Resolved `form` of the entry.
        triples: Its triples.
        texts: Its texts, only for the form `texts`.
        left_out: Number of rows, triples or texts of the files that were left out, by reason.
        ignored: Columns in the files that only other libraries read, with the library of each.
        digest: sha256 of the content, if it was computed while reading, see `content.source_digest`.
    """

    entry: Data
    triples: Sequence[Triple] = field(default_factory=list)
    texts: Sequence[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    digest: str | None = None
    form: str = "triples"

    def notes(self) -> list[str]:
        """Return a line on columns of other libraries that are not read, if there are any."""
        if not self.ignored:
            return []
        columns = "; ".join(f"{name!r} ({whose})" for name, whose in self.ignored.items())
        return [f"data {self.entry.name}: not read: {columns}"]

    def summary(self) -> str:
        """Return a line with the number of records and, by reason, of rows left out."""
        what = f"{len(self.texts)} texts" if self.entry.form == "texts" else f"{len(self.triples)} triples"
        reasons = ", ".join(f"{number} {reason}" for reason, number in self.left_out.items())
        return f"{what}; left out: {reasons}" if reasons else what
