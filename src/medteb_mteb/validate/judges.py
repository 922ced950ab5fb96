"""Agreement of the judges with each other, and with themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.agreement import agreement, weighted_kappa
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE_GRADES, by_pair, value
from medteb_mteb.validate.findings import Finding, Table, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.curation.labels.agreement import IntervalEstimate
    from medteb_mteb.curation.labels.grades import Judgement
    from medteb_mteb.validate.findings import Number, Verdict
    from medteb_mteb.validate.material import Material

__all__ = [
    "EQUAL_LABEL_SHARES",
    "POOR_ALPHA",
    "SELF_KAPPAS",
    "TENTATIVE_ALPHA",
    "agreement_of_judges",
    "self_consistency",
]

#: Krippendorff's alpha from which tentative conclusions may be drawn (K. Krippendorff, 2018, chapter 12), and
#: below which labels are little better than chance.
TENTATIVE_ALPHA, POOR_ALPHA = 0.667, 0.4
#: Share of pairs that a judge labels alike when it is asked twice, for `ok` and for `warning`.
EQUAL_LABEL_SHARES = (0.95, 0.90)
#: The same for its weighted kappa with itself (J. Landis, G. Koch, Biometrics 1977: almost perfect,
#: substantial): if nearly all pairs are negatives, even a judge that guesses gives them equal labels.
SELF_KAPPAS = (0.8, 0.6)


def agreement_of_judges(material: Material) -> Finding:
    """Measure the agreement of the judges on the pairs of this edition's queries."""
    key, title = "agreement", "Judges agree"
    if material.judgements is None:
        return Finding(key, title, "not known", "no judgements were given (--judgements)")
    try:
        measured = agreement(material.judgements)
    except BuildError as error:
        return Finding(key, title, "not known", str(error))
    alpha = measured.labels["krippendorff_alpha"]
    numbers: dict[str, Number] = {
        "judges": len(measured.judges),
        "pairs": measured.pairs,
        "complete": measured.complete,
    }
    for name, estimate in measured.labels.items():
        numbers[f"{name.replace('_', ' ')} of labels"] = _rounded(estimate.value)
    numbers["krippendorff alpha of grades"] = _rounded(measured.grades["krippendorff_alpha"].value)
    rows = [
        (name.replace("_", " "), _shown(measured.labels[name]), _shown(measured.grades[name]))
        for name in measured.labels
    ]
    for judge in measured.judges:
        labels, letters = _with_others(material.judgements, judge)
        name = f"weighted kappa of {judge} with the others"
        numbers |= {f"{name}, labels": _rounded(labels.value), f"{name}, letters": _rounded(letters.value)}
        rows.append((name, _shown(labels), _shown(letters)))
    table = Table(("coefficient", "positive or negative [95 %]", "letters [95 %]"), tuple(rows))
    reason = (
        f"Krippendorff's alpha of {len(measured.judges)} judges on {measured.pairs:,} pairs is "
        f"{_shown(alpha)}"
    )
    if alpha.value != alpha.value:  # NaN: all labels are of one kind
        return Finding(key, title, "not known", "all labels are of one kind", numbers, table)
    verdict: Verdict = (
        "ok" if alpha.value >= TENTATIVE_ALPHA else "warning" if alpha.value >= POOR_ALPHA else "fail"
    )
    if verdict != "ok":
        reason += (
            f", below {TENTATIVE_ALPHA}. Look at the pairs they differ on (medteb review), reword the prompt"
        )
    return Finding(key, title, verdict, reason, numbers, table)


