"""Forecast of a pipeline's work and cost, before anything is sent.

The output of finished steps is counted. For the others the forecast assumes the maximum: no text is dropped,
every pool is full, and texts have the mean length. Requests to a judge are exact once its pools exist.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from medteb_mteb.curation.files.folder import read_json
from medteb_mteb.curation.files.read import MANIFEST, read_texts
from medteb_mteb.curation.judge import read_pools
from medteb_mteb.curation.labels.grades import by_pair, read_judgements, read_labels
from medteb_mteb.curation.llm import tokens_of
from medteb_mteb.curation.pipeline.opened import Build, until_step
from medteb_mteb.curation.pipeline.state import State
from medteb_mteb.curation.pipeline.work import Charge, StepView, Volume

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.curation.pipeline.base import Kind, PipelineStep, ResolvedInput

__all__ = ["Forecast", "Planned", "forecast"]


@dataclass(frozen=True)
class Planned:
    """One step.

    Attributes:
        name: Name of the step.
        step: Kind of step.
        kind: Kind of data that it writes.
        fate: `finished`; `to do`; `changed`: made with other settings or inputs, needs `redo`.
        writes: Volume of its output, if known.
        charges: Requests to LLMs.
    """

    name: str
    step: str
    kind: Kind
    fate: Literal["finished", "to do", "changed"]
    writes: Volume | None = None
    charges: tuple[Charge, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """All steps.

    Attributes:
        out: Folder of the build.
        steps: The steps.
    """

    out: Path
    steps: tuple[Planned, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as JSON values, with the sums."""
        charges = [charge for step in self.steps for charge in step.charges]
        return {
            "out": str(self.out),
            "steps": [asdict(step) for step in self.steps],
            "requests": sum(charge.requests for charge in charges),
            "tokens_in": sum(charge.tokens_in for charge in charges),
            "tokens_out": sum(charge.tokens_out for charge in charges),
            "cost": sum(charge.cost for charge in charges),
            "exact": all(charge.exact for charge in charges),
            "checks": sum(charge.checks for charge in charges),
        }


def forecast(file: str | Path, *, until: str | None = None, retry_failed: bool = False) -> Forecast:
    """Forecast what `build` would do; nothing is written or sent.

    Args:
        file: The pipeline.
        until: Name of the last step; default all.
        retry_failed: See `build`.

    Raises:
        BuildError: The file or an input cannot be used.
        FolderError: The input has unusable rows.
    """
    opened = Build.open(file)
    state = State(opened.root)
    counts = _Counts(opened)
    planned = []
    for step in until_step(opened.pipeline, until):
        sources = opened.sources[step.name]
        ready = all(counts.done[one.step] for inputs in sources.values() for one in inputs if one.step)
        record = state.records.get(step.name)
        other = record is not None and ready and opened.fingerprint(step, state) != record.fingerprint
        changed = bool(other and record and opened.has_made(step, record))
        finished = bool(record and record.finished and ready and not other and opened.folder(step).exists())
        paths = {key: [one.path for one in inputs] for key, inputs in sources.items()}
        folder = opened.folder(step)
        view = StepView(opened, folder, paths, partial(counts.inputs, step), ready, retry_failed)
        volume = count(step.WRITES, str(folder / step.output())) if finished else step.forecast_volume(view)
        charges = step.forecast_charges(view) if not finished or (retry_failed and step.ASKS) else ()
        counts.written[step.name], counts.done[step.name] = volume, finished
        kept = finished and not any(charge.requests for charge in charges)
        fate: Literal["finished", "to do", "changed"] = (
            "changed" if changed else "finished" if kept else "to do"
        )
        planned.append(Planned(step.name, step.step, step.WRITES, fate, volume, tuple(charges)))
    return Forecast(opened.root, tuple(planned))


class _Counts:
    """The volumes of all inputs, each counted once, on demand.

    Args:
        build: The pipeline in its folder.
    """

    def __init__(self, build: Build) -> None:
        self.build = build
        #: Volume of each step's output, and whether the step is finished.
        self.written: dict[str, Volume | None] = {}
        self.done: dict[str, bool] = {}
        self._counted: dict[tuple[Any, ...], Volume] = {}

    def inputs(self, step: PipelineStep, key: str) -> list[Volume]:
        """Return the volumes of the inputs of a key."""
        kind = next(mark.kinds[0] for name, mark, _ in step.inputs() if name == key)
        columns = getattr(step, "columns", {})
        return [self._one(kind, source, columns) for source in self.build.sources[step.name][key]]

    def _one(self, kind: Kind, source: ResolvedInput, columns: Mapping[str, str]) -> Volume:
        if source.step and not (source.inside and self.done[source.step]):
            written = self.written[source.step]
            return written if written is not None else self._most(source.step)
        mark = (kind, source.path, *sorted(columns.items()))
        if mark not in self._counted:
            self._counted[mark] = count(kind, source.path, columns)
        return self._counted[mark]

    def _most(self, name: str) -> Volume:
        """Return the upper bound of a step's output: the sum of its inputs."""
        step = next(one for one in self.build.pipeline.steps if one.name == name)
        read = [
            one for key in dict.fromkeys(k for k, _, _ in step.inputs()) for one in self.inputs(step, key)
        ]
        queries = max((one.queries for one in read), default=0)
        return Volume(sum(one.items for one in read), sum(one.tokens for one in read), queries, exact=False)


def count(kind: Kind, path: str, columns: Mapping[str, str] | None = None) -> Volume:
    """Count the items of a file or folder.

    Args:
        kind: Kind of the data.
        path: Path of the data.
        columns: See `read_texts`.
    """
    if kind == "texts":
        items = tokens = 0
        for text in read_texts(path, columns):
            items, tokens = items + 1, tokens + tokens_of(text.full)
        return Volume(items, tokens)
    if kind == "pools":
        pools = read_pools(path, _Anything(), _Anything())
        return Volume(sum(map(len, pools.values())), queries=len(pools))
    if kind == "judgements":
        manifest = Path(path) / MANIFEST
        if manifest.is_file() and "pairs" in (content := read_json(manifest)):
            return Volume(content["pairs"])
        _, grades = by_pair(read_judgements(path))
        return Volume(len(grades), queries=len({query for query, _ in grades}))
    if kind == "labels":
        queries = Counter(label.query_id for label in read_labels(path))
        return Volume(queries.total(), queries=len(queries))
    return Volume(_rows(Path(path))) if kind in ("pairs", "triples", "alignment") else Volume(0)


def _rows(path: Path) -> int:
    """Return the number of rows of a JSONL file, or of a folder's files of training data."""
    names = ("triples.jsonl", "pairs.jsonl", "queries.jsonl", "corpus.jsonl")
    files = [path] if path.is_file() else [path / name for name in names if (path / name).is_file()]
    rows = 0
    for file in files:
        with file.open("rb") as stream:
            rows += sum(1 for _ in stream)
    return rows


class _Anything:
    """A container that holds everything."""

    def __contains__(self, item: object) -> bool:
        return True
