"""Checks of labels: agreement of judges with each other and experts; bias by place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mar_st.errors import MarError
from medteb_mteb.curation.labels.agreement import IntervalEstimate, agreement
from medteb_mteb.curation.labels.grades import GRADES, value
from medteb_mteb.curation.labels.intervals import interval
from medteb_mteb.report.intervals import score_of
from medteb_mteb.report.page import Finding, Table, worst

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from medteb_mteb.curation.labels.grades import Judgement
    from medteb_mteb.report.page import Verdict
    from medteb_mteb.validate.material import Material

#: Krippendorff's alpha from which tentative conclusions may be drawn (K. Krippendorff, 2018, chapter 12), and
#: below which labels are little better than chance.
TENTATIVE_ALPHA, POOR_ALPHA = 0.667, 0.4
#: Rank correlation (Somers' D) up to which a bias is small: of two passages with different grades the better
#: one is later in the prompt in 55 of 100 cases instead of 50.
SMALL_CORRELATION = 0.1
#: Maximum number of quantile bins for rank correlations; values of one bin count as equal.
BINS = 20
#: Share of positives, and of negatives, that experts confirm, for `ok` and for `warning`; minimum number of
#: answers to each for a verdict.
CONFIRMED_SHARES, MIN_ANSWERS = (0.90, 0.75), 20


def agreement_of_judges(material: Material) -> Finding:
    """Measure the agreement of the judges on the pairs of this edition's queries."""
    title = "Judges agree"
    if material.judgements is None:
        return Finding(title, "not known", "no judgements were given (--build)")
    try:
        measured = agreement(material.judgements)
    except MarError as error:
        return Finding(title, "not known", str(error))
    alpha = measured.labels["krippendorff_alpha"]
    rows = tuple(
        (name.replace("_", " "), _shown(measured.labels[name]), _shown(measured.grades[name]))
        for name in measured.labels
    )
    table = Table(("coefficient", "positive or negative [95 %]", "letters [95 %]"), rows)
    numbers: dict[str, int | float | str | None] = {"judges": len(measured.judges), "pairs": measured.pairs}
    if math.isnan(alpha.value):
        return Finding(title, "not known", "all labels are of one kind", numbers, table)
    verdict: Verdict = (
        "ok" if alpha.value >= TENTATIVE_ALPHA else "warning" if alpha.value >= POOR_ALPHA else "fail"
    )
    judges, pairs = len(measured.judges), measured.pairs
    reason = f"Krippendorff's alpha of {judges} judges on {pairs:,} pairs is {_shown(alpha)}"
    if verdict != "ok":
        reason += f", below {TENTATIVE_ALPHA}. Look at the pairs they differ on (medteb review)"
    return Finding(title, verdict, reason, numbers, table)


def position_bias(material: Material) -> Finding:
    """Compare the grades of each judge by the place of the passage in the prompt.

    `medteb judge` puts the passages in a random order, so their places are independent of their relevance,
    and every correlation is due to the judge.
    """
    title = "Grades do not depend on the place in the prompt"
    if not material.judgements or not material.places:
        return Finding(title, "not known", "no judgements with places in a prompt were given (--build)")
    found = {}
    for judge in sorted({one.judge for one in material.judgements}):
        placed = [
            one for one in material.judgements if one.judge == judge and (judge, *one.pair) in material.places
        ]
        if placed:
            found[judge] = Graded.of(placed, lambda one: material.places[one.judge, *one.pair])
    correlations = {judge: rank_correlation(one) for judge, one in found.items()}
    rows = tuple((judge, _shown(one)) for judge, one in correlations.items())
    table = Table(("judge", "rank correlation [95 %]"), rows)
    defined = {judge: one for judge, one in correlations.items() if not math.isnan(one.value)}
    if not defined:
        return Finding(title, "not known", "no judge gave different grades", table=table)
    judge = max(defined, key=lambda one: max(abs(defined[one].low), abs(defined[one].high)))
    verdict = worst([_within_small(one) for one in defined.values()])
    reason = (
        f"rank correlation of the grades of {judge}, the worst, with the place is {_shown(defined[judge])}"
    )
    if verdict != "ok":
        reason += (
            f": a bias beyond {SMALL_CORRELATION} cannot be excluded. Ask for fewer passages at a time "
            "(passages), or take another judge"
        )
    return Finding(title, verdict, reason, table=table)