def self_consistency(material: Material) -> Finding:
    """Measure the agreement of each judge with itself on pairs that it graded twice; the worst judge counts.

    A second round in the same order says less than one in another order, so the share of pairs at another
    place of the prompt is reported, too.
    """
    key, title = "self-consistency", "Judges agree with themselves"
    if material.judgements is None or material.second is None:
        return Finding(
            key, title, "not known", "no second run of the judges was given (--judgements with --second)"
        )
    names = sorted({one.judge for one in material.judgements} & {one.judge for one in material.second})
    rows, numbers, outcomes = [], dict[str, "Number"](), list[tuple["Verdict", float, float, str]]()
    for name in names:
        pairs = _twice(material.judgements, material.second, name)
        if not pairs:
            continue
        both = agreement(pairs)
        share, letters = both.labels["agreement"], both.grades["agreement"]
        kappa = _with_others(pairs, "first")[1]
        numbers[f"{name}, equal labels"] = _rounded(share.value)
        numbers[f"{name}, equal letters"] = _rounded(letters.value)
        numbers[f"{name}, weighted kappa"] = _rounded(kappa.value)
        moved = _moved(material, name, {one.pair for one in pairs})
        numbers[f"{name}, at another place of the prompt"] = moved
        place = "not known" if moved is None else f"{moved:.1%}"
        rows.append((name, f"{both.pairs:,}", _shown(share), _shown(letters), _shown(kappa), place))
        verdicts = [
            _within(share.value, EQUAL_LABEL_SHARES),
            *([_within(kappa.value, SELF_KAPPAS)] if kappa.value == kappa.value else []),
        ]
        outcomes.append((worst(verdicts), share.value, kappa.value, name))
    if not outcomes:
        return Finding(key, title, "not known", "no judge graded the same pair twice")
    header = (
        *("judge", "pairs", "equal labels [95 %]", "equal letters [95 %]"),
        *("weighted kappa of letters [95 %]", "at another place"),
    )
    verdict = worst([one for one, *_ in outcomes])
    _, share_of, kappa_of, name = min(
        (one for one in outcomes if one[0] == verdict), key=lambda one: one[1:3]
    )
    reason = f"{name} gives {share_of:.1%} of its pairs the same label when it is asked again"
    if kappa_of == kappa_of:
        reason += f"; the weighted kappa of its letters is {kappa_of:.3f}"
    return Finding(key, title, verdict, reason, numbers, Table(header, tuple(rows)))


def _within(figure: float, bounds: tuple[float, float]) -> Verdict:
    fine, usable = bounds
    return "ok" if figure >= fine else "warning" if figure >= usable else "fail"


def _moved(material: Material, judge: str, pairs: set[tuple[str, str]]) -> float | None:
    """Return the share of pairs at another place of the prompt the second time; None if unknown."""
    first, second = material.places or {}, material.second_places or {}
    known = [(judge, *pair) for pair in pairs if (judge, *pair) in first and (judge, *pair) in second]
    return round(sum(first[one] != second[one] for one in known) / len(known), 4) if known else None


def _with_others(judgements: Sequence[Judgement], judge: str) -> tuple[IntervalEstimate, IntervalEstimate]:
    """Return kappa of the labels and weighted kappa of the letters of a judge with all others, by pair."""
    own, others, queries = [], [], []
    for (query, _), given in by_pair(judgements)[1].items():
        if judge not in given:
            continue
        for other, grade in given.items():
            if other != judge:
                own.append(given[judge])
                others.append(grade)
                queries.append(query)
    labels = [[int(grade in POSITIVE_GRADES) for grade in grades] for grades in (own, others)]
    letters = [list(map(value, grades)) for grades in (own, others)]
    return weighted_kappa(*labels, queries, 2), weighted_kappa(*letters, queries, len(GRADES))


def _twice(first: Sequence[Judgement], second: Sequence[Judgement], judge: str) -> list[Judgement]:
    """Return the judgements of pairs that a judge graded twice, the two rounds as two judges."""
    grades = {one.pair for one in first if one.judge == judge}
    again = {one.pair for one in second if one.judge == judge} & grades
    return [
        replace(one, judge=asking)
        for asking, judgements in (("first", first), ("second", second))
        for one in judgements
        if one.judge == judge and one.pair in again
    ]


def _rounded(value: float) -> float | None:
    return None if value != value else round(value, 4)


def _shown(estimate: IntervalEstimate) -> str:
    return (
        "-"
        if estimate.value != estimate.value
        else f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
    )
