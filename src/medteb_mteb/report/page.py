"""Pages of findings: verdict, numbers and reason per point, as Markdown."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from math import isnan
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Verdict: TypeAlias = Literal["ok", "warning", "fail", "not known"]

#: From the best to the worst; `not known` is outside this order.
VERDICTS: tuple[Verdict, ...] = ("ok", "warning", "fail", "not known")


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the worst of several known verdicts; `ok` if there are none."""
    return max(verdicts, key=VERDICTS.index, default="ok")


def graded(value: float, fine: float, usable: float) -> Verdict:
    """Return `ok` for a value up to (or from) `fine`, `warning` up to (or from) `usable`, else `fail`."""
    sign = 1 if fine > usable else -1
    return "ok" if sign * value >= sign * fine else "warning" if sign * value >= sign * usable else "fail"


def with_interval(value: float | None, low: float | None, high: float | None, form: str = ".4f") -> str:
    """Return a number with its interval as text: a dash if it is unknown, no interval if that is unknown."""
    if value is None or isnan(value):
        return "-"
    if low is None or isnan(low):
        return f"{value:{form}}"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def probability(p: float, *, relation: bool = False) -> str:
    """Return a p-value with four decimals, or `< 0.0001`; with `relation`, other values begin with `=`."""
    if p < 1e-4:
        return "< 0.0001"
    return f"{'= ' if relation else ''}{p:.4f}"


@dataclass(frozen=True)
class Table:
    """A table below a finding; numbers are formatted already."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Finding:
    """One point.

    Attributes:
        title: Name of the point.
        verdict: Its verdict.
        reason: Reason with the deciding number, and what to do if the verdict is not ok.
        numbers: All numbers by name.
        table: Further numbers, or None.
    """

    title: str
    verdict: Verdict
    reason: str
    numbers: Mapping[str, float | str | None] = field(default_factory=dict)
    table: Table | None = None


@dataclass(frozen=True)
class Page:
    """All points of one subject.

    Attributes:
        title: Heading of the page.
        subject: A sentence about what was looked at.
        findings: The points in their order.
    """

    title: str
    subject: str
    findings: tuple[Finding, ...]

    def counts(self) -> dict[Verdict, int]:
        """Return the number of points by verdict."""
        by_verdict = Counter(finding.verdict for finding in self.findings)
        return {verdict: by_verdict[verdict] for verdict in VERDICTS if by_verdict[verdict]}

    @property
    def failed(self) -> bool:
        """Return True if a point fails."""
        return "fail" in self.counts()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "verdicts": self.counts()}


def to_markdown(page: Page) -> str:
    """Return the page as GitHub Markdown."""
    rows = [(f.title, f.verdict, f.reason) for f in page.findings]
    summary = ", ".join(f"{verdict}: {number}" for verdict, number in page.counts().items())
    parts = [f"# {_plain(page.title)}", _plain(page.subject), f"**{summary}**"]
    parts.append(markdown_table([("point", "verdict", "reason"), *rows]))
    for finding in page.findings:
        if finding.numbers or finding.table:
            parts.append(f"## {_plain(finding.title)}")
            parts += [markdown_table([table.header, *table.rows]) for table in _tables(finding)]
    return "\n\n".join(parts) + "\n"


def _tables(finding: Finding) -> list[Table]:
    numbers = tuple((name, _shown(value)) for name, value in finding.numbers.items())
    own = [finding.table] if finding.table is not None and finding.table.rows else []
    return [*own, *([Table(("number", "value"), numbers)] if numbers else [])]


def _shown(value: float | str | None) -> str:
    if value is None:
        return "not known"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(text: str) -> str:
    """Return a text from a folder on one line, with Markdown and HTML escaped."""
    flat = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return re.sub(r"([\\`*<>|]|(?<=\])\()", r"\\\1", flat)


def markdown_table(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> str:
    """Return a table as Markdown; the first row is the header.

    Args:
        rows: The cells.
        numbers: Align all columns but the first to the right.
    """
    rule = ["---", *["---:" if numbers else "---"] * (len(rows[0]) - 1)]
    cells = [[_plain(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in (cells[0], rule, *cells[1:]))


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a terminal: columns of equal width, the first one to the left."""
    from rich.cells import cell_len  # lazy: rich

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    padded = (
        [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)] for row in rows
    )
    return "\n".join(
        "  ".join([row[0] + pads[0], *(pad + cell for pad, cell in zip(pads[1:], row[1:], strict=True))])
        for row, pads in zip(rows, padded, strict=True)
    )
