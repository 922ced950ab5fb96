"""Writing the files of an edition in the Hub layout, with the same bytes on every platform."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mar_st.files import finished
from medteb_mteb.folders.layout import DISPUTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.files.records import Text

#: Query -> document -> relevance.
Qrels = dict[str, dict[str, int]]

#: Spreadsheets take cells that begin with these, after blanks, for formulas (OWASP, "CSV Injection").
_FORMULA_PREFIXES = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def guarded(cell: str) -> str:
    """Return a cell of a sheet that no spreadsheet takes for a formula: an apostrophe goes before it.

    An apostrophe at the start is doubled, so that whoever removes one gets the cell back.
    """
    is_formula = cell.lstrip().startswith(_FORMULA_PREFIXES) or cell.startswith(("'", "\t", "\r", "\n"))
    return f"'{cell}" if is_formula else cell


def write_texts(path: Path, texts: Iterable[Text], *, titles: bool) -> None:
    """Write documents with `titles`, or queries without."""

    def row(text: Text) -> dict[str, str]:
        content = {"title": text.title, "text": text.text} if titles else {"text": text.full}
        return {"_id": text.id, **content, **({"date": text.date} if text.date else {})}

    write_rows(path, map(row, texts))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write JSON lines, completely or not at all, and return the number of rows."""
    number = 0
    with finished(path) as part, part.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            number += 1
    return number


def write_qrels(folder: Path, qrels: Qrels) -> None:
    """Write `qrels/test.tsv` with the positives, and `labels.tsv` that also has the negatives."""
    pairs = [(query, name, row[name]) for query, row in qrels.items() for name in sorted(row)]
    for path, kept in (
        (folder / "qrels" / "test.tsv", [pair for pair in pairs if pair[2]]),
        (folder / "labels.tsv", pairs),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{relevance}" for q, d, relevance in kept)]
        path.write_bytes(("\n".join(lines) + "\n").encode())


def write_disputed(folder: Path, disputed: Mapping[str, Sequence[str]]) -> None:
    """Write `disputed.tsv` with the pairs that the judges disagree on; no file without such pairs.

    Args:
        folder: Folder of the edition.
        disputed: Query -> documents of the edition's corpus.
    """
    lines = [f"{query}\t{name}" for query, names in disputed.items() for name in names]
    if lines:
        (folder / DISPUTED).write_bytes(("\n".join(["query-id\tcorpus-id", *lines]) + "\n").encode())
