"""Problems found in a data folder or file: collected with file and line, then raised as one error."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from mar_st.errors import MarError

__all__ = ["FolderError", "Problems", "short_repr"]


def short_repr(value: object, limit: int = 60) -> str:
    """Return the `repr` of a value for a message; one longer than `limit` characters ends in an ellipsis."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


class FolderError(MarError):
    """A data folder or file cannot be used.

    Attributes:
        folder: The folder, or a file that was given by itself.
        problems: A line per shown problem, ``file:line: message``.
        total: Number of problems found, shown or not.
    """

    def __init__(self, folder: Path, problems: list[str], total: int | None = None) -> None:
        self.folder = folder
        self.problems = problems
        self.total = len(problems) if total is None else total
        rest = self.total - len(problems)
        shown = folder.resolve() if folder == Path() else folder
        if self.total == 1:
            own = problems[0].startswith(f"{folder.name}:")  # of a file that was given by itself
            message = f"{folder}{problems[0][len(folder.name) :]}" if own else f"{shown}: {problems[0]}"
        else:
            lines = [f"{shown}: {self.total} problems", *(f"  {line}" for line in problems)]
            message = "\n".join(lines + ([f"  ... and {rest} more"] if rest else []))
        super().__init__(message)


class Problems:
    """Collects problems of one folder or file.

    Args:
        folder: The folder being read, or a file that is given by itself.
        limit: Number of problems to show.
        per_kind: Number of problems of one kind to show per file, so that one mistake in every line does not
            hide the others.
    """

    def __init__(self, folder: Path, limit: int = 20, per_kind: int = 5) -> None:
        self.folder = folder
        self.limit = limit
        self.per_kind = per_kind
        self.examples: list[tuple[str, str]] = []  # kind and text, of every kind
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, file: Path | str, line: int | None, kind: str, message: str) -> None:
        """Records a problem.

        Args:
            file: File with the problem.
            line: 1-based line (row for Parquet), None for the file as a whole.
            kind: Short key that groups problems of the same cause.
            message: The problem and, if helpful, what was expected.
        """
        name = self.name(file)
        self.counts[name, kind] += 1
        if self.counts[name, kind] <= self.per_kind:
            unit = "row " if name.endswith(".parquet") else ""
            where = name if line is None else f"{name}:{unit}{line}"
            self.examples.append((kind, f"{where}: {message}"))

    def name(self, file: Path | str) -> str:
        """Return a file's path relative to the folder; the name of a file that is given by itself."""
        path = Path(file)
        if path == self.folder:
            return path.name
        return path.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else str(file)

    @property
    def shown(self) -> list[str]:
        """Return the problems to show, with file and line."""
        return [text for _, text in self.examples[: self.limit]]

    @property
    def total(self) -> int:
        """Return the number of problems recorded."""
        return sum(self.counts.values())

    def raise_if_any(self) -> None:
        """Raises :class:`FolderError` with everything recorded so far, if there is anything."""
        if self.total:
            raise FolderError(self.folder, self.shown, self.total)
