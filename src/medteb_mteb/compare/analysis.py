"""Compares systems on each task and on the average, on slices of the queries, and bounds their scores."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mar_st.data.trec import read_run
from mar_st.errors import MarError
from mar_st.text.texts import normalise
from medteb_mteb.folders.content import table_rows
from medteb_mteb.folders.layout import Problems
from medteb_mteb.measures import CUTOFF, means, ranked, score_queries, without_disputed
from medteb_mteb.report.intervals import MeanSample, estimated
from medteb_mteb.report.paired import Compared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from medteb_mteb.compare.read import Results
    from medteb_mteb.folders.content import RetrievalData, TaskFolder
    from medteb_mteb.report.intervals import IntervalEstimate
    from medteb_mteb.report.table import ScoreEntry

#: Name of the average of all tasks, beside those of tasks.
AVERAGE = "average"
#: Lengths of queries in characters, by the largest length of each slice.
LENGTHS = (10, 20, 40, 80)
#: Numbers of relevant documents, by the largest number of each slice.
RELEVANT = (1, 3, 9)
#: A column with more values than this makes no slices, and a slice has at least so many queries.
MOST_VALUES, FEWEST_QUERIES = 12, 5
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2})?([T ].*)?")


@dataclass(frozen=True)
class Slice:
    """Some queries of a task, and the systems' scores on them.

    Attributes:
        task: The task.
        by: What the queries have in common: `length`, `relevant documents` or a column of the queries.
        value: Its value, such as `11-20`, or a month.
        queries: Number of queries.
        scores: Mean score and its interval by system.
    """

    task: str
    by: str
    value: str
    queries: int
    scores: dict[str, IntervalEstimate]


class Bounds(NamedTuple):
    """How far unjudged documents could move an nDCG@10.

    Attributes:
        judged: Share of the first ten documents that were judged.
        low: nDCG@10 if no unjudged document is relevant: the score itself.
        high: nDCG@10 if all unjudged documents among the first ten are relevant.
    """

    judged: float | None
    low: float
    high: float


class Analysis:
    """What the results of several systems show.

    Args:
        results: The results.
        baseline: Compare all systems with this one; default: every two systems.

    Raises:
        MarError: There is no such baseline.
    """

    def __init__(self, results: Results, baseline: str | None = None) -> None:
        table = results.table
        if baseline is not None and baseline not in table.models:
            raise MarError(f"There is no system {baseline!r}; the results are of {', '.join(table.models)}.")
        self.results, self.table, self.baseline = results, table, baseline
        self._entries = {(entry.model, entry.task): entry for entry in table.entries}
        self._first: dict[tuple[str, str], dict[str, dict[str, float]]] = {}

    def entry(self, system: str, task: str) -> ScoreEntry | None:
        """Return the score of a system on a task."""
        return self._entries.get((system, task))

    def folder(self, task: str) -> TaskFolder | None:
        """Return the data of a task, if they are those that were scored."""
        folder = self.results.folders.get(task)
        scored = {entry.dataset_revision for entry in self.table.entries if entry.task == task}
        return None if folder is None or scored != {folder.revision} else folder

    def data(self, task: str) -> RetrievalData | None:
        """Return the texts and judgements of a ranking task, if they are those that were scored."""
        folder = self.folder(task)
        return None if folder is None else folder.retrieval

    def first(self, entry: ScoreEntry) -> dict[str, dict[str, float]]:
        """Return the first ten documents of each query with their scores, the best first.

        Disputed documents are left out before. Empty without a ranking. A ranking is read once.
        """
        key = (entry.model, entry.task)
        if key not in self._first:
            folder = self.folder(entry.task)
            run = {} if entry.ranking is None else read_run(entry.ranking)
            run = run if folder is None else without_disputed(run, folder.judged)
            self._first[key] = {
                query: {document: scores[document] for document in ranked(scores)[:CUTOFF]}
                for query, scores in run.items()
            }
        return self._first[key]

    @cached_property
    def compared(self) -> list[tuple[str, Compared]]:
        """Compare the systems on each task, and on the average of the tasks if all have it.

        A task has several comparisons if systems were measured on several versions of its data.
        """
        found = [(task, one) for task in self.table.tasks for one in self.table.compared(task, self.baseline)]
        average = self._average()
        return found if average is None else [*found, (AVERAGE, average)]

    def _average(self) -> Compared | None:
        """Compare the systems that were measured on the same items of all tasks."""
        tasks = self.table.tasks
        alike: dict[Any, dict[str, list[ScoreEntry]]] = defaultdict(dict)
        for model in self.table.models:
            entries = [entry for task in tasks if (entry := self.entry(model, task)) is not None]
            if len(tasks) > 1 and len(entries) == len(tasks) and all(entry.sample for entry in entries):
                alike[tuple(entry.alike for entry in entries)][model] = entries
        systems = max(alike.values(), key=len, default={})
        if len(systems) < 2:
            return None
        samples = {
            name: [entry.sample for entry in entries if entry.sample is not None]
            for name, entries in systems.items()
        }
        return Compared.of(samples, self._questions(next(iter(systems.values()))), self.baseline)

    def _questions(self, entries: Iterable[ScoreEntry]) -> list[Any]:
        """Return the number of each item's question: items of several tasks with the same text share one."""
        numbers: dict[Any, int] = {}
        groups = []
        for entry in entries:
            data = self.data(entry.task)
            texts = {} if data is None else {row["id"]: normalise(row["text"]) for row in data.queries}
            items: Iterable[Any] = entry.ids or range(len(entry.sample or ()))
            keys = [texts.get(item) or (entry.task, item) for item in items]
            groups.append(np.array([numbers.setdefault(key, len(numbers)) for key in keys]))
        return groups

    @cached_property
    def slices(self) -> list[Slice]:
        """Score the systems on parts of the queries of each task whose data are at hand."""
        slices = []
        for task in self.table.tasks:
            folder = self.folder(task)
            if folder is not None and folder.retrieval is not None:
                for by, values in _properties(folder.retrieval, folder).items():
                    slices += self._slices_by(task, by, values)
        return slices

    def _slices_by(self, task: str, by: str, values: Mapping[str, str]) -> list[Slice]:
        members: dict[str, set[str]] = defaultdict(set)
        for query, value in values.items():
            members[value].add(query)
        slices = []
        for value, queries in members.items():
            scores = {}
            for model in self.table.models:
                entry = self.entry(model, task)
                if entry is None or not isinstance(entry.sample, MeanSample):
                    continue
                chosen = [place for place, query in enumerate(entry.ids) if query in queries]
                if len(chosen) >= FEWEST_QUERIES:
                    scores[model] = estimated(MeanSample(entry.sample.values[chosen]))
            if scores:
                slices.append(Slice(task, by, value, len(queries), scores))
        return slices

    @cached_property
    def bounds(self) -> dict[tuple[str, str], Bounds]:
        """Return how far unjudged documents could move the scores, by system and task.

        Only for nDCG@10 on tasks that list judged negatives, and systems whose rankings were kept (`--trec`).
        """
        bounds = {}
        for entry in self.table.entries:
            data = self.data(entry.task)
            if data is None or not data.judged.known or entry.ranking is None or entry.metric != "ndcg_at_10":
                continue
            run = self.first(entry)
            filled = {
                query: row | {
                    document: 1
                    for document in run.get(query, {})
                    if document not in row
                    and document not in data.judged.negatives.get(query, ())
                }
                for query, row in data.qrels.items()
            }  # fmt: skip
            low = means(score_queries(data.qrels, data.judged, run).values())
            high = means(score_queries(filled, data.judged, run).values())
            bounds[entry.model, entry.task] = Bounds(low.judged, low.ndcg, high.ndcg)
        return bounds