def accuracy_of_labels(material: Material) -> Finding:
    """Look whether experts confirm the labels that they have reviewed."""
    title, report = "Experts confirm the labels", material.review
    if report is None:
        reason = "no answers of experts were given (--review: the folder of medteb review --answer)"
        return Finding(title, "not known", reason)
    numbers = {"experts": len(report["by_reviewer"]), "kappa": report["kappa"], "pairs": report["pairs"]}
    confirmed = {
        name: IntervalEstimate(*one["share"])
        for name, one in report["confirmed"].items()
        if one["pairs"] >= MIN_ANSWERS
    }
    if not confirmed:
        reason = f"experts answered fewer than {MIN_ANSWERS} positives and fewer than {MIN_ANSWERS} negatives"
        return Finding(title, "not known", reason, numbers)
    shown = " and ".join(f"{_percent(share)} of the {name}" for name, share in confirmed.items())
    verdict = worst([_within(share.value, CONFIRMED_SHARES) for share in confirmed.values()])
    return Finding(title, verdict, f"experts confirm {shown}", numbers)


@dataclass(frozen=True)
class Graded:
    """Grades of one judge, and a value for each graded pair.

    Attributes:
        queries: Index of the query of each pair, shape (pairs,), int64.
        grades: 0 for D to 4 for S, shape (pairs,), int64.
        values: The value of each pair, shape (pairs,), float64.
    """

    queries: NDArray[np.int64]
    grades: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, judgements: Sequence[Judgement], of: Callable[[Judgement], float]) -> Graded:
        """Collect judgements, with the value that a function gives to each."""
        queries = np.unique([one.query_id for one in judgements], return_inverse=True)[1]
        grades = np.array([value(one.grade) for one in judgements])
        return cls(queries, grades, np.array([of(one) for one in judgements], dtype=np.float64))

    def table(self) -> NDArray[np.float64]:
        """Return the pairs by query, grade and bin of the value, shape (queries, 5, bins)."""
        different = np.unique(self.values)
        if len(different) > BINS:
            different = np.unique(np.quantile(self.values, np.arange(1, BINS) / BINS))
        bins = np.minimum(np.searchsorted(different, self.values), BINS - 1)
        counts = np.zeros((int(self.queries.max(initial=-1)) + 1, len(GRADES), BINS))
        np.add.at(counts, (self.queries, self.grades, bins), 1.0)
        return counts


def rank_correlation(graded: Graded) -> IntervalEstimate:
    """Return Somers' D of the value given the grade, with a 95 % bootstrap interval over queries.

    D (R. Somers, American Sociological Review 27, 1962) says how much more often, of two passages with
    different grades, the better one has the higher value rather than the lower one. Equal grades are not
    compared, so D does not shrink if nearly all grades are the lowest.
    """
    sample = _Dominance(graded.table())
    return IntervalEstimate(score_of(sample) if len(sample) else float("nan"), *interval(sample))


@dataclass(frozen=True)
class _Dominance:
    table: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.table)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return D under each weighting of the queries, see `medteb_mteb.report.intervals.Sample`."""
        counts = (weights @ self.table.reshape(len(self), -1)).reshape(-1, *self.table.shape[1:])
        worse = counts.cumsum(axis=1)[:, :-1]  # all with a lower grade, by grade and bin
        better = counts[:, 1:]
        upto = worse.cumsum(axis=2)
        total = upto[:, :, -1:]
        sign = (better * ((upto - worse) - (total - upto))).sum(axis=(1, 2))
        pairs = (better.sum(axis=2) * total[:, :, 0]).sum(axis=1)
        result = np.full(len(weights), np.nan)
        np.divide(sign, pairs, out=result, where=pairs > 0)
        return result


def _within_small(estimate: IntervalEstimate) -> Verdict:
    if estimate.low > SMALL_CORRELATION or estimate.high < -SMALL_CORRELATION:
        return "fail"
    return "ok" if estimate.low >= -SMALL_CORRELATION and estimate.high <= SMALL_CORRELATION else "warning"


def _within(figure: float, bounds: tuple[float, float]) -> Verdict:
    fine, usable = bounds
    return "ok" if figure >= fine else "warning" if figure >= usable else "fail"


def _shown(estimate: IntervalEstimate) -> str:
    if math.isnan(estimate.value):
        return "-"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _percent(estimate: IntervalEstimate) -> str:
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"
