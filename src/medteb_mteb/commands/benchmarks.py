"""`medteb benchmarks`: all medical benchmarks, and the requirements for running them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from mar_st.options import Settings

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask
    from mteb.benchmarks.benchmark import Benchmark

__all__ = ["BenchmarksSettings", "as_text", "benchmarks"]

#: Medical benchmarks of mteb itself.
MTEB_BENCHMARKS = ("MTEB(Medical, v1)", "R2MED")


def _describe(benchmark: Benchmark) -> dict[str, Any]:
    from medteb_mteb.tasks.benchmarks import needs_of, size_of  # lazy: mteb

    tasks: list[AbsTask] = list(benchmark.tasks)
    ranking = [task for task in tasks if task.metadata.type in ("Retrieval", "Reranking")]
    sizes = [size for size in map(size_of, ranking) if size is not None]
    return {
        "name": benchmark.name,
        "tasks": len(tasks),
        "queries": sum(size[0] for size in sizes) if sizes else None,
        "documents": sum(size[1] for size in sizes) if sizes else None,
        "languages": sorted({code.partition("-")[0] for task in tasks for code in task.metadata.languages}),
        "needs": dict(sorted(Counter(map(needs_of, tasks)).items())),
        "paper": benchmark.reference or "",
    }


class BenchmarksSettings(Settings):
    """No options."""


def benchmarks(settings: BenchmarksSettings) -> list[dict[str, Any]]:
    """List benchmarks: size, languages, needs, paper.

    A task needs nothing if its data come with the package or are in $MEDTEB_DATA. Sizes are those of the
    retrieval and reranking tasks of known size. `medteb run -b NAME` runs what can be run and lists the rest.
    """
    import mteb  # lazy: mteb

    from medteb_mteb.tasks.benchmarks import BENCHMARKS  # lazy: mteb

    del settings
    theirs = [mteb.get_benchmark(name) for name in MTEB_BENCHMARKS]
    return [_describe(benchmark) for benchmark in (*BENCHMARKS.values(), *theirs)]


def as_text(rows: list[dict[str, Any]]) -> str:
    """Return the list as text."""
    lines = []
    for row in rows:
        size = "unknown until the data are there"
        if row["queries"] is not None:
            size = f"{row['queries']:,} queries, {row['documents']:,} documents"
        needs = ", ".join(f"{what} ({count})" for what, count in row["needs"].items())
        shown = {"tasks": row["tasks"], "size": size, "languages": ", ".join(row["languages"])}
        shown |= {"needs": needs, "paper": row["paper"] or "none named"}
        lines += [row["name"], *(f"  {label:10} {value}" for label, value in shown.items())]
    return "\n".join(lines)
