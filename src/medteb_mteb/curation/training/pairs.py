"""Alignment sets: queries and documents that are each paired with themselves (MAR paper, Stage I data).

The files hold single texts. The `align` stage of a recipe pairs each text with itself, and the other texts of
the batch are its negatives, so a text must not occur twice.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from mar_st.errors import MarError
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.step import Counts, Estimate, Input, Step
from medteb_mteb.curation.training.leaks import HeldOut
from medteb_mteb.curation.training.rows import TEST_QUERY, AgainstSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.step import Volume

__all__ = ["PAIRS", "PairsSettings", "alignment_sets"]

#: Names that the `texts` form of a recipe's data looks for in a folder.
FILES = {"query": "queries.jsonl", "document": "corpus.jsonl"}
#: Texts that are compared with a test at once.
TEXTS_PER_PORTION = 20_000


class PairsSettings(AgainstSettings):
    """Options of `medteb pairs`."""

    queries: Annotated[tuple[Path, ...], Input("texts")] = Field((), description="Sources of queries.")
    documents: Annotated[tuple[Path, ...], Input("texts")] = Field((), description="Sources of documents.")
    shares: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(
        default_factory=dict, description="Share of the texts of a source to sample, by its folder's name."
    )
    seed: int = Field(42, description="Seed of the samples.")


class _Place(NamedTuple):
    """Place of a text in the merged file: between 0 and 1; source and row decide equal places."""

    share: float
    source: int
    row: int
    text: Text


def alignment_sets(settings: PairsSettings) -> Counts:
    """Write `queries.jsonl` and `corpus.jsonl`, each text once, the sources evenly mixed.

    Of equal texts (title and text) of a role the first stays, in the order of the sources; a text may be both
    a query and a document. `dropped.jsonl` names the others. Rows have `_id`, `title` if there is one,
    `text`, and `source`, the source's number.
    """
    if not settings.queries and not settings.documents:
        raise MarError("Alignment sets need queries or documents; give --queries or --documents.")
    unknown = sorted(set(settings.shares) - {one.name for one in (*settings.queries, *settings.documents)})
    if unknown:
        raise MarError(f"shares names {unknown[0]!r}, which is not the name of a source.")
    sides = [
        _Side("query", settings.queries, settings, settings.held_out()),
        _Side("document", settings.documents, settings, HeldOut()),
    ]
    write_rows(settings.out / "dropped.jsonl", (row for side in sides for row in side.choose()))
    kept = {}
    for side in sides:
        if side.sources:
            kept[side.role] = write_rows(settings.out / FILES[side.role], side.rows())
    details = {"kept": kept, "sources": [report for side in sides for report in side.reports]}
    return Counts(sum(kept.values()), queries=kept.get("query", 0), details=details)


class _Side:
    """The sources of a role; read once to choose rows, once to write them: no text stays in memory."""

    def __init__(self, role: str, sources: Sequence[Path], settings: PairsSettings, tests: HeldOut) -> None:
        self.role, self.sources, self.settings, self.tests = role, sources, settings, tests
        #: Rows that are kept of each source, ascending, and the numbers of its texts.
        self.kept: list[list[int]] = []
        self.reports: list[dict[str, Any]] = []

    def choose(self) -> Iterator[dict[str, Any]]:
        """Decide about every row, and yield those that are dropped, by source."""
        seen: set[bytes] = set()
        for number, source in enumerate(self.sources):
            rows: list[tuple[int, str]] = []
            counts: Counter[str] = Counter()
            read = 0
            for row, (text, leak) in enumerate(self._leaks(read_texts(source))):
                read += 1
                # The probability that two of 10 million texts have the same 16 bytes is below 1e-24.
                key = hashlib.sha256(text.full.encode("utf-8", "surrogatepass")).digest()[:16]
                reason = "duplicate" if key in seen else TEST_QUERY if leak else ""
                seen.add(key)
                if reason:
                    counts[reason] += 1
                    yield {"_id": text.id, "role": self.role, "source": number, "reason": reason}
                else:
                    rows.append((row, text.id))
            share = self.settings.shares.get(source.name, 1.0)
            if share < 1 and rows:
                draw = random.Random(f"{self.settings.seed}\0{self.role}\0{number}")
                drawn = set(draw.sample(range(len(rows)), max(1, round(share * len(rows)))))
                for place, (_, name) in enumerate(rows):
                    if place not in drawn:
                        counts["not-drawn"] += 1
                        yield {"_id": name, "role": self.role, "source": number, "reason": "not-drawn"}
                rows = [row for place, row in enumerate(rows) if place in drawn]
            self.kept.append([row for row, _ in rows])
            self.reports.append(
                {
                    "role": self.role,
                    "source": source.name,
                    "read": read,
                    "kept": len(rows),
                    "dropped": dict(sorted(counts.items())),
                }
            )

    def _leaks(self, texts: Iterator[Text]) -> Iterator[tuple[Text, bool]]:
        """Yield texts, and whether each is nearly one of a test's queries."""
        while portion := list(islice(texts, TEXTS_PER_PORTION)):
            leaks = self.tests.leaks([text.full for text in portion])
            yield from ((text, place in leaks) for place, text in enumerate(portion))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the role's file: those of all sources, evenly mixed."""
        for place in heapq.merge(*(self._of_source(number) for number in range(len(self.sources)))):
            row = place.text.to_json()
            yield {n: row[n] for n in ("_id", "title", "text") if n in row} | {"source": place.source}

    def _of_source(self, number: int) -> Iterator[_Place]:
        kept = self.kept[number]
        places = {row: (place + 0.5) / len(kept) for place, row in enumerate(kept)}
        for row, text in enumerate(read_texts(self.sources[number])):
            if row in places:
                yield _Place(places[row], number, row, text)


def _estimate(settings: PairsSettings, volumes: Mapping[str, Volume]) -> Estimate:
    """Assume that every text is kept."""
    del settings
    given = list(volumes.values())
    return Estimate(sum(volume.rows for volume in given), sum(volume.tokens for volume in given))


PAIRS = Step("pairs", PairsSettings, alignment_sets, "alignment", estimate=_estimate, trains=True)
