"""`medteb benchmarks`: all medical benchmarks, and the requirements for running them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mar_st.options import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mteb.abstasks.abstask import AbsTask
    from mteb.benchmarks.benchmark import Benchmark

__all__ = ["BenchmarksSettings", "Listed", "as_text", "benchmarks", "listed"]

#: Medical benchmarks of mteb itself.
MTEB_BENCHMARKS = ("MTEB(Medical, v1)", "R2MED")


@dataclass(frozen=True)
class Listed:
    """A benchmark.

    Attributes:
        name: Name of the benchmark, for `medteb run -b`.
        tasks: Number of tasks.
        queries: Number of queries of its retrieval and reranking tasks of known size; None if there are none.
        documents: Number of documents of the same tasks.
        sized: Number of retrieval and reranking tasks whose size is known.
        sizeable: Number of retrieval and reranking tasks.
        languages: Languages, as ISO 639-3 codes.
        needs: Number of its tasks by requirement: nothing, network, credentials or an LLM.
        paper: Reference of the benchmark's paper; empty if none is named.
    """

    name: str
    tasks: int
    queries: int | None
    documents: int | None
    sized: int
    sizeable: int
    languages: list[str]
    needs: Mapping[str, int]
    paper: str


def listed() -> list[Listed]:
    """Return the benchmarks of this package and the medical ones of mteb."""
    import mteb  # lazy: mteb

    from medteb_mteb.tasks.benchmarks import BENCHMARKS  # lazy: mteb

    theirs = [mteb.get_benchmark(name) for name in MTEB_BENCHMARKS]
    return [_describe(benchmark) for benchmark in (*BENCHMARKS.values(), *theirs)]


def _describe(benchmark: Benchmark) -> Listed:
    from medteb_mteb.tasks.benchmarks import needs_of, size_of  # lazy: mteb

    tasks: list[AbsTask] = list(benchmark.tasks)
    needs: dict[str, int] = {}
    for task in tasks:
        needs[needs_of(task)] = needs.get(needs_of(task), 0) + 1
    sizes = [size_of(task) for task in tasks if task.metadata.type in ("Retrieval", "Reranking")]
    known = [size for size in sizes if size is not None]
    return Listed(
        name=benchmark.name,
        tasks=len(tasks),
        queries=sum(size[0] for size in known) if known else None,
        documents=sum(size[1] for size in known) if known else None,
        sized=len(known),
        sizeable=len(sizes),
        languages=sorted({code.partition("-")[0] for task in tasks for code in task.metadata.languages}),
        needs=dict(sorted(needs.items())),
        paper=benchmark.reference or "",
    )


class BenchmarksSettings(Settings):
    """No options."""


def benchmarks(settings: BenchmarksSettings) -> list[Listed]:
    """List benchmarks: size, languages, needs, paper.

    A task needs nothing if its data come with the package or are in $MEDTEB_DATA. `medteb run -b NAME` runs
    what can be run and lists the rest.
    """
    del settings
    return listed()


def as_text(rows: list[Listed]) -> str:
    """Return the list as text."""
    return "\n".join(
        line for row in rows for line in (row.name, *(f"  {label:10} {text}" for label, text in _lines(row)))
    )


def _lines(row: Listed) -> list[tuple[str, Any]]:
    if row.queries is None or row.documents is None:
        size = "unknown until the data are there"
    else:
        size = f"{row.queries:,} queries, {row.documents:,} documents"
    if 0 < row.sized < row.sizeable:
        size += f" in the {row.sized} of {row.sizeable} retrieval and reranking tasks whose size is known"
    return [
        ("tasks", row.tasks),
        ("size", size),
        ("languages", ", ".join(row.languages)),
        ("needs", ", ".join(f"{what} ({count})" for what, count in row.needs.items())),
        ("paper", row.paper or "none named"),
    ]
