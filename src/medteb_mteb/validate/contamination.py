"""Contamination of a live edition: do models score higher on slices that they may have been trained on?

A model trained on texts up to some month, its cut-off, may have seen the slices up to then. Its scores on
these are compared with those on later slices. Months differ in difficulty, too, so the comparison is also
made for queries of equal difficulty, at other months, where nothing should happen (in-time placebos: Abadie,
Diamond & Hainmueller 2015, "Comparative politics and the synthetic control method", American Journal of
Political Science 59(2)), and against models for which nothing changes then (difference in differences).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from mar_st.errors import MarError
from mar_st.evaluation.statistics import holm
from mar_st.options import Argument, Settings, Switch
from mar_st.text.words import BM25Index, words
from medteb_mteb.folders.live import Month, read_live
from medteb_mteb.report.intervals import (
    SEED,
    GroupDifference,
    IntervalEstimate,
    MeanSample,
    difficulty,
    estimated,
)
from medteb_mteb.report.page import Finding, Page, Table, probability, with_interval
from medteb_mteb.report.paired import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from medteb_mteb.folders.content import TaskFolder
    from medteb_mteb.folders.live import Live
    from medteb_mteb.report.intervals import Sample

    Array = NDArray[np.float64]

#: Measures of a query's difficulty, in the order of their columns.
MEASURES = ("characters per query", "BM25 of the best hit", "relevant documents")
COPIES = "copies in training"
#: Number of queries on each side of a cut-off below which nothing is compared.
FEWEST_QUERIES = 10
#: Random permutations of a test.
PERMUTATIONS = 9999


class ContaminationSettings(Settings):
    """Options of `medteb edition contamination`."""

    live: Annotated[Path, Argument()] = Field(description="Live edition.")
    results: Annotated[tuple[Path, ...], Argument()] = Field(
        (), description="Output folders of 'medteb run' on the live edition."
    )
    cutoffs: Annotated[dict[str, Month], Switch("--cutoff")] = Field(
        default_factory=dict,
        description="MODEL=MONTH, the last month of the texts that a model was trained on; may be repeated.",
    )
    training: tuple[str, ...] = Field(
        (), description="Training data, as of 'mar train', to look for the queries in; may be repeated."
    )


@dataclass(frozen=True)
class Effect:
    """A model's scores on the slices up to a month and on those after it.

    Attributes:
        model: The model.
        other: Model whose scores are subtracted, query by query; empty for the model's own scores.
        cutoff: The month.
        placebo: True for a month that is not the model's cut-off.
        queries: Number of queries up to the month, and after it.
        before: Mean on the slices up to the month, and its interval.
        after: The same of the slices after it.
        raw: First minus second mean, and its interval.
        matched: The same difference for queries of equal difficulty, and its interval.
    """

    model: str
    other: str
    cutoff: str
    placebo: bool
    queries: tuple[int, int]
    before: IntervalEstimate
    after: IntervalEstimate
    raw: IntervalEstimate
    matched: IntervalEstimate


@dataclass(frozen=True)
class Queries:
    """The queries of all slices.

    Attributes:
        months: The months in ascending order.
        ids: Ids of the queries of each slice.
        month: Row in `months` of each query, `(queries,)` int64.
        measures: `MEASURES` of each query, `(queries, 3)` float64.
    """

    months: tuple[str, ...]
    ids: tuple[tuple[str, ...], ...]
    month: NDArray[np.int64]
    measures: Array

    @classmethod
    def of(cls, slices: dict[str, TaskFolder]) -> Queries:
        """Measure the queries of the slices, given by month."""
        ids, month, measures = [], [], []
        tokens: dict[str, list[str]] = {}  # slices share documents
        for number, folder in enumerate(slices.values()):
            data = folder.retrieval
            assert data is not None  # noqa: S101 -- `append` writes nothing else
            texts = [f"{row['title']}\n{row['text']}" for row in data.corpus]
            tokens |= {text: words(text) for text in texts if text not in tokens}
            index = BM25Index([tokens[text] for text in texts])
            ids.append(tuple(row["id"] for row in data.queries))
            for row in data.queries:
                relevant = sum(grade > 0 for grade in data.qrels[row["id"]].values())
                best = float(index.scores(words(row["text"])).max(initial=0))
                measures.append((len(row["text"]), best, relevant))
                month.append(number)
        return cls(tuple(slices), tuple(ids), np.array(month), np.array(measures, dtype=np.float64))

    def effect(self, scores: Array, cutoff: str, months: Sequence[str], **named: Any) -> Effect | None:
        """Compare the scores on the slices up to a month with those after it.

        Args:
            scores: Score of each query, NaN where there is none, `(queries,)` float64.
            cutoff: The month.
            months: Slices to use.
            **named: Fields of the result: `model`, `other`, `placebo`.

        Returns:
            The comparison; None if a side has fewer than `FEWEST_QUERIES` queries.
        """
        used = np.isin(np.array(self.months)[self.month], months) & ~np.isnan(scores)
        values, first = scores[used], (np.array(self.months) <= cutoff)[self.month[used]]
        sizes = int(first.sum()), int((~first).sum())
        if min(sizes) < FEWEST_QUERIES:
            return None
        matched = difficulty(self.measures[used])
        samples: dict[str, Sample] = {
            "before": MeanSample(values[first]),
            "after": MeanSample(values[~first]),
            "raw": GroupDifference(values, first, matched[:, :0]),
            "matched": GroupDifference(values, first, matched),
        }
        found: dict[str, Any] = {name: estimated(sample) for name, sample in samples.items()}
        return Effect(cutoff=cutoff, queries=sizes, **named, **found)


@dataclass(frozen=True)
class Contamination:
    """What is known about the contamination of a live edition.

    Attributes:
        name: Name of the live edition.
        queries: The queries of all slices.
        slices: Of each slice: `slice` (its month), numbers of `queries` and `documents`, `COPIES` (queries
            that training texts nearly repeat; None without such texts), and the mean of each measure.
        cutoffs: Cut-off by model.
        effects: Comparisons of all models.
    """

    name: str
    queries: Queries
    slices: list[dict[str, Any]]
    cutoffs: dict[str, str]
    effects: tuple[Effect, ...] = ()

    @cached_property
    def drift(self) -> dict[tuple[str, str], float]:
        """Return the p-values, after Holm's correction, of month and measure: does it differ from before?

        Two-sided permutation tests of the mean in a slice against that in all earlier ones together.
        """
        from scipy.stats import permutation_test  # lazy: scipy

        found = {}
        for number, month in enumerate(self.queries.months[1:], 1):
            here, earlier = self.queries.month == number, self.queries.month < number
            for values, measure in zip(self.queries.measures.T, MEASURES, strict=True):
                test = permutation_test(
                    (values[here], values[earlier]),
                    lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
                    n_resamples=PERMUTATIONS,
                    vectorized=True,
                    batch=500,
                    random_state=np.random.default_rng(SEED),
                )
                found[month, measure] = float(test.pvalue)
        return holm(found)

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as JSON values."""
        drift = [{"slice": month, "measure": one, "p": p} for (month, one), p in self.drift.items()]
        return {"slices": self.slices, "drift": drift, "effects": [asdict(one) for one in self.effects]}

    def page(self) -> Page:
        """Return the page of findings."""
        models = [self._of_model(model, cutoff) for model, cutoff in self.cutoffs.items()]
        months = self.queries.months
        subject = f"Live edition {self.name}, {len(months)} slices from {months[0]} to {months[-1]}."
        return Page("Contamination and drift", subject, (self._drift(), self._copies(), *models))

    def _drift(self) -> Finding:
        title, rows = "Slices are alike", []
        for one in self.slices:
            cells = [one["slice"], f"{one['queries']:,}", f"{one['documents']:,}"]
            for measure in MEASURES:
                p = self.drift.get((one["slice"], measure))
                test = "" if p is None else f" (p {probability(p, relation=True)})"
                cells.append(f"{one[measure]:.2f}{test}")
            rows.append(tuple(cells))
        table = Table(("slice", "queries", "documents", *MEASURES), tuple(rows))
        if len(rows) < 2:
            return Finding(title, "not known", "there is one slice", table=table)
        changed = sorted({month for (month, _), p in self.drift.items() if p < LEVEL})
        if not changed:
            reason = f"no slice differs from those before it (permutation tests, Holm, {LEVEL:.0%})"
            return Finding(title, "ok", reason, table=table)
        reason = f"{', '.join(changed)} differ from the slices before in queries or relevant documents"
        return Finding(title, "warning", reason, table=table)

    def _copies(self) -> Finding:
        title, copies = "Queries are not in the training texts", [one[COPIES] for one in self.slices]
        if None in copies:
            return Finding(title, "not known", "no training texts were given (--training)")
        rows = ((one["slice"], str(one[COPIES]), str(one["queries"])) for one in self.slices)
        table = Table(("slice", "near copies", "queries"), tuple(rows))
        number = len(self.queries.month)
        reason = f"{sum(copies)} of {number} queries are near copies of training texts"
        return Finding(title, "warning" if sum(copies) else "ok", reason, table=table)

    def _of_model(self, model: str, cutoff: str) -> Finding:
        title = f"{model}, trained on texts up to {cutoff}"
        effects = [one for one in self.effects if one.model == model]
        table = Table(_HEADER, tuple(map(_row, effects)))
        if cutoff < self.queries.months[0]:
            return Finding(title, "ok", "all slices are later than its cut-off", table=table)
        stated = next((one for one in effects if not one.placebo and not one.other), None)
        if stated is None:
            few = f"its scores cover fewer than {FEWEST_QUERIES} queries up to this month, or after it"
            return Finding(title, "not known", few, table=table)
        value, low, high = stated.matched
        gap = f"scores up to the cut-off differ by {with_interval(value, low, high, '+.4f')} from later ones"
        reason = f"{gap}, for queries of equal difficulty"
        if not low > 0:
            return Finding(title, "ok", f"{reason}: no sign of contamination", table=table)
        placebos = [one.matched[0] for one in effects if one.placebo]
        if as_large := sum(one >= value for one in placebos):
            reason += f"; at {as_large} of {len(placebos)} other months the difference is as large"
            return Finding(title, "not known", reason, table=table)
        other = f", more than at any of {len(placebos)} other months" if placebos else ""
        return Finding(title, "warning", f"{reason}{other}: later slices alone are a fair test", table=table)


