"""Files of training sets: rows collected by file, and the settings that all training steps share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.step import Input, StepSettings
from medteb_mteb.curation.training.leaks import HeldOut, read_held_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Why a row is dropped: its query is a near-duplicate of one that models are tested on.
TEST_QUERY = "test-query"


class AgainstSettings(StepSettings):
    """Options of a step that writes training data."""

    against: Annotated[tuple[Path, ...], Input("editions", "texts", earlier="tests")] = Field(
        (), description="Editions or queries that models will be tested on; near-duplicates are dropped."
    )

    def held_out(self) -> HeldOut:
        """Return the queries of the tests."""
        return read_held_out(self.against)


class Rows:
    """Rows of the files of a training set, by file, and further counts."""

    def __init__(self) -> None:
        self.files: dict[str, list[dict[str, Any]]] = {}
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Add a row to `NAME.jsonl`."""
        self.files.setdefault(name, []).append(row)

    def add_example(
        self, row: Mapping[str, Any], negatives: Sequence[str], files: tuple[str, str] = ("triples", "pairs")
    ) -> None:
        """Add a row of query and positives to the first of two files, or without negatives to the second.

        A stage with hard negatives refuses rows without any.
        """
        more = {"negatives": list(negatives)} if negatives else {}
        self.add(files[not negatives], {**row, **more})

    def drop(self, row: Mapping[str, Any], reason: str, detail: str = "") -> None:
        """Add a row to `dropped.jsonl`."""
        self.dropped[reason] += 1
        self.add("dropped", {**row, "reason": reason, **({"detail": detail} if detail else {})})

    def drop_leaks(self, name: str, tests: HeldOut) -> None:
        """Drop the rows of a file whose query is a near-duplicate of a test's."""
        rows = self.files.pop(name, [])
        leaks = tests.leaks([row["query"] for row in rows])
        for place, row in enumerate(rows):
            if place in leaks:
                self.drop(row, TEST_QUERY, leaks[place])
            else:
                self.add(name, row)

    def number(self, *names: str) -> int:
        """Return the number of rows of some files."""
        return sum(len(self.files.get(name, ())) for name in names)

    def write(self, folder: Path, *names: str) -> None:
        """Write the files, those without rows only if they are named."""
        for name in dict.fromkeys((*names, *self.files)):
            write_rows(folder / f"{name}.jsonl", self.files.get(name, ()))

    def details(self) -> dict[str, Any]:
        """Return the counts, and the number of dropped rows by reason."""
        return {**dict(sorted(self.counts.items())), "dropped": dict(sorted(self.dropped.items()))}
