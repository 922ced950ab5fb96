"""Training rows in any form that `mar train` reads, with the columns that it does not use."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.recipes.schema import Data

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mar_st.data import Triple

__all__ = ["Record", "read_records", "records_digest"]


@dataclass(frozen=True, slots=True)
class Record:
    """A row of a training set.

    Attributes:
        triple: The triple as read by `mar train`, with the bare instruction of the row.
        more: Other columns of the row, for instance ids.
    """

    triple: Triple
    more: Mapping[str, Any] = field(default_factory=dict)

    def row(self, positives: Iterable[str], negatives: Iterable[str]) -> dict[str, Any]:
        """Return a row with other positives and negatives."""
        content: dict[str, Any] = {"query": self.triple.query, "positives": list(positives)}
        if negatives := list(negatives):
            content["negatives"] = negatives
        for name in ("instruction", "source"):
            if value := getattr(self.triple, name):
                content[name] = value
        return {**content, **self.more}


def read_records(path: str | Path) -> list[Record]:
    """Return the rows of a training set, in any form and place that `mar train` reads.

    Further columns are kept of JSON rows that hold texts, a query each; other forms, CSV, TSV and Parquet
    have none.

    Raises:
        DataError: The training set cannot be read; file and line are named.
    """
    from mar_st.data import read_source  # lazy: transformers

    # A prompt would conflict with the rows' instructions, and a template would change them.
    entry = Data(name="pairs", path=str(path), prompt="", instruction="{instruction}")
    triples = read_source(entry, 0).triples
    columns = _more(str(path))
    if columns is None or len(columns) != len(triples):
        return [Record(triple) for triple in triples]
    return [Record(triple, other) for triple, other in zip(triples, columns, strict=True)]


def records_digest(records: Iterable[Record]) -> str:
    """Return the sha256 (64 hex digits) of all rows."""
    digest = hashlib.sha256()
    for record in records:
        row = record.row(record.triple.positives, record.triple.negatives)
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def _more(path: str) -> Sequence[Mapping[str, Any]] | None:
    """Return the unused columns, row by row; `None` if rows and triples do not correspond."""
    from mar_st.data import DataError, locate  # lazy: transformers
    from mar_st.data.rows import SEPARATORS, json_rows  # lazy: transformers
    from mar_st.data.triples import is_column  # lazy: transformers

    if path.startswith("hub:"):
        return None
    file = locate(path)
    if file.is_dir():
        if any(file.glob("*.parquet")):  # these are read, whatever is beside them
            return None
        file /= "triples.jsonl"
    kind = Path(file.stem).suffix if file.suffix == ".gz" else file.suffix
    if not file.is_file() or kind in (".parquet", *SEPARATORS):
        return None
    unused = []
    for number, row in json_rows(file):
        if "query" not in row or "premise" in row or "sentence1" in row:
            return None
        other = {name: value for name, value in row.items() if not is_column(name)}
        try:
            json.dumps(other, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{file}:{number}: a column holds half of a surrogate pair, which no file can hold "
                f"({error.reason}). Remove it."
            ) from error
        unused.append(other)
    return unused
