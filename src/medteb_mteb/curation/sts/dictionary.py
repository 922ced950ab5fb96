"""A dictionary of synonyms, found in queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.text.values import as_text
from medteb_mteb.curation.files.read import file_rows, source_files
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.texts.terms import Terms, fold
from medteb_mteb.folders.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Iterable

    from medteb_mteb.folders.rows import Row

__all__ = ["Dictionary", "DictionaryEntry", "read_dictionary"]


@dataclass(frozen=True, slots=True)
class DictionaryEntry:
    """A term and a synonym of it.

    Attributes:
        origin: The term as used in queries.
        replace: The synonym.
    """

    origin: str
    replace: str

    @property
    def pair(self) -> tuple[str, str]:
        """Return both terms, folded, in an order independent of the direction."""
        first, second = sorted((fold(self.origin), fold(self.replace)))
        return first, second


class Dictionary:
    """Entries, and the positions of their terms in a text.

    Args:
        entries: The entries; of entries that differ only in case or width, the first counts.

    Attributes:
        entries: The entries.
        repeated: Number of repeated entries.
        terms: All terms, synonyms included: a term that is part of a synonym is not found in it.
    """

    def __init__(self, entries: Iterable[DictionaryEntry]) -> None:
        every = list(entries)
        if not every:
            raise BuildError("The dictionary holds no entries.")
        known: dict[tuple[str, str], DictionaryEntry] = {}
        for entry in every:
            known.setdefault((fold(entry.origin), fold(entry.replace)), entry)
        self.entries = tuple(known.values())
        self.repeated = len(every) - len(known)
        self.terms = Terms(term for entry in self.entries for term in (entry.origin, entry.replace))
        self._by_origin: dict[str, list[DictionaryEntry]] = {}
        for (origin, _), entry in known.items():
            self._by_origin.setdefault(origin, []).append(entry)

    def of(self, term: str) -> list[DictionaryEntry]:
        """Return the entries of a term, in their order.

        Args:
            term: The term, folded.
        """
        return self._by_origin.get(term, [])


def read_dictionary(source: str | Path) -> Dictionary:
    """Return dictionary of a file or folder of TSV, CSV, JSONL or Parquet, columns `origin` and `replace`.

    A term with several synonyms has a row for each.

    Raises:
        BuildError: The file is missing or unreadable.
        FolderError: Rows are unusable; each is listed with file and line.
    """
    path = Path(source)
    problems = Problems(path)
    rows = (row for file in source_files(path) for row in file_rows(file, problems))
    entries = [entry for row in rows if (entry := _entry(row, problems)) is not None]
    problems.raise_if_any()
    return Dictionary(entries)


def _entry(row: Row, problems: Problems) -> DictionaryEntry | None:
    terms = []
    for column in ("origin", "replace"):
        if column not in row.values:
            columns = ", ".join(map(str, row.values))
            problems.add(
                row.file, row.line, "column", f"expected a column {column!r}; the columns are {columns}"
            )
            return None
        term = as_text(row.values[column])
        if term is None:
            problems.add(row.file, row.line, "term", f"{column!r} is empty or not text")
            return None
        terms.append(term.strip())
    if fold(terms[0]) == fold(terms[1]):
        problems.add(row.file, row.line, "same", f"origin and replace are the same term: {terms[0]!r}")
        return None
    return DictionaryEntry(*terms)
