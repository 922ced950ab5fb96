"""Differences between two editions: texts, labels, and scores of the same models on both."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, replace
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from mar_st.errors import MarError
from medteb_mteb.compare.read import read_results
from medteb_mteb.report.page import Finding, Page, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.folders.content import TaskFolder
    from medteb_mteb.folders.layout import Layout

#: Number of ids that the page shows of a kind of change; JSON has all.
SHOWN = 10
_LABEL_COLUMNS = ("score", "label", "labels")
_ABSENT = "not listed"


class ScoredTwice(NamedTuple):
    """The scores of a model on the first and the second edition."""

    model: str
    first: float
    second: float


@dataclass(frozen=True)
class Changes:
    """Ids that differ in one part of the data.

    Attributes:
        added: Ids that only the second edition has.
        removed: Ids that only the first edition has.
        changed: Ids of both with another text, grade or list.
        same: Number of ids without a difference.
        grades: The ids of changes by grade in the first and the second edition; empty for texts.
    """

    added: list[str]
    removed: list[str]
    changed: list[str]
    same: int
    grades: dict[tuple[str, str], list[str]]

    def finding(self, title: str) -> Finding:
        """Return the changes as a point of a page."""
        kinds = {"added": self.added, "removed": self.removed, "changed": self.changed}
        if not any(kinds.values()):
            return Finding(title, "ok", f"no difference in {self.same:,}")
        counts = [f"{len(ids):,} {kind}" for kind, ids in kinds.items() if ids]
        reason = f"{', '.join(counts)}, {self.same:,} the same"
        if self.grades:
            header: tuple[str, ...] = ("grade in the first", "grade in the second", "number", "ids")
            groups: dict[tuple[str, ...], list[str]] = {key: self.grades[key] for key in sorted(self.grades)}
        else:
            header = ("change", "number", "ids")
            groups = {(kind,): ids for kind, ids in kinds.items() if ids}
        rows = tuple((*key, f"{len(ids):,}", _some(ids)) for key, ids in groups.items())
        return Finding(title, "warning", reason, table=Table(header, rows))


@dataclass(frozen=True)
class EditionDiff:
    """Differences between two editions.

    Attributes:
        names: Names of the editions, with their versions.
        revisions: Revisions of the data, as results carry them.
        digests: Digests of the tables and settings that scores depend on.
        changes: Changes by part: queries, documents, labels, candidates, or rows of a split.
        scores: Models scored on both, by name; None if no results were given.
    """

    names: tuple[str, str]
    revisions: tuple[str, str]
    digests: tuple[str, str]
    changes: dict[str, Changes]
    scores: list[ScoredTwice] | None = None

    @property
    def tau(self) -> float | None:
        """Return Kendall's tau-b of the two rankings of models; None if there are fewer than two."""
        from scipy.stats import kendalltau  # lazy: scipy

        if self.scores is None or len(self.scores) < 2:
            return None
        value = float(kendalltau([one.first for one in self.scores], [one.second for one in self.scores])[0])
        return None if isnan(value) else value  # NaN: all scores are the same

    def page(self) -> Page:
        """Return the page of findings."""
        findings = [self._data(), *(one.finding(part.capitalize()) for part, one in self.changes.items())]
        if self.scores is not None:
            findings.append(self._ranking(self.scores))
        same = self.digests[0] == self.digests[1]
        subject = f"{self.names[0]} and {self.names[1]}{': no difference' if same else ''}."
        return Page("Editions compared", subject, tuple(findings))

    def to_json(self) -> dict[str, Any]:
        """Return JSON values with all ids."""
        changes = {
            part: {**asdict(one), "grades": [[*grades, ids] for grades, ids in one.grades.items()]}
            for part, one in self.changes.items()
        }
        scores = None if self.scores is None else [one._asdict() for one in self.scores]
        return {
            **{name: list(getattr(self, name)) for name in ("names", "revisions", "digests")},
            "changes": changes,
            "scores": scores,
            "kendall_tau": self.tau,
        }

    def _data(self) -> Finding:
        rows = (("revision in results", *self.revisions), ("digest of the scored data", *self.digests))
        table = Table(("", *self.names), rows)
        if self.digests[0] != self.digests[1]:
            return Finding("Scored data", "warning", "scores on the two cannot be compared", table=table)
        if self.revisions[0] != self.revisions[1]:
            reason = "no difference, but results carry two revisions: the manifests differ"
            return Finding("Scored data", "warning", reason, table=table)
        return Finding("Scored data", "ok", "no difference", table=table)

    def _ranking(self, scores: Sequence[ScoredTwice]) -> Finding:
        title, tau = "Scores on both", self.tau
        rows = tuple(
            (one.model, f"{one.first:.4f}", f"{one.second:.4f}", f"{one.second - one.first:+.4f}")
            for one in scores
        )
        table = Table(("model", *self.names, "difference"), rows)
        if tau is None:
            reason = f"{len(scores)} models have results on both; a ranking needs two different scores"
            return Finding(title, "not known", reason, table=table)
        reason = f"Kendall's tau of the two rankings of {len(scores)} models is {tau:.3f}"
        return Finding(title, "ok" if tau == 1 else "warning", reason, table=table)


