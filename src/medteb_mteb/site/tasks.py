"""What the pages say about a task and its queries; texts are shown only if the licence allows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.compare.analysis import Analysis, Slice
    from medteb_mteb.folders.content import RetrievalData, TaskFolder
    from medteb_mteb.report.table import ScoreEntry

#: Licences that let anyone pass the texts on, as the Hub writes them.
_OPEN = re.compile(
    r"(cc0|pddl|odc-by|odbl|mit|bsd|apache|cc-by|cc-by-sa|mulanpsl|unlicense)(-\d[\d.]*|-\d-clause|-clause.*)?"
)
#: Number of examples on the page of a task, and of queries of a task that have a page of their own besides
#: those that pages of pairs name.
EXAMPLES, MOST_QUERIES = 3, 1000
#: Properties of queries that say nothing about their content.
_BARE = ("length", "relevant documents")


def is_open(licence: str | None) -> bool:
    """Return True if a licence allows everyone to show the texts."""
    return _OPEN.fullmatch((licence or "").strip().lower()) is not None


class Document(NamedTuple):
    """A document of a page.

    Attributes:
        id: Its id.
        mark: Key of its judgement: `relevant`, `negative`, `unjudged` or `not-known`.
        title: Its title; empty if it has none, or may not be shown.
        text: Its text; likewise.
    """

    id: str
    mark: str
    title: str
    text: str


class Ranking(NamedTuple):
    """The first documents of a system for a query, with its score or None."""

    system: str
    score: float | None
    documents: list[Document]


@dataclass(frozen=True)
class TaskView:
    """A task.

    Attributes:
        name: Its name.
        analysis: The analysis of the results.
        texts: Show texts of any licence.
    """

    name: str
    analysis: Analysis
    texts: bool

    @cached_property
    def entries(self) -> list[ScoreEntry]:
        """Return the scores of the task, in the order of the systems."""
        found = (self.analysis.entry(system, self.name) for system in self.analysis.table.models)
        return [entry for entry in found if entry is not None]

    @cached_property
    def folder(self) -> TaskFolder | None:
        """Return the data, if they are those that were scored."""
        return self.analysis.folder(self.name)

    @property
    def data(self) -> RetrievalData | None:
        """Return corpus, queries and judgements of a ranking task."""
        return None if self.folder is None else self.folder.retrieval

    @cached_property
    def metadata(self) -> Any:
        """Return mteb's metadata of the task, or None if mteb does not know it."""
        import mteb  # lazy: mteb

        try:
            return mteb.get_task(self.name).metadata
        except KeyError:
            return None

    @property
    def licence(self) -> str | None:
        """Return the licence of the data."""
        if self.folder is not None:
            return self.folder.layout.licence
        return self.metadata.license if self.metadata else None

    @property
    def shown(self) -> bool:
        """Return True if the texts of the data may be shown."""
        return self.folder is not None and (self.texts or is_open(self.licence))

    @property
    def private(self) -> bool:
        """Return True if texts are shown although their licence is not open."""
        return self.shown and not is_open(self.licence)

    @property
    def description(self) -> str:
        """Return a description of the task."""
        own = self.folder.layout.settings.description if self.folder is not None else None
        return own or (self.metadata.description if self.metadata else "")

    @property
    def type(self) -> str:
        """Return the type of the task, as named by mteb."""
        return self.folder.type if self.folder is not None else self.metadata.type if self.metadata else ""

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of the task's data by key of their name."""
        if self.data is not None:
            positives = sum(grade > 0 for row in self.data.qrels.values() for grade in row.values())
            return {
                "queries": len(self.data.queries),
                "documents": len(self.data.corpus),
                "positives": positives,
                "negatives": self.data.judged.pairs,
            }
        return {"items": max((len(entry.sample or ()) for entry in self.entries), default=0)}

    @property
    def judged(self) -> bool:
        """Return True if the share of judged documents is known."""
        return any((entry.holes or {}).get("judged_at_10") is not None for entry in self.entries)

    @property
    def examples(self) -> list[dict[str, Any]]:
        """Return a few queries with a relevant document each, or rows of other tasks, if shown."""
        if not self.shown or self.folder is None:
            return []
        if self.data is None:
            return list(islice(self.folder.records[self.folder.layout.split], EXAMPLES))
        examples = []
        for query in self.data.queries[:EXAMPLES]:
            best = max(self.data.qrels[query["id"]].items(), key=lambda item: item[1])[0]
            document = self._corpus[best]
            examples.append({"query": query["text"], "answer": _joined(document["title"], document["text"])})
        return examples

    @property
    def slices(self) -> dict[str, list[Slice]]:
        """Return scores on parts of the queries by property; columns of the data count as text."""
        slices: dict[str, list[Slice]] = {}
        for one in self.analysis.slices:
            if one.task == self.name and (self.shown or one.by in _BARE):
                slices.setdefault(one.by, []).append(one)
        return slices

    @cached_property
    def queries(self) -> list[str]:
        """Return the ids of the queries whose rankings are known, in the order of the data."""
        ranked = [query for entry in self.entries for query in self.analysis.first(entry)]
        order = [query["id"] for query in self.data.queries] if self.data is not None else sorted(set(ranked))
        known = set(ranked)
        return [query for query in order if query in known]

    def text(self, query: str) -> str:
        """Return the text of a query; empty if it may not be shown."""
        return self._texts.get(query, "") if self.shown else ""

    def scores(self, query: str) -> list[float]:
        """Return the scores of the systems on a query, as far as they are known."""
        scores = (self._score(entry, query) for entry in self.entries)
        return [score for score in scores if score is not None]

    def rankings(self, query: str) -> list[Ranking]:
        """Return the first ten documents of each system whose ranking is known."""
        return [
            Ranking(
                entry.model,
                self._score(entry, query),
                [self.document(query, one) for one in self.analysis.first(entry).get(query, ())],
            )
            for entry in self.entries
            if self.analysis.first(entry)
        ]

    def documents(self, query: str, rankings: Sequence[Ranking]) -> list[Document]:
        """Return the documents of some rankings, and the relevant ones that are in none of them."""
        documents = {one.id: one for ranking in rankings for one in ranking.documents}
        qrels = self.data.qrels.get(query, {}) if self.data is not None else {}
        for name, grade in qrels.items():
            if grade > 0 and name not in documents:
                documents[name] = self.document(query, name)
        return sorted(documents.values(), key=lambda one: one.mark != "relevant")

    def document(self, query: str, name: str) -> Document:
        """Return a document with its judgement for a query."""
        grades = self.data.qrels.get(query, {}) if self.data is not None else {}
        negatives = self.data.judged.negatives.get(query, ()) if self.data is not None else ()
        mark = (
            "not-known" if self.data is None
            else "relevant" if grades.get(name, 0) > 0
            else "negative" if name in negatives
            else "unjudged"
        )  # fmt: skip
        row = self._corpus.get(name, {}) if self.shown else {}
        return Document(name, mark, row.get("title", ""), row.get("text", ""))

    @cached_property
    def _corpus(self) -> dict[str, dict[str, str]]:
        return {row["id"]: row for row in self.data.corpus} if self.data is not None else {}

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {row["id"]: row["text"] for row in self.data.queries} if self.data is not None else {}

    @cached_property
    def _places(self) -> dict[str, dict[str, int]]:
        return {
            entry.model: {query: place for place, query in enumerate(entry.ids)} for entry in self.entries
        }

    def _score(self, entry: ScoreEntry, query: str) -> float | None:
        values, place = getattr(entry.sample, "values", None), self._places[entry.model].get(query)
        return None if values is None or place is None else float(values[place])


def _joined(title: str, text: str) -> str:
    return f"{title}\n{text}" if title else text
