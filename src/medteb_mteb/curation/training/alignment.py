"""Alignment sets: queries and documents that are each paired with themselves (MAR paper, Stage I data).

The files hold single texts. The `align` stage of a recipe pairs each text with itself, and the other texts of
the batch are its negatives, so a text must not occur twice.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import random
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from medteb_mteb.curation.files.folder import alone, claim, lineage, read_json, write_json
from medteb_mteb.curation.files.read import MANIFEST, read_texts, source_digest
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training.leaks import HeldOut
from medteb_mteb.curation.training.rows import TEST_QUERY
from medteb_mteb.curation.training.shards import moved
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medteb_mteb.curation.files.records import Text

__all__ = ["DUPLICATE", "NOT_DRAWN", "AlignmentReport", "Weighted", "alignment_sets", "weighted"]

SCHEMA_VERSION = 1
#: Names that the `texts` form of a recipe's data looks for in a folder.
FILE_OF_ROLE = {"query": "queries.jsonl", "document": "corpus.jsonl"}
DUPLICATE, NOT_DRAWN = "duplicate", "not-drawn"
#: Bytes of a text's key: the probability that two of 10 million texts have the same key is below 1e-24.
KEY_BYTES = 16
#: Texts that are compared with a test at once.
TEXTS_PER_PORTION = 20_000


@dataclass(frozen=True)
class Weighted:
    """A source of texts.

    Attributes:
        source: See `read_texts`.
        weight: Share of its texts to sample with a seed, above 0 and at most 1.
    """

    source: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise BuildError(
                f"{self.source}: a weight is above 0 and up to 1; got {self.weight:g}. To train on texts "
                "more than once, give the data entry of the recipe a weight."
            )


@dataclass(frozen=True)
class AlignmentReport:
    """Report of writing an alignment set.

    Attributes:
        folder: Folder of the output.
        sources: Role of each source, and numbers of texts read, kept, and dropped by reason.
        kept: Number of texts by role, `query` and `document`.
    """

    folder: Path
    sources: tuple[dict[str, Any], ...]
    kept: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content."""
        return {"folder": str(self.folder), "sources": list(self.sources), "kept": self.kept}

    def data(self) -> list[str]:
        """Return the lines of a recipe's `data` that read the sets."""
        names = {"query": "aligned-queries", "document": "aligned-documents"}
        path = json.dumps(str(self.folder), ensure_ascii=False)
        return [
            f"- {{name: {names[role]}, path: {path}, form: texts, role: {role}}}"
            for role, number in self.kept.items()
            if number
        ]


def weighted(text: str) -> Weighted:
    """Return the source of `SOURCE` or `SOURCE=WEIGHT`.

    Raises:
        BuildError: The weight is invalid.
    """
    source, separator, share = text.rpartition("=")
    try:
        return Weighted(source, float(share)) if separator and source else Weighted(text)
    except ValueError as error:
        if isinstance(error, BuildError):
            raise
        return Weighted(text)  # the sign is part of a name


def alignment_sets(
    out: str | Path,
    queries: Sequence[Weighted] = (),
    documents: Sequence[Weighted] = (),
    *,
    columns: Mapping[str, str] | None = None,
    held_out: HeldOut | None = None,
    seed: int = 42,
    show_progress: bool = True,
) -> AlignmentReport:
    """Write `OUT/queries.jsonl` and `OUT/corpus.jsonl`, each text once, the sources evenly mixed.

    Of equal texts (title and text) of a role the first stays, in the order of the sources; a text may be both
    a query and a document. `OUT/dropped.jsonl` names the others. Every part of a file holds all its sources
    in their shares. Rows have `_id`, `title` if there is one, `text`, and `source`, the source's
    number.

    Args:
        out: Folder to write.
        queries: Sources of queries.
        documents: Sources of documents.
        columns: Columns of all sources, see `read_texts`.
        held_out: Queries that models will be tested on; near-duplicates of them are dropped from the queries.
        seed: Seed of the samples of sources with a weight below 1.
        show_progress: Show progress bars.

    Raises:
        BuildError: There are no sources, or the folder belongs to something else, is in use or not writable.
        FolderError: Rows are unusable.
    """
    by_role = {"query": list(queries), "document": list(documents)}
    if not queries and not documents:
        raise BuildError("Alignment sets need queries or documents.")
    folder = Path(out)
    tests = held_out or HeldOut()
    identity = {
        "schema_version": SCHEMA_VERSION,
        "step": "pairs",
        "settings": {
            "seed": seed,
            "weights": {r: [s.weight for s in sources] for r, sources in by_role.items()},
        },
        "input": {
            role: [source_digest(s.source, columns) for s in sources] for role, sources in by_role.items()
        },
        **({"against": tests.digest()} if tests.texts else {}),
    }
    with alone(folder):
        claim(folder, identity)
        if (folder / MANIFEST).is_file():
            return _report(folder, read_json(folder / MANIFEST))
        kept_from = {"query": tests, "document": HeldOut()}
        sides = [
            _Side(role, sources, columns, seed, kept_from[role])
            for role, sources in by_role.items()
            if sources
        ]
        files = {}
        with moved(folder / "dropped.jsonl") as part, part.open("w", encoding="utf-8") as dropped:
            for side in sides:
                for row in side.choose(show_progress):
                    dropped.write(json.dumps(row, ensure_ascii=False) + "\n")
        for side in sides:
            path = folder / FILE_OF_ROLE[side.role]
            with moved(path) as part, part.open("w", encoding="utf-8") as stream:
                for row in side.rows(show_progress):
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            files[path.name] = sha256_of(path)
        content = {
            **identity,
            "sources": [report for side in sides for report in side.reports()],
            "kept": {side.role: sum(map(len, side.kept)) for side in sides},
            "before": {role: [lineage(s.source) for s in sources] for role, sources in by_role.items()},
            "files": {**files, "dropped.jsonl": sha256_of(folder / "dropped.jsonl")},
        }
        write_json(folder / MANIFEST, content)
    return _report(folder, content)