_HEADER = (
    "up to", "", "queries", "queries after", "score", "score after", "difference", "matched difference",
)  # fmt: skip


def _row(one: Effect) -> tuple[str, ...]:
    kind = f"minus {one.other}" if one.other else "placebo" if one.placebo else "cut-off"
    pairs = ((one.before, ".4f"), (one.after, ".4f"), (one.raw, "+.4f"), (one.matched, "+.4f"))
    cells = (with_interval(*estimate, form) for estimate, form in pairs)
    return (one.cutoff, kind, *map(str, one.queries), *cells)


def contamination(settings: ContaminationSettings) -> Contamination:
    """Report drift between the slices of a live edition, and signs that models were trained on them.

    For each model with a stated cut-off: its scores on the slices up to it and after it, their difference,
    and the difference for queries of equal difficulty (length, BM25 score of the best hit, number of relevant
    documents), each with its 95 % interval; the same at all other months, which shows what drift alone does;
    and minus the scores of other models with a cut-off, on slices where nothing changes for these.
    """
    from medteb_mteb.curation.training.rows import HeldOut, training_texts  # lazy: scipy
    from medteb_mteb.folders.content import read_folder  # lazy: pyarrow

    live = read_live(settings.live)
    slices = {month: read_folder(live.folder(month)) for month in live.slices}
    if not slices:
        raise MarError(f"{settings.live} has no slices. Add one by 'medteb edition append'.")
    queries, rows = Queries.of(slices), []
    texts = tuple(dict.fromkeys(one for source in settings.training for one in training_texts(source)))
    held_out = HeldOut(texts, texts)
    for number, (month, folder) in enumerate(slices.items()):
        data, own = folder.retrieval, queries.measures[queries.month == number]
        assert data is not None  # noqa: S101 -- `append` writes nothing else
        leaks = held_out.leaks([row["text"] for row in data.queries]) if settings.training else None
        counts = {"queries": len(own), "documents": len(data.corpus)}
        means = dict(zip(MEASURES, own.mean(axis=0).tolist(), strict=True))
        rows.append({"slice": month, **counts, COPIES: None if leaks is None else len(leaks), **means})
    scores = _scores(settings, live, slices, queries) if settings.cutoffs else {}
    cutoffs = dict(settings.cutoffs)
    effects = tuple(one for model in cutoffs for one in _effects(model, cutoffs, scores, queries))
    return Contamination(settings.live.resolve().name, queries, rows, cutoffs, effects)


