"""The dry run of a build: what its steps would write and ask, and at what cost."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.data.rows import read_rows
from mar_st.files import read_record
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.lineage import STEP_FILE
from medteb_mteb.curation.step import Estimate, fingerprint, paths_of, tokens_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from medteb_mteb.curation.build_file import Planned
    from medteb_mteb.curation.step import Kind


def forecast(steps: list[Planned]) -> list[dict[str, Any]]:
    """Return what the steps would do: `name`, `step`, `finished` and the fields of `Estimate`.

    The output of finished steps is counted. For the others it is an upper bound: no text is dropped, every
    pool is full, texts have the mean length, and no answer is in the journal.
    """
    written: dict[str, Estimate] = {}
    finished: set[str] = set()
    rows = []
    for planned in steps:
        counts = _finished(planned, finished)
        if counts is not None:
            finished.add(planned.name)
            estimate = Estimate(counts["rows"], counts["tokens"], counts["queries"])
        else:
            inputs = _inputs(planned, written)
            estimate = next(iter(inputs.values()))
            if planned.step.estimate is not None:
                estimate = planned.step.estimate(planned.settings, inputs)
        written[planned.name] = estimate
        about = {"name": planned.name, "step": planned.step.name, "finished": counts is not None}
        rows.append({**about, **asdict(estimate)})
    return rows


def _finished(planned: Planned, finished: Container[str]) -> dict[str, Any] | None:
    """Return the counts of a step that a build would keep as it is."""
    inputs = [one for some in planned.sources.values() for one in some if one is not None]
    record = read_record(planned.settings.out / STEP_FILE)
    if record is None or not record["finished"] or not all(one.name in finished for one in inputs):
        return None
    same = record["fingerprint"] == fingerprint(planned.step, planned.settings)
    counts: dict[str, Any] = record["counts"]
    return counts if same else None


def _inputs(planned: Planned, written: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the sizes of a step's inputs by field; several inputs of one field are summed."""
    sizes = {}
    for key, mark in planned.step.inputs.items():
        sources, paths = planned.sources[key], paths_of(planned.settings, key)
        parts = [
            _count(mark.kinds[0], path, getattr(planned.settings, "columns", None))
            if source is None
            else written[source.name]
            for source, path in zip(sources, paths, strict=True)
        ]
        sizes[key] = Estimate(
            sum(part.rows for part in parts),
            sum(part.tokens for part in parts),
            sum(part.queries for part in parts),
        )
    return sizes


def _count(kind: Kind, path: str, columns: dict[str, str] | None) -> Estimate:
    """Count the items of a file or folder that the user gave."""
    if kind == "texts":
        tokens = [tokens_of("\n".join(filter(None, text.fields))) for text in read_texts(path, columns)]
        return Estimate(len(tokens), sum(tokens))
    if kind in ("file", "sheet", "editions", "agreement"):
        return Estimate(0)
    if kind == "cases":
        advice = [len(row.values.get("advice", ())) for row in read_rows(path, table="cases")]
        return Estimate(len(advice), queries=sum(advice))
    rows, queries = 0, set()
    named = Path(path, f"{kind}.jsonl")  # of a step's folder, which holds other files, too
    for row in read_rows(named if named.is_file() else path):
        several = row.values.get("corpus-ids")
        rows += len(several) if isinstance(several, list) else 1
        queries.add(row.values.get("query-id", row.values.get("query")))
    return Estimate(rows, queries=len(queries))