def _properties(data: RetrievalData, folder: TaskFolder) -> dict[str, dict[str, str]]:
    """Return values of queries by property, `{property: {query: value}}`, in the order of the values."""
    lengths = {row["id"]: len(row["text"]) for row in data.queries}
    positives = {query: sum(grade > 0 for grade in row.values()) for query, row in data.qrels.items()}
    properties = {
        "length": _binned(lengths, LENGTHS),
        "relevant documents": _binned(positives, RELEVANT),
        **_columns(folder),
    }
    return {
        name: dict(sorted(values.items(), key=lambda item: _order(item[1])))
        for name, values in properties.items()
        if 1 < len(set(values.values())) <= MOST_VALUES
    }


def _binned(numbers: Mapping[str, int], ends: Sequence[int]) -> dict[str, str]:
    names = []
    for low, high in zip((0, *ends), (*ends, 0), strict=True):
        names.append(f"over {low}" if not high else str(high) if low + 1 == high else f"{low + 1}-{high}")
    return {key: names[int(np.searchsorted(ends, number))] for key, number in numbers.items()}


def _order(value: str) -> tuple[bool, int, str]:
    number = re.match(r"\d+", value)
    return value.startswith("over "), int(number.group()) if number else 0, value


def _columns(folder: TaskFolder) -> dict[str, dict[str, str]]:
    """Return the values of the queries' other columns; dates count by month."""
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    scored = set() if folder.retrieval is None else folder.retrieval.qrels.keys()
    for file in folder.layout.tables["queries"]:
        for row in table_rows([file], Problems(folder.layout.path)):
            query = str(row.values.get("_id", row.values.get("id")))
            for name, value in row.values.items() if query in scored else ():
                if name not in ("_id", "id", "text", "title") and value not in (None, ""):
                    columns[name][query] = str(value)
    for values in columns.values():
        if all(map(_DATE.fullmatch, values.values())):
            values.update({query: date[:7] for query, date in values.items()})
    return columns