def _effects(model: str, cutoffs: dict[str, str], scores: dict[str, Array], queries: Queries) -> list[Effect]:
    """Return the comparisons of a model: at its cut-off, with other models, and at all other months."""
    cutoff, months = cutoffs[model], queries.months

    def compared(values: Array, month: str, used: Sequence[str], other: str = "") -> Effect | None:
        return queries.effect(values, month, used, model=model, other=other, placebo=month != cutoff)

    found = [compared(scores[model], cutoff, months)]
    for other, its in cutoffs.items():
        # For the other model, all these slices are on one side of its cut-off.
        used = [month for month in months if (month <= its) == (cutoff < its)]
        if its != cutoff:
            found.append(compared(scores[model] - scores[other], cutoff, used, other))
    for month in months:
        # Slices on both sides of the true cut-off would mix its difference in.
        used = [one for one in months if (one <= cutoff) == (month < cutoff)]
        if month != cutoff:
            found.append(compared(scores[model], month, used))
    return [one for one in found if one is not None]


def _scores(
    settings: ContaminationSettings, live: Live, slices: dict[str, TaskFolder], queries: Queries
) -> dict[str, Array]:
    """Return the scores per query of the models with a cut-off, `(queries,)`, NaN where there are none.

    Raises:
        MarError: A model has no scores per query on these data, or results are of other data.
    """
    from medteb_mteb.compare.read import read_results  # lazy: scipy

    if not settings.results:
        raise MarError("--cutoff needs results: give the output folder of 'medteb run --data LIVE'.")
    table = read_results(settings.results).table
    if unknown := [model for model in settings.cutoffs if model not in table.models]:
        raise MarError(
            f"There are no results of {unknown[0]!r}; there are those of {', '.join(table.models)}."
        )
    entries = {(entry.model, entry.task): entry for entry in table.entries}
    found = {}
    for model in settings.cutoffs:
        parts = []
        for (month, folder), ids in zip(slices.items(), queries.ids, strict=True):
            entry = entries.get((model, folder.layout.name))
            if entry is not None and entry.dataset_revision != live.slices[month].digest:
                raise MarError(f"The result of {model} on {entry.task} is of other data. Run it again.")
            known: dict[str, float] = {}
            if entry is not None and isinstance(entry.sample, MeanSample):
                known = dict(zip(entry.ids, entry.sample.values.tolist(), strict=True))
            parts.append([known.get(query, np.nan) for query in ids])
        found[model] = np.concatenate(parts)
        if np.isnan(found[model]).all():
            raise MarError(f"{model} has no scores per query on {settings.live}: run 'medteb run' again.")
    return found
