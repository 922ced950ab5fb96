"""Graded pairs: a query, a document, and how well the document answers the query."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MAX_LABEL", "GradedPair", "read_graded"]

#: The highest allowed label.
MAX_LABEL = 100


@dataclass(frozen=True, slots=True)
class GradedPair:
    """A query and a document with a grade.

    Attributes:
        query: Text of the query.
        document: Text of the document.
        label: Grade of the document: 0 for unrelated, the higher the better.
    """

    query: str
    document: str
    label: int


def read_graded(files: Iterable[str | Path]) -> list[GradedPair]:
    """Read graded pairs from JSONL files of `{"query", "document", "label"}`.

    Args:
        files: The files, read in this order.

    Raises:
        MarError: A file is missing, there are no rows, or a row is invalid; the message names its line.
    """
    pairs: list[GradedPair] = []
    names = [Path(file) for file in files]
    for file in names:
        if not file.is_file():
            raise MarError(f"There is no {file}. Give a JSONL file of query, document and label.")
        with file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    pairs.append(_pair(line, f"{file}:{number}"))
    if not pairs:
        raise MarError(f"{', '.join(map(str, names))}: no graded pairs. Give query, document and label.")
    return pairs


def _pair(line: bytes, where: str) -> GradedPair:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise MarError(f"{where}: not JSON ({error}).") from None
    if not isinstance(row, dict):
        raise MarError(
            f"{where}: expected an object with query, document and label; got {type(row).__name__}."
        )
    texts = [row.get("query"), row.get("document")]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise MarError(f"{where}: query and document must be non-empty texts.")
    query, document = str(texts[0]), str(texts[1])
    try:
        (query + document).encode()
    except UnicodeEncodeError as error:
        raise MarError(
            f"{where}: query or document is not valid Unicode ({error.reason}). Delete the half character "
            f"{error.object[error.start]!r}."
        ) from None
    label = row.get("label")
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label <= MAX_LABEL:
        raise MarError(
            f"{where}: label must be a whole number from 0, unrelated, to {MAX_LABEL} at most; "
            f"got {label!r}. Write the grades D, C, B, A, S as 0, 1, 2, 3, 4."
        )
    return GradedPair(query, document, label)
