"""Checks of labels: agreement of judges with each other and experts; bias by place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import somersd

from mar_st.errors import MarError
from medteb_mteb.curation.labels.agreement import agreement
from medteb_mteb.curation.labels.grades import value
from medteb_mteb.report.intervals import IntervalEstimate
from medteb_mteb.report.page import Finding, Table, graded, with_interval, worst

if TYPE_CHECKING:
    from medteb_mteb.report.page import Verdict
    from medteb_mteb.validate.material import Material

#: Krippendorff's alpha from which tentative conclusions may be drawn (K. Krippendorff, 2018, chapter 12), and
#: below which labels are little better than chance.
TENTATIVE_ALPHA, POOR_ALPHA = 0.667, 0.4
#: Rank correlation (Somers' D of the place given the grade) up to which a bias is small: of two passages with
#: different grades the better one is later in the prompt in 55 of 100 cases instead of 50; p-value below
#: which a larger one is a failure.
SMALL_CORRELATION, SIGNIFICANT = 0.1, 0.05
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
        (
            name.replace("_", " "),
            *(with_interval(*one[name], ".3f") for one in (measured.labels, measured.grades)),
        )
        for name in measured.labels
    )
    table = Table(("coefficient", "positive or negative [95 %]", "letters [95 %]"), rows)
    numbers: dict[str, int | float | str | None] = {"judges": len(measured.judges), "pairs": measured.pairs}
    if math.isnan(alpha.value):
        return Finding(title, "not known", "all labels are of one kind", numbers, table)
    verdict = graded(alpha.value, TENTATIVE_ALPHA, POOR_ALPHA)
    judges, pairs = len(measured.judges), measured.pairs
    reason = f"Krippendorff's alpha of {judges} judges on {pairs:,} pairs is {with_interval(*alpha, '.3f')}"
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
            (value(one.grade), material.places[judge, *one.pair])
            for one in material.judgements
            if one.judge == judge and (judge, *one.pair) in material.places
        ]
        if len({grade for grade, _ in placed}) > 1:
            found[judge] = somersd(*np.array(placed).T)
    if not found:
        return Finding(title, "not known", "no judge gave different grades")
    rows = tuple((judge, f"{one.statistic:.3f}", f"{one.pvalue:.4f}") for judge, one in found.items())
    judge = max(found, key=lambda name: abs(found[name].statistic))
    size, p = abs(found[judge].statistic), found[judge].pvalue
    verdict: Verdict = "ok" if size <= SMALL_CORRELATION else "fail" if p < SIGNIFICANT else "warning"
    reason = f"rank correlation of the grades of {judge}, the worst, with the place is {size:.3f}"
    if verdict != "ok":
        reason += ". Ask for fewer passages at a time (passages), or take another judge"
    return Finding(title, verdict, reason, table=Table(("judge", "Somers' D", "p"), rows))


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
    shown = " and ".join(f"{with_interval(*share, '.1%')} of the {name}" for name, share in confirmed.items())
    verdict = worst([graded(share.value, *CONFIRMED_SHARES) for share in confirmed.values()])
    return Finding(title, verdict, f"experts confirm {shown}", numbers)
