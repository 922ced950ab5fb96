"""Report of a synthesis, and the files it is written to."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.folder import read_json, write_json, write_text
from medteb_mteb.curation.files.read import MANIFEST
from medteb_mteb.curation.llm import Account
from medteb_mteb.curation.training.rows import TEST_QUERY
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.synthetic.asking import Asking
    from medteb_mteb.curation.training.leaks import HeldOut

__all__ = ["DROPPED_FILE", "FAILED_FILE", "SynthesisReport", "SynthesisRows", "finished", "written"]

DROPPED_FILE = "dropped.jsonl"
FAILED_FILE = "failed.jsonl"


@dataclass(frozen=True)
class SynthesisReport:
    """Report of a synthesis.

    Attributes:
        folder: Folder of the synthesis.
        journal: The journal with all answers.
        rows: File of the rows.
        kept: Number of rows.
        dropped: Number of written texts that were dropped, and of unused documents, by reason.
        failed: Number of prompts without a usable answer, by reason.
        details: Further counts.
        known: Number of prompts whose answer was already in the journal.
        bought: Number of answers bought by this run.
        account: Cost of the LLM in the journal, over all runs.
        faults: Number of attempts of this run that failed temporarily, by reason.
        stopped: Why the run ended before all requests were sent, in which case the rows are not written;
            empty if it did not.
        notes: Notes for readers.
    """

    folder: Path
    journal: Path
    rows: Path
    kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, int] = field(default_factory=dict)
    known: int = 0
    bought: int = 0
    account: Account = field(default_factory=Account)
    faults: Mapping[str, int] = field(default_factory=dict)
    stopped: str = ""
    notes: Sequence[str] = ()

    @property
    def complete(self) -> bool:
        """Return True if the synthesis did not end early."""
        return not self.stopped

    def to_json(self) -> dict[str, Any]:
        """Return the content of `report.json`."""
        return {
            "rows": str(self.rows),
            "complete": self.complete,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "failed": dict(self.failed),
            **self.details,
            "known": self.known,
            "bought": self.bought,
            "paid": asdict(self.account),
            "faults": dict(self.faults),
            **({"stopped": self.stopped} if self.stopped else {}),
            "notes": list(self.notes),
        }


@dataclass
class SynthesisRows:
    """Rows gathered by a synthesis.

    Attributes:
        kept: Rows of the training set.
        dropped: Rows of dropped texts, with a `reason`.
        failed: Rows of prompts without a usable answer, with a `reason`.
        uncounted: Number of dropped items that have no row, by reason.
        details: Further counts.
    """

    kept: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    uncounted: Counter[str] = field(default_factory=Counter)
    details: dict[str, int] = field(default_factory=dict)

    def drop(self, row: Mapping[str, Any], reason: str, detail: str = "") -> None:
        """Add a dropped text."""
        self.dropped.append({**row, "reason": reason, **({"detail": detail} if detail else {})})

    def keep_away(self, held_out: HeldOut) -> None:
        """Drop the rows whose query is a near-duplicate of one that models will be tested on."""
        leaks = held_out.leaks([str(row["query"]) for row in self.kept])
        for place, name in leaks.items():
            self.drop(self.kept[place], TEST_QUERY, name)
        self.kept = [row for place, row in enumerate(self.kept) if place not in leaks]

    def reasons(self) -> dict[str, int]:
        """Return the number of dropped items by reason."""
        counts = Counter(row["reason"] for row in self.dropped) + self.uncounted
        return dict(sorted(counts.items()))


def written(
    folder: Path,
    name: str,
    identity: Mapping[str, Any],
    rows: SynthesisRows,
    *,
    read: int,
    before: Sequence[Mapping[str, Any]] = (),
    files: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the files of a finished synthesis; the manifest comes last.

    Args:
        folder: The folder.
        name: File name of the rows.
        identity: Identity of the folder, see `claim`.
        rows: Collected rows.
        read: Number of texts or prompts that the synthesis started from.
        before: The earlier steps, see `lineage`.
        files: Rows of further files, by file name.
        more: Further entries of the manifest.
    """
    manifest = folder / MANIFEST
    # After a retry of failed prompts an older manifest would not match the files while they are replaced.
    manifest.unlink(missing_ok=True)
    contents = {name: rows.kept, DROPPED_FILE: rows.dropped, FAILED_FILE: rows.failed, **(files or {})}
    for file, content in contents.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
        write_text(folder / file, lines)
    summary = {
        **identity,
        **(more or {}),
        "read": read,
        "kept": len(rows.kept),
        "dropped": rows.reasons(),
        "failed": dict(sorted(Counter(row["reason"] for row in rows.failed).items())),
        "details": rows.details,
        "before": list(before),
        "files": {file: sha256_of(folder / file) for file in contents},
    }
    write_json(manifest, summary)


def reported(
    folder: Path, journal: Path, name: str, rows: SynthesisRows, asking: Asking, notes: Sequence[str]
) -> SynthesisReport:
    """Return the report of a run and write it to `report.json`; its counts of answers differ between runs."""
    report = SynthesisReport(
        folder,
        journal,
        folder / name,
        kept=len(rows.kept),
        dropped=rows.reasons(),
        failed=dict(sorted(asking.failed.items())),
        details=rows.details,
        known=asking.known,
        bought=asking.bought,
        account=asking.account,
        faults=dict(sorted(asking.faults.items())),
        stopped=asking.stopped,
        notes=tuple(notes),
    )
    write_json(folder / "report.json", report.to_json())
    return report


def finished(folder: Path, journal: Path, name: str) -> SynthesisReport:
    """Return the report of a folder finished by an earlier run, from its manifest."""
    manifest = read_json(folder / MANIFEST)
    return SynthesisReport(
        folder,
        journal,
        folder / name,
        kept=manifest["kept"],
        dropped=manifest["dropped"],
        failed=manifest["failed"],
        details=manifest["details"],
    )
