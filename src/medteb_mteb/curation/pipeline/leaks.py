"""Leakage report: test queries of a build that are in its training data; there must be none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.folder import write_json
from medteb_mteb.curation.texts.split import QUERY_SIMILARITY
from medteb_mteb.curation.training import read_held_out, training_queries

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.opened import Build

__all__ = ["LEAKAGE_FILE", "leak_report"]

LEAKAGE_FILE = "leakage.json"
#: Maximum number of leaks listed per training set.
MAX_EXAMPLES = 10


def leak_report(build: Build) -> dict[str, Any] | None:
    """Compare the training data of all steps with the editions of all steps, and write `leakage.json`.

    A training query counts as a leak if it is a near-duplicate of a test query, or of a sentence of an STS
    test, by the threshold of the step that wrote it.

    Args:
        build: A finished build.

    Returns:
        `tests` (number of texts), `leaks` (their number over all training sets) and for each step that wrote
        training data its `queries`, `leaks` and `examples`; `None` without editions or training data.

    Raises:
        BuildError: The report cannot be written.
    """
    steps = build.pipeline.steps
    editions = [build.folder(step) for step in steps if step.WRITES == "editions"]
    writers = [step for step in steps if step.TRAINS]
    if not editions or not writers:
        return None
    training: dict[str, Any] = {}
    tests = 0
    for step in writers:
        held_out = read_held_out(editions, getattr(step, "threshold", QUERY_SIMILARITY))
        tests = len(held_out.texts)
        queries = training_queries(build.folder(step))
        leaks = held_out.leaks(queries)
        examples = [f"{queries[row]} ~ {name}" for row, name in list(leaks.items())[:MAX_EXAMPLES]]
        training[step.name] = {"queries": len(queries), "leaks": len(leaks), "examples": examples}
    report = {"tests": tests, "leaks": sum(one["leaks"] for one in training.values()), "training": training}
    write_json(build.root / LEAKAGE_FILE, report)
    return report