def compare_editions(first: Path, second: Path, results: Sequence[Path] = ()) -> EditionDiff:
    """Compare two editions, or versions of one.

    Args:
        first: Folder of an edition, or any data folder.
        second: The other one, of the same type of task.
        results: Sources of results on either (see `read_results`); the revision of the data tells which.

    Raises:
        MarError: A folder or a source of results is unusable, or the types of tasks differ.
    """
    from medteb_mteb.folders.content import read_folder  # lazy: pyarrow

    one, other = read_folder(first), read_folder(second)
    if one.type != other.type:
        raise MarError(f"{first} is of type {one.type}, {second} of type {other.type}. Give two of one type.")
    parts = [_parts(folder) for folder in (one, other)]
    tables = dict.fromkeys((*parts[0], *parts[1]))
    digests = [replace(folder.layout, edition=None).revision() for folder in (one, other)]
    return EditionDiff(
        names=(_name(one.layout), _name(other.layout)),
        revisions=(one.revision, other.revision),
        digests=(digests[0], digests[1]),
        changes={part: _changes(part, *(some.get(part, {}) for some in parts)) for part in tables},
        scores=list(_scored_twice(one.revision, other.revision, results)) if results else None,
    )


def _name(layout: Layout) -> str:
    edition = layout.edition
    return layout.name if edition is None else f"{edition.task} {edition.name} {edition.version}"


def _parts(folder: TaskFolder) -> dict[str, dict[str, Any]]:
    """Return what can change, by part and id: texts, lists of candidates, or grades."""
    data = folder.retrieval
    if data is None:
        return {f"rows of {split}": dict(_labelled(rows)) for split, rows in folder.records.items()}
    labels: dict[str, Any] = {f"{q} {d}": grade for q, row in data.qrels.items() for d, grade in row.items()}
    labels |= {f"{q} {d}": 0 for q, documents in data.judged.negatives.items() for d in documents}
    labels |= {f"{q} {d}": "disputed" for q, documents in data.judged.disputed.items() for d in documents}
    parts: dict[str, dict[str, Any]] = {
        "queries": {row["id"]: row["text"] for row in data.queries},
        "documents": {row["id"]: (row["title"], row["text"]) for row in data.corpus},
        "labels": labels,
    }
    return parts if data.top_ranked is None else {**parts, "candidates": data.top_ranked}


def _labelled(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the texts of each row, which are its id, and its label; equal rows are numbered."""
    seen: Counter[str] = Counter()
    for row in rows:
        texts = " | ".join(str(value) for key, value in row.items() if key not in _LABEL_COLUMNS)
        seen[texts] += 1
        label = next(row[key] for key in _LABEL_COLUMNS if key in row)
        yield (texts if seen[texts] == 1 else f"{texts} ({seen[texts]})"), label


def _changes(part: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Changes:
    added, removed = sorted(second.keys() - first.keys()), sorted(first.keys() - second.keys())
    changed = sorted(key for key in first.keys() & second.keys() if first[key] != second[key])
    grades: dict[tuple[str, str], list[str]] = defaultdict(list)
    if part == "labels" or part.startswith("rows"):
        for key in (*added, *removed, *changed):
            grades[str(first.get(key, _ABSENT)), str(second.get(key, _ABSENT))].append(key)
    return Changes(added, removed, changed, len(first) - len(removed) - len(changed), dict(grades))


def _scored_twice(first: str, second: str, results: Sequence[Path]) -> Iterator[ScoredTwice]:
    """Yield the models with a score on both revisions of the data, the best on the first one first."""
    scores: dict[str, dict[str, float]] = {first: {}, second: {}}
    for source in results:  # one by one: two sources may hold results of one model on both
        for entry in read_results([source]).table.entries:
            name = entry.model
            if not name.startswith("run/"):  # a ranking of the second edition is another file
                name = f"{name.partition('@')[0]}@{entry.model_revision[:8]}"
            if entry.dataset_revision in scores:
                scores[entry.dataset_revision][name] = entry.score
    both = scores[first].keys() & scores[second].keys()
    for model in sorted(both, key=lambda model: (-scores[first][model], model)):
        yield ScoredTwice(model, scores[first][model], scores[second][model])


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:SHOWN]) + (f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else "")