class _Side:
    """The sources of a role; read once to choose rows, once to write them, so that no text stays in memory.

    Args:
        role: `query` or `document`.
        sources: The sources.
        columns: See `read_texts`.
        seed: Seed of the samples.
        tests: Queries that must not be in the training data.
    """

    def __init__(
        self,
        role: str,
        sources: Sequence[Weighted],
        columns: Mapping[str, str] | None,
        seed: int,
        tests: HeldOut,
    ) -> None:
        self.role, self.sources, self.columns, self.seed, self.tests = role, sources, columns, seed, tests
        #: Rows that are kept of each source, ascending.
        self.kept: list[list[int]] = []
        self.read: list[int] = []
        self.dropped: list[Counter[str]] = []

    def choose(self, show_progress: bool) -> Iterator[dict[str, Any]]:
        """Decide about every row, and yield those that are dropped, by source."""
        seen: set[bytes] = set()
        with tqdm(desc=f"{self.role}: equal texts", unit="texts", disable=not show_progress) as bar:
            for number, source in enumerate(self.sources):
                rows: list[int] = []
                names: list[str] = []
                counts: Counter[str] = Counter()
                self.read.append(0)
                for row, (text, leak) in enumerate(self._leaks(read_texts(source.source, self.columns))):
                    key = hashlib.sha256(text.full.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]
                    self.read[number] += 1
                    bar.update()
                    if key in seen:
                        counts[DUPLICATE] += 1
                        yield self._dropped(text.id, number, DUPLICATE)
                        continue
                    seen.add(key)
                    if leak:
                        counts[TEST_QUERY] += 1
                        yield self._dropped(text.id, number, TEST_QUERY)
                        continue
                    rows.append(row)
                    if source.weight < 1:
                        names.append(text.id)
                if source.weight < 1:
                    draw = random.Random(f"{self.seed}\0{self.role}\0{number}")
                    size = max(1, round(source.weight * len(rows))) if rows else 0
                    drawn = set(draw.sample(range(len(rows)), size))
                    for place, name in enumerate(names):
                        if place not in drawn:
                            counts[NOT_DRAWN] += 1
                            yield self._dropped(name, number, NOT_DRAWN)
                    rows = [row for place, row in enumerate(rows) if place in drawn]
                self.kept.append(rows)
                self.dropped.append(counts)

    def _leaks(self, texts: Iterator[Text]) -> Iterator[tuple[Text, bool]]:
        """Yield texts, and whether each is nearly one of a test's queries."""
        while portion := list(islice(texts, TEXTS_PER_PORTION)):
            leaks = self.tests.leaks([text.full for text in portion])
            yield from ((text, place in leaks) for place, text in enumerate(portion))

    def rows(self, show_progress: bool) -> Iterator[dict[str, Any]]:
        """Yield the rows of the role's file: those of all sources, evenly mixed."""
        total = sum(map(len, self.kept))
        merged = heapq.merge(*(self._of_source(number) for number in range(len(self.sources))))
        with tqdm(total=total, desc=f"{self.role}: write", unit="texts", disable=not show_progress) as bar:
            for _, number, _, text in merged:
                row = text.to_json()
                yield {n: row[n] for n in ("_id", "title", "text") if n in row} | {"source": number}
                bar.update()

    def reports(self) -> list[dict[str, Any]]:
        """Return the counts of each source."""
        per_source = zip(self.sources, self.read, self.kept, self.dropped, strict=True)
        return [
            {
                "role": self.role,
                "source": Path(source.source).name,
                "weight": source.weight,
                "read": read,
                "kept": len(kept),
                "dropped": dict(sorted(dropped.items())),
            }
            for source, read, kept, dropped in per_source
        ]

    def _of_source(self, number: int) -> Iterator[tuple[float, int, int, Text]]:
        """Kept texts of a source, each with its place between 0 and 1; source and row decide equal places."""
        kept = self.kept[number]
        wanted = iter(kept)
        following = next(wanted, None)
        place = 0
        for row, text in enumerate(read_texts(self.sources[number].source, self.columns)):
            if row == following:
                yield (place + 0.5) / len(kept), number, row, text
                place += 1
                following = next(wanted, None)

    def _dropped(self, name: str, number: int, reason: str) -> dict[str, Any]:
        return {"_id": name, "role": self.role, "source": number, "reason": reason}


def _report(folder: Path, content: Mapping[str, Any]) -> AlignmentReport:
    return AlignmentReport(folder, tuple(content["sources"]), dict(content["kept"]))
