"""The files of synonym STS: the edition, the training rows, and the outcome of every query."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.edition.card import named, write_card
from medteb_mteb.curation.edition.describe import describe
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.sts.prompt import POSITIVE, REWRITE_KINDS
from medteb_mteb.curation.sts.sample import draw, score
from medteb_mteb.editions import write_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.sts.select import SwappedQuery
    from medteb_mteb.curation.sts.settings import StsSettings
    from medteb_mteb.curation.sts.split import QuerySplit

__all__ = [
    "MAX_NEGATIVES",
    "OUTPUT_FILES",
    "TASK",
    "Rewritten",
    "write_edition",
    "write_log",
    "write_training",
]

TASK = "MedTEBSTS"
TRIPLES_FILE, PAIRS_FILE = "train/sts.jsonl", "train/sts-pairs.jsonl"
REWRITES_FILE, DROPPED_FILE = "sts/rewrites.jsonl", "sts/dropped.jsonl"
#: All that the step writes into a folder of data.
OUTPUT_FILES = (TASK, TRIPLES_FILE, PAIRS_FILE, REWRITES_FILE, DROPPED_FILE)
#: Negatives of a training row at most, as in the published records.
MAX_NEGATIVES = 7


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A query with its rewrites.

    Attributes:
        candidate: The query with its term and synonym.
        rewrites: Text by kind, as written by the LLM.
        dropped: Reason by kind, for unusable rewrites.
    """

    candidate: SwappedQuery
    rewrites: Mapping[str, str]
    dropped: Mapping[str, str]

    @property
    def id(self) -> str:
        """Return the id of the query."""
        return self.candidate.query.id

    @property
    def good(self) -> dict[str, str]:
        """Return the rewrites that are fine."""
        return {kind: self.rewrites[kind] for kind in REWRITE_KINDS if kind not in self.dropped}


def write_edition(
    out: Path,
    rows: Sequence[Rewritten],
    sides: QuerySplit,
    how: StsSettings,
    statistics: Mapping[str, Any],
    record: Mapping[str, Any],
    **provenance: Any,
) -> dict[str, str]:
    """Write `MedTEBSTS`: each test query with one of its rewrites.

    Args:
        out: Folder of data.
        rows: The rewritten queries.
        sides: The split into test and training.
        how: Settings.
        statistics: Numbers for card and manifest.
        record: How the data was made, for `provenance.json`; its sources are also in card and manifest.
        **provenance: Further fields of the manifest.

    Returns:
        Kind of the rewrite by query id.

    Raises:
        BuildError: All pairs have the same label.
    """
    by_id = {row.id: row for row in rows}
    drawn = {name: draw(name, how.probabilities, how.seed) for name in sides.test}
    kinds = Counter(drawn.values())
    if not 0 < kinds[POSITIVE] < len(drawn):
        raise BuildError(
            f"Of {len(drawn)} test pairs {kinds[POSITIVE]} are positives, so no correlation exists. Give "
            "more queries, raise test, or check the dropped pairs."
        )
    folder = out / TASK
    pairs = (
        {
            "sentence1": by_id[name].candidate.query.full,
            "sentence2": by_id[name].rewrites[kind],
            "score": score(kind),
        }
        for name, kind in drawn.items()
    )
    write_rows(folder / "test.jsonl", pairs)
    counts = {"test": len(drawn)}
    numbers = {**{f"test pairs, {kind}": kinds[kind] for kind in REWRITE_KINDS}, **statistics}
    sources = record.get("sources", [])
    card = write_card(TASK, how.name, how.licence, {**counts, **numbers}, sources)
    (folder / "README.md").write_bytes(card.encode())
    edition = write_manifest(
        folder,
        task=TASK,
        name=how.name,
        version=how.version,
        licence=how.licence,
        counts=counts,
        main_score="cosine_pearson",  # also where the folder is scored as a task of its own
        seed=how.seed,
        statistics=numbers,
        **named(sources),
        **provenance,
    )
    describe(edition, record)
    return drawn


def write_training(out: Path, rows: Iterable[Rewritten]) -> dict[str, int]:
    """Write `train/sts.jsonl`: all good rewrites of each training query, in the form for `mar train`.

    A query without a negative goes to `train/sts-pairs.jsonl`, since a stage with hard negatives refuses rows
    without any; one without a positive is left out.

    Returns:
        Number of rows: `triples`, `without a negative`, `without a positive`.
    """
    files: dict[str, list[dict[str, Any]]] = {TRIPLES_FILE: [], PAIRS_FILE: []}
    without_positive = 0
    for row in rows:
        good = row.good
        positive = good.pop(POSITIVE, None)
        if positive is None:
            without_positive += 1
            continue
        content: dict[str, Any] = {"query": row.candidate.query.full, "positives": [positive]}
        if good:
            files[TRIPLES_FILE].append({**content, "negatives": list(good.values())[:MAX_NEGATIVES]})
        else:
            files[PAIRS_FILE].append(content)
    for name, contents in files.items():
        if contents:
            write_rows(out / name, contents)
    return {
        "triples": len(files[TRIPLES_FILE]),
        "without a negative": len(files[PAIRS_FILE]),
        "without a positive": without_positive,
    }


def write_log(
    out: Path,
    rows: Iterable[Rewritten],
    sides: QuerySplit,
    drawn: Mapping[str, str],
    dropped: Iterable[Mapping[str, Any]],
) -> None:
    """Write `sts/rewrites.jsonl` and `sts/dropped.jsonl`: every query, its rewrites and their outcome."""
    side = {**dict.fromkeys(sides.test, "test"), **dict.fromkeys(sides.train, "train"), **sides.left_out}

    def content(row: Rewritten) -> dict[str, Any]:
        query, entry = row.candidate.query, row.candidate.entry
        record: dict[str, Any] = {"query-id": query.id, "query": query.full}
        record |= {"origin": entry.origin, "replace": entry.replace, **row.rewrites}
        if row.dropped:
            record["dropped"] = dict(row.dropped)
        record["use"] = side.get(row.id, "none")
        if row.id in drawn:
            record["drawn"] = drawn[row.id]
        return record

    write_rows(out / REWRITES_FILE, map(content, rows))
    write_rows(out / DROPPED_FILE, dropped)
