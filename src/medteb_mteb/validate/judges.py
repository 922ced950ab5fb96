"""Do the judges agree with each other, and with themselves?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.agreement import agreement
from medteb_mteb.validate.findings import Finding, Table, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.curation.labels.agreement import Estimate
    from medteb_mteb.curation.labels.grades import Judgement
    from medteb_mteb.validate.findings import Number, Verdict
    from medteb_mteb.validate.material import Material

__all__ = ["CONSISTENT", "POOR", "TENTATIVE", "agreement_of_judges", "self_consistency"]

#: Krippendorff's alpha from which conclusions may be drawn, if tentatively (K. Krippendorff, 2018, chapter
#: 12), and below which labels are little better than chance would have them.
TENTATIVE, POOR = 0.667, 0.4
#: Share of pairs that a judge labels alike when it is asked twice, for `ok` and for `warning`.
CONSISTENT = (0.95, 0.90)


def agreement_of_judges(material: Material) -> Finding:
    """Agreement of the judges on the pairs of this edition's queries."""
    key, title = "agreement", "Judges agree"
    if material.judgements is None:
        return Finding(key, title, "not known", "no judgements were given (--judgements)")
    try:
        found = agreement(material.judgements)
    except BuildError as error:
        return Finding(key, title, "not known", str(error))
    alpha = found.labels["krippendorff_alpha"]
    numbers: dict[str, Number] = {
        "judges": len(found.judges),
        "pairs": found.pairs,
        "complete": found.complete,
    }
    for name, estimate in found.labels.items():
        numbers[f"{name.replace('_', ' ')} of labels"] = _rounded(estimate.value)
    numbers["krippendorff alpha of grades"] = _rounded(found.grades["krippendorff_alpha"].value)
    table = Table(
        ("coefficient", "positive or negative [95 %]", "letters [95 %]"),
        tuple(
            (name.replace("_", " "), _shown(found.labels[name]), _shown(found.grades[name]))
            for name in found.labels
        ),
    )
    reason = f"Krippendorff's alpha of {len(found.judges)} judges on {found.pairs:,} pairs is {_shown(alpha)}"
    if alpha.value != alpha.value:  # NaN: all labels are of one kind
        return Finding(key, title, "not known", "all labels are of one kind", numbers, table)
    verdict: Verdict = "ok" if alpha.value >= TENTATIVE else "warning" if alpha.value >= POOR else "fail"
    if verdict != "ok":
        reason += f", below {TENTATIVE}. Look at the pairs they differ on (medteb review), reword the prompt"
    return Finding(key, title, verdict, reason, numbers, table)


def self_consistency(material: Material) -> Finding:
    """Agreement of each judge with itself, where it was asked twice."""
    key, title = "self-consistency", "Judges agree with themselves"
    if material.judgements is None or material.second is None:
        return Finding(key, title, "not known", "no second asking was given (--judgements with --second)")
    names = sorted({one.judge for one in material.judgements} & {one.judge for one in material.second})
    verdicts: list[Verdict] = []
    rows, numbers, lowest = [], dict[str, "Number"](), (2.0, "")
    for name in names:
        pairs = _twice(material.judgements, material.second, name)
        if not pairs:
            continue
        found = agreement(pairs)
        share = found.labels["agreement"]
        numbers[f"{name}, equal labels"] = _rounded(share.value)
        numbers[f"{name}, equal letters"] = _rounded(found.grades["agreement"].value)
        alpha = _shown(found.grades["krippendorff_alpha"])
        rows.append((name, str(found.pairs), _shown(share), _shown(found.grades["agreement"]), alpha))
        fine, usable = CONSISTENT
        verdicts.append("ok" if share.value >= fine else "warning" if share.value >= usable else "fail")
        lowest = min(lowest, (share.value, name))
    if not verdicts:
        return Finding(key, title, "not known", "no judge was asked for the same pair twice")
    header = ("judge", "pairs", "equal labels [95 %]", "equal letters [95 %]", "alpha of letters [95 %]")
    reason = f"{lowest[1]} gives {lowest[0]:.1%} of its pairs the same label when it is asked again"
    return Finding(key, title, worst(verdicts), reason, numbers, Table(header, tuple(rows)))


def _twice(first: Sequence[Judgement], second: Sequence[Judgement], judge: str) -> list[Judgement]:
    """The judgements of pairs that a judge was asked for twice, the askings as two judges."""
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


def _shown(found: Estimate) -> str:
    return "-" if found.value != found.value else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
