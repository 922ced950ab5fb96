"""Writing a new version of an edition: the earlier one with more labels, and its place in the history."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.edition.describe import describe
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import (
    CROISSANT,
    MANIFEST_NAME,
    PROVENANCE,
    STATISTICS,
    leads_outside,
    write_manifest,
)
from medteb_mteb.editions.provenance import mappings
from medteb_mteb.folders.judged import DISPUTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from medteb_mteb.curation.labels.grades import Label
    from medteb_mteb.editions import Edition
    from medteb_mteb.folders.retrieval import RetrievalData

__all__ = ["Change", "next_version", "write_version"]

QRELS, LABELS = "qrels/test.tsv", "labels.tsv"
_HEADER = "query-id\tcorpus-id\tscore"
_SEMANTIC = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")


@dataclass(frozen=True)
class Change:
    """Change from one version of an edition to the next.

    Attributes:
        version: Version of the edition.
        systems: The systems whose documents were judged.
        depth: Number of top documents of each system.
        pairs: The judged pairs.
        labels: Labels of these pairs; labels without a relevance are disputed.
    """

    version: str
    systems: tuple[str, ...]
    depth: int
    pairs: int
    labels: tuple[Label, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of pairs: `positive`, `negative`, `disputed`."""
        positive = sum(bool(label.relevance) for label in self.labels)
        disputed = sum(label.relevance is None for label in self.labels)
        return {
            "positive": positive,
            "negative": len(self.labels) - positive - disputed,
            "disputed": disputed,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the change as an entry of the history."""
        return {
            "version": self.version,
            "systems": list(self.systems),
            "depth": self.depth,
            "pairs judged": self.pairs,
            **self.counts,
        }


def next_version(edition: Edition, wanted: str | None) -> str:
    """Return the version of the new edition: the given one, or the next minor version that is new.

    Raises:
        BuildError: The version exists, or none is given and the edition's version is not three numbers.
    """
    existing = {edition.version, *(str(one.get("version")) for one in mappings(edition.extra, "history"))}
    if wanted is None:
        number = _SEMANTIC.fullmatch(edition.version)
        if number is None:
            raise BuildError(
                f"The edition has the version {edition.version!r}; say which comes next (--version)."
            )
        later = (f"{number[1]}.{minor}.0" for minor in count(int(number[2]) + 1))
        return next(version for version in later if version not in existing)
    if wanted in existing or not wanted.strip():
        raise BuildError(f"There is a version {wanted!r} of this edition already; give another (--version).")
    return wanted


def write_version(
    edition: Edition, data: RetrievalData, change: Change, out: Path, provenance: Mapping[str, Any]
) -> Edition:
    """Write a new version: all files of the edition, with the new labels appended.

    Args:
        edition: The earlier version.
        data: Content of the earlier version.
        change: Additions of the new version.
        out: Folder to write; it must not exist.
        provenance: Provenance of both versions.

    Raises:
        BuildError: The earlier version has its qrels elsewhere, or in another format.
    """
    if QRELS not in edition.files:
        raise BuildError(f"{edition.path} has no {QRELS}; only editions with that file can be extended.")
    shutil.copytree(edition.path, out, ignore=_not_copied(edition.path))
    labelled = [label for label in change.labels if label.relevance is not None]
    _append(out / QRELS, _HEADER, (label for label in labelled if label.relevance))
    _append(out / LABELS, _HEADER, labelled)
    disputed = [label for label in change.labels if label.relevance is None]
    _append(out / DISPUTED, "query-id\tcorpus-id", disputed)
    entry = {"version": edition.version, "digest": edition.digest, "changes": change.to_json()}
    counts = {**edition.counts, "qrels": edition.counts.get("qrels", 0) + change.counts["positive"]}
    extra = {key: value for key, value in edition.extra.items() if key not in ("history", "statistics")}
    statistics = edition.extra.get("statistics")
    newer = write_manifest(
        out,
        task=edition.task,
        name=edition.name,
        version=change.version,
        licence=edition.licence,
        counts=counts,
        **extra,
        **({"statistics": _statistics(statistics, data, change)} if isinstance(statistics, dict) else {}),
        history=[*mappings(edition.extra, "history"), entry],
    )
    card = out / "README.md"
    if card.is_file():
        card.write_bytes(_card(card.read_text(encoding="utf-8"), edition, change).encode())
    describe(newer, provenance)
    return newer


def _not_copied(root: Path) -> Callable[[str, list[str]], set[str]]:
    """Return the `ignore` of `shutil.copytree`: files that are written again, and links that lead outside."""
    rebuilt = shutil.ignore_patterns(MANIFEST_NAME, PROVENANCE, CROISSANT, STATISTICS, ".*", "*.part")

    def skipped(folder: str, names: list[str]) -> set[str]:
        outside = {name for name in names if leads_outside(Path(folder, name), root)}
        return rebuilt(folder, names) | outside

    return skipped


def _append(path: Path, header: str, labels: Iterable[Label]) -> None:
    """Append rows to a file; a missing file is created with a header if there are rows."""
    rows = []
    for label in sorted(labels, key=lambda one: (one.query_id, one.document_id)):
        end = f"\t{label.relevance}" if label.relevance is not None else ""
        rows.append(f"{label.query_id}\t{label.document_id}{end}")
    if not rows:
        return
    before = path.read_text(encoding="utf-8") if path.is_file() else f"{header}\n"
    if before.split("\n", 1)[0].rstrip("\r") != header:
        raise BuildError(f"{path.name} of the edition has other columns than {header.split(chr(9))}.")
    if not before.endswith("\n"):
        before += "\n"
    path.write_bytes((before + "\n".join(rows) + "\n").encode())


def _statistics(before: Mapping[str, Any], data: RetrievalData, change: Change) -> dict[str, Any]:
    """Return the statistics of the earlier version, with those of labels updated."""
    sizes = {query: sum(1 for score in row.values() if score > 0) for query, row in data.qrels.items()}
    for label in change.labels:
        if label.relevance:
            sizes[label.query_id] = sizes.get(label.query_id, 0) + 1
    nonzero = [size for size in sizes.values() if size]
    labelled, disputed = "labelled pairs in the corpus", "disputed pairs in the corpus"
    statistics = {
        **before,
        "positives per query": f"{min(nonzero)} to {max(nonzero)}, mean {sum(nonzero) / len(nonzero):.2f}",
        labelled: before.get(labelled, 0) + len(change.labels) - change.counts["disputed"],
        disputed: before.get(disputed, 0) + change.counts["disputed"],
    }
    return {key: value for key, value in statistics.items() if value != 0}


def _card(text: str, edition: Edition, change: Change) -> str:
    """Return the card with a line for the new version."""
    title = "\n## Versions\n"
    counts = ", ".join(f"{number} {name}" for name, number in change.counts.items())
    line = (
        f"- {change.version}: {edition.version} and {change.pairs} pairs, from the first {change.depth} "
        f"documents of {', '.join(change.systems)}: {counts}. All earlier labels are unchanged.\n"
    )
    return (f"{text.rstrip()}\n" if title in text else f"{text.rstrip()}\n{title}\n") + line
