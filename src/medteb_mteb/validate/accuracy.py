"""Accuracy of the labels, estimated from the answers of experts to a weighted sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.labels.agreement import IntervalEstimate
from medteb_mteb.curation.labels.intervals import finite_interval
from medteb_mteb.validate.findings import Finding, Table, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.curation.labels.sheet import Experts
    from medteb_mteb.validate.findings import Number, Verdict
    from medteb_mteb.validate.material import Material

__all__ = [
    "CONFIRMED_SHARES",
    "MIN_ANSWERS",
    "MIN_RECALL",
    "StratumAnswers",
    "accuracy_of_labels",
    "stratified",
]

#: Share of positives, and of negatives, that experts confirm, for `ok` and for `warning`.
CONFIRMED_SHARES = (0.90, 0.75)
#: Share of the experts' positives that are also positives by the labels, for `ok`.
MIN_RECALL = 0.8
#: Minimum number of answers to positives, and to negatives, for a verdict.
MIN_ANSWERS = 20
_Z = 1.959963984540054


@dataclass(frozen=True)
class StratumAnswers:
    """Answers to a stratum.

    Attributes:
        name: Name of the stratum.
        label: 1, 0, or None for disputed pairs.
        pairs: Number of its pairs.
        seen: Number of answers.
        positive: Number of answers which say that the document answers the query.
    """

    name: str
    label: int | None
    pairs: int
    seen: int
    positive: int

    def share(self) -> IntervalEstimate:
        """Return the share of positives among its pairs, with an exact interval (no replacement)."""
        return IntervalEstimate(
            self.positive / self.seen, *finite_interval(self.positive, self.seen, self.pairs)
        )


def accuracy_of_labels(material: Material) -> Finding:
    """Estimate the accuracy of all labels from the experts' share of positives in each stratum of the sheet.

    Every answer is weighted by the inverse of its sampling probability (Horvitz-Thompson).
    """
    key, title = "label accuracy", "Experts confirm the labels"
    experts = material.experts
    if experts is None:
        reason = (
            "no sheet that experts have filled in was given (medteb review plan; --review with --answered)"
        )
        return Finding(key, title, "not known", reason)
    parts = _parts(experts)
    by_label = {label: [part for part in parts if part.label == label] for label in (1, 0, None)}
    numbers: dict[str, Number] = {
        "experts": experts.number,
        "Fleiss' kappa of the experts": _rounded(experts.kappa),
        "pairs seen": len(experts.answers),
        "pairs left out, not answered": experts.unanswered,
        "pairs on which experts differ": experts.differing,
        "of these, not decided": experts.undecided,
    }
    rows = [(part.name, f"{part.pairs:,}", str(part.seen), _shown(part.share())) for part in parts]
    shares: dict[int, IntervalEstimate] = {}
    for label, name in ((1, "positives"), (0, "negatives")):
        strata = by_label[label]
        if not strata or sum(part.seen for part in strata) < MIN_ANSWERS:
            continue
        share = stratified(strata)
        shares[label] = share if label else IntervalEstimate(1 - share.value, 1 - share.high, 1 - share.low)
        _note(numbers, f"{name} confirmed", shares[label])
        if len(strata) > 1:
            pairs, seen = sum(part.pairs for part in strata), sum(part.seen for part in strata)
            rows.append((f"all {name}", f"{pairs:,}", str(seen), _shown(share)))
    table = Table(("stratum", "pairs", "seen", "positive by the experts [95 %]"), tuple(rows))
    if not shares:
        reason = f"experts answered fewer than {MIN_ANSWERS} positives and fewer than {MIN_ANSWERS} negatives"
        return Finding(key, title, "not known", reason, numbers, table)
    verdicts: list[Verdict] = [_verdict(share.value) for share in shares.values()]
    names = {1: "positives", 0: "negatives"}
    reason = "experts confirm " + " and ".join(
        f"{_shown(share)} of the {names[label]}" for label, share in shares.items()
    )
    if len(shares) == 2:
        recall = _recall(numbers, by_label[1], by_label[0], by_label[None])
        verdicts.append("ok" if recall >= MIN_RECALL else "warning")
        reason += f"; the labels find {recall:.1%} of what experts call positive among the judged pairs"
    if experts.undecided:
        verdicts.append("warning")
        reason += (
            f"; {experts.undecided} pairs on which they differ are not decided (medteb review adjudicate)"
        )
    return Finding(key, title, worst(verdicts), reason, numbers, table)


def stratified(parts: Sequence[StratumAnswers]) -> IntervalEstimate:
    """Return the share of positives among all pairs of several strata, with its 95 % interval.

    The share is `sum of N_h p_h / sum of N_h`. For one stratum the interval is exact; for several it is
    normal, with the variance `sum of (N_h / N)^2 (1 - n_h / N_h) r_h (1 - r_h) / n_h`, where one success and
    one failure are added to the share r_h, so that a stratum without errors does not count as certain.
    """
    parts = [part for part in parts if part.seen]
    if len(parts) == 1:
        return parts[0].share()
    total = sum(part.pairs for part in parts)
    value = sum(part.pairs * part.positive / part.seen for part in parts) / total
    variance = 0.0
    for part in parts:
        rate = (part.positive + 1) / (part.seen + 2)
        unseen_share = 1 - part.seen / part.pairs
        variance += (part.pairs / total) ** 2 * unseen_share * rate * (1 - rate) / part.seen
    spread = _Z * math.sqrt(variance)
    return IntervalEstimate(value, max(0.0, value - spread), min(1.0, value + spread))


def _parts(experts: Experts) -> list[StratumAnswers]:
    """Return the strata with an answer, by label and name."""
    labels = {one.stratum: one.label for one in experts.drawn.values()}
    positive = dict.fromkeys(labels, 0)
    for pair, answer in experts.answers.items():
        positive[experts.drawn[pair].stratum] += answer
    strata = [
        StratumAnswers(name, labels[name], experts.pairs[name], experts.seen[name], positive[name])
        for name in sorted(labels)
        if experts.seen[name]
    ]
    return sorted(strata, key=lambda part: (1, 0, None).index(part.label))


def _recall(
    numbers: dict[str, Number],
    positives: Sequence[StratumAnswers],
    negatives: Sequence[StratumAnswers],
    disputed: Sequence[StratumAnswers],
) -> float:
    """Return the share of positives by experts that are also positives by labels; 1 without any."""
    counts = {}
    for name, parts in (("positives", positives), ("negatives", negatives), ("disputed pairs", disputed)):
        if not parts:
            continue
        share, pairs = stratified(parts), sum(part.pairs for part in parts)
        counts[name] = share.value * pairs
        ends = "" if share.low != share.low else f" [{share.low * pairs:,.0f}, {share.high * pairs:,.0f}]"
        numbers[f"positive by the experts among the {name}, estimated"] = f"{counts[name]:,.0f}{ends}"
    labelled = sum(part.pairs for part in (*positives, *negatives))
    right = counts["positives"] + sum(part.pairs for part in negatives) - counts["negatives"]
    numbers["accuracy of the labels, estimated"] = round(right / labelled, 4)
    everything = sum(counts.values())
    recall = counts["positives"] / everything if everything else 1.0
    numbers["share of the experts' positives that the labels find"] = round(recall, 4)
    return recall


def _verdict(share: float) -> Verdict:
    fine, usable = CONFIRMED_SHARES
    return "ok" if share >= fine else "warning" if share >= usable else "fail"


def _note(numbers: dict[str, Number], name: str, estimate: IntervalEstimate) -> None:
    for part, number in (("", estimate.value), (", low", estimate.low), (", high", estimate.high)):
        numbers[f"{name}{part}"] = _rounded(number)


def _rounded(number: float | None) -> float | None:
    return None if number is None or number != number else round(number, 4)


def _shown(estimate: IntervalEstimate) -> str:
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"
