"""Check if judges and labels prefer long or short passages more than experts do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.curation.labels.grades import POSITIVE_GRADES
from medteb_mteb.validate.accuracy import MIN_ANSWERS
from medteb_mteb.validate.bias import SMALL_CORRELATION, note, severity, shown, verdict_of
from medteb_mteb.validate.dominance import Graded, binned, difference, rank_correlation
from medteb_mteb.validate.findings import Finding, Table, worst

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.curation.labels.sheet import Experts
    from medteb_mteb.validate.findings import Number
    from medteb_mteb.validate.material import Material

__all__ = ["LABELS_ROW", "length_bias_by_experts"]

#: Name of the edition's labels among the judges.
LABELS_ROW = "(labels)"


def length_bias_by_experts(material: Material) -> Finding:
    """Compare Somers' D of "positive" and length, of each judge and of the labels, with the experts'.

    All judges may share a preference for long passages, which only experts can reveal. Both sides are
    compared on the pairs that the experts answered, positive against negative. Each pair is weighted by the
    inverse of its sampling probability, since positives are drawn more often. Intervals are over queries.
    """
    key, title = "length bias by experts", "Judges treat the length of passages as experts do"
    experts = material.experts
    if experts is None:
        reason = (
            "no sheet that experts have filled in was given (medteb review plan; --review with --answered)"
        )
        return Finding(key, title, "not known", reason)
    lengths = {row["id"]: len(row["title"]) + len(row["text"]) for row in material.data.corpus}
    labels_by_judge = _labels_by_judge(material, experts)
    numbers: dict[str, Number] = {"pairs seen by experts": len(experts.answers)}
    rows, differences = [], {}
    for name, labels in labels_by_judge.items():
        pairs = [pair for pair in experts.answers if pair in labels and pair[1] in lengths]
        truth = np.array([experts.answers[pair] for pair in pairs], dtype=np.int64)
        predicted = np.array([labels[pair] for pair in pairs], dtype=np.int64)
        if (
            min(truth.sum(), len(truth) - truth.sum(), predicted.sum(), len(predicted) - predicted.sum())
            < MIN_ANSWERS
        ):
            rows.append((name, f"{len(pairs):,}", "-", "-", "too few"))
            continue
        names, queries = np.unique([query for query, _ in pairs], return_inverse=True)
        bins = binned(np.array([lengths[document] for _, document in pairs], dtype=float))
        weights = np.array([experts.weight(pair) for pair in pairs])
        judge, people = (Graded(queries, one, bins, weights) for one in (predicted, truth))
        own, theirs = rank_correlation(judge, len(names)), rank_correlation(people, len(names))
        differences[name] = difference(judge, (people,), len(names))
        note(numbers, f"{name}, rank correlation with the length", own)
        note(numbers, f"experts on the pairs of {name}, rank correlation with the length", theirs)
        note(numbers, f"{name}, rank correlation beyond the experts", differences[name])
        rows.append((name, f"{len(pairs):,}", shown(own), shown(theirs), shown(differences[name])))
    header = (
        "judge",
        "pairs",
        "rank correlation [95 %]",
        "of the experts [95 %]",
        "beyond the experts [95 %]",
    )
    table = Table(header, tuple(rows))
    if not differences:
        reason = (
            f"experts and judges have fewer than {MIN_ANSWERS} positives, or negatives, on the pairs of the "
            "sheet"
        )
        return Finding(key, title, "not known", reason, numbers, table)
    name = max(differences, key=lambda one: severity(differences[one]))
    verdict = worst([verdict_of(one) for one in differences.values()])
    reason = (
        f"the rank correlation of positives and length of {name} differs from that of the experts by "
        f"{shown(differences[name])}, of no other by more"
    )
    if verdict == "fail":
        reason += ". Take other judges, or have experts label long and short passages"
    elif verdict == "warning":
        reason += f": a bias beyond {SMALL_CORRELATION} cannot be excluded. Have experts answer more pairs"
    return Finding(key, title, verdict, reason, numbers, table)


def _labels_by_judge(material: Material, experts: Experts) -> Mapping[str, Mapping[tuple[str, str], int]]:
    """Return 1 for a positive or 0 by pair, for the labels and for every judge."""
    labels_by_judge: dict[str, dict[tuple[str, str], int]] = {
        LABELS_ROW: {pair: one.label for pair, one in experts.drawn.items() if one.label is not None}
    }
    for judgement in sorted(material.judgements or (), key=lambda one: one.judge):
        if judgement.pair in experts.drawn:
            labels_by_judge.setdefault(judgement.judge, {})[judgement.pair] = int(
                judgement.grade in POSITIVE_GRADES
            )
    return labels_by_judge
