"""Findings of a validation: a verdict per point, with numbers and a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["VERDICTS", "Finding", "Number", "Report", "Table", "Verdict", "worst"]

Verdict: TypeAlias = Literal["ok", "warning", "fail", "not known"]
Number: TypeAlias = "int | float | str | None"

#: From the best to the worst; `not known` is outside this order.
VERDICTS: tuple[Verdict, ...] = ("ok", "warning", "fail", "not known")


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the worst of several known verdicts; `ok` if there are none."""
    return max(verdicts, key=VERDICTS.index, default="ok")


@dataclass(frozen=True)
class Table:
    """A table below a finding; numbers are formatted already."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Finding:
    """One point.

    Attributes:
        check: Short key of the point.
        title: Name of the point, for readers.
        verdict: Verdict of the check.
        reason: Reason with the deciding number, and what to do if the verdict is not ok.
        numbers: All numbers by name.
        table: Further numbers, or None.
    """

    check: str
    title: str
    verdict: Verdict
    reason: str
    numbers: dict[str, Number] = field(default_factory=dict)
    table: Table | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        content: dict[str, Any] = {
            "check": self.check,
            "title": self.title,
            "verdict": self.verdict,
            "reason": self.reason,
            "numbers": self.numbers,
        }
        if self.table is not None:
            content["table"] = {"header": self.table.header, "rows": self.table.rows}
        return content


@dataclass(frozen=True)
class Report:
    """All points of one edition.

    Attributes:
        name: Name of the task.
        kind: `Retrieval` or `Reranking`.
        edition: Name and version of the edition; empty without a manifest.
        revision: Digest of the data, as in results.
        findings: The findings, in the order of the checks.
    """

    name: str
    kind: str
    edition: str
    revision: str
    findings: tuple[Finding, ...]

    def counts(self) -> dict[Verdict, int]:
        """Return the number of points by verdict."""
        by_verdict = Counter(finding.verdict for finding in self.findings)
        return {verdict: by_verdict[verdict] for verdict in VERDICTS}

    @property
    def failed(self) -> bool:
        """Return True if a point fails."""
        return bool(self.counts()["fail"])

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "schema_version": 1,
            "task": self.name,
            "type": self.kind,
            "edition": self.edition or None,
            "revision": self.revision,
            "verdicts": self.counts(),
            "findings": [finding.to_json() for finding in self.findings],
        }
