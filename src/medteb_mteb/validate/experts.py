"""Scores of systems with the errors of the labels in their intervals, from pairs checked by experts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.measures import CUTOFF, ranked, without_disputed
from medteb_mteb.validate.findings import Finding, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.labels.sheet import Experts
    from medteb_mteb.validate.findings import Number
    from medteb_mteb.validate.material import Material

__all__ = ["MIN_SEEN", "Corrected", "corrected_mean", "precision_of_systems"]

#: Minimum number of pairs per label that experts have seen among a system's documents.
MIN_SEEN = 5
#: Difference of the estimates above which labels mislead about a system.
LARGE_GAP = 0.05
_Z = 1.959963984540054


@dataclass(frozen=True)
class Corrected:
    """A mean of labels, corrected by a sample of true ones.

    Attributes:
        judged: Mean of the labels.
        value: The corrected mean.
        low: Lower end of its 95 % interval.
        high: Upper end of that interval.
    """

    judged: float
    value: float
    low: float
    high: float


def corrected_mean(
    labels: Sequence[Sequence[int]],
    sampled: Mapping[int, Sequence[int]],
    weights: Mapping[int, Sequence[float]] | None = None,
) -> Corrected:
    """Estimate a mean by prediction-powered inference (Angelopoulos et al., Science 2023, "Mean estimation").

    The mean of the labels plus the mean error of the sampled ones. The sample was drawn by label, so each
    label has its own error, weighted by its share: `sum over labels f of share(f) * (f + mean(truth - f))`.
    The variance is that of the clusters' mean labels plus, for each label, share(f)^2 times that of its mean
    error, with one success and one failure added, so that a sample without errors does not count as certain.
    If pairs of a label were drawn with different probabilities (strata by type of query), each is weighted
    by the pairs it represents (Hajek's form of the Horvitz-Thompson estimate); the effective sample size is
    `sum(w)^2 / sum(w^2)` (L. Kish, Survey Sampling, 1965).

    Args:
        labels: Labels, 0 or 1, of all pairs, by cluster (the documents of a query).
        sampled: Truth, 0 or 1, of the sampled pairs, by label; every label that occurs needs some.
        weights: Number of pairs that each sampled pair represents; default equal weights.
    """
    means = np.array([np.mean(row) for row in labels])
    judged = float(means.mean())
    shares = {1: judged, 0: 1 - judged}
    value, variance = 0.0, float(means.var(ddof=1)) / len(means) if len(means) > 1 else 0.0
    for label, share in shares.items():
        if share:
            truth = np.asarray(sampled[label], dtype=float)
            weight = np.ones(len(truth)) if weights is None else np.asarray(weights[label], dtype=float)
            mean = float(truth @ weight / weight.sum())
            size = float(weight.sum() ** 2 / (weight**2).sum())
            value += share * mean
            rate = (mean * size + 1) / (size + 2)
            variance += share**2 * rate * (1 - rate) / size
    spread = _Z * math.sqrt(variance)
    return Corrected(judged, value, max(0.0, value - spread), min(1.0, value + spread))


def precision_of_systems(material: Material) -> Finding:
    """Report the precision of each run's first 10 documents, by the labels and corrected by the experts.

    Documents without a label are left out, since their relevance is unknown.
    """
    key, title = "label error", "Scores agree with experts' labels"
    if material.experts is None:
        reason = "no sheet that experts have filled in was given (--review with --answered)"
        return Finding(key, title, "not known", reason)
    numbers: dict[str, Number] = {"pairs seen by experts": len(material.experts.answers)}
    rows, gaps = [], {}
    for name, run in material.runs.items():
        labels, sampled, weights = _first(material, material.experts, run)
        count = f"{len(sampled[1])} + {len(sampled[0])}"
        occurring = {label for row in labels for label in row}
        if not labels or any(len(sampled[label]) < MIN_SEEN for label in occurring):
            rows.append((name, count, "-", "not known"))
            continue
        corrected = corrected_mean(labels, sampled, weights)
        gaps[name] = abs(corrected.value - corrected.judged)
        numbers[f"{name}, judged precision@{CUTOFF}"] = round(corrected.judged, 4)
        numbers[f"{name}, corrected precision@{CUTOFF}"] = round(corrected.value, 4)
        shown = f"{corrected.value:.3f} [{corrected.low:.3f}, {corrected.high:.3f}]"
        rows.append((name, count, f"{corrected.judged:.3f}", shown))
    header = ("run", "positives + negatives seen", f"precision@{CUTOFF} by labels", "corrected [95 %]")
    table = Table(header, tuple(rows))
    if not gaps:
        reason = f"experts saw fewer than {MIN_SEEN} positives or negatives among the documents of each run"
        return Finding(key, title, "not known", reason, numbers, table)
    name = max(gaps, key=lambda one: gaps[one])
    reason = f"experts move precision@{CUTOFF} of {name} by {gaps[name]:.3f}, no other run by more"
    if gaps[name] > LARGE_GAP:
        return Finding(key, title, "warning", reason + ". Report the corrected values", numbers, table)
    return Finding(key, title, "ok", reason, numbers, table)


def _first(
    material: Material, experts: Experts, run: Mapping[str, Mapping[str, float]]
) -> tuple[list[list[int]], dict[int, list[int]], dict[int, list[float]]]:
    """Return the first documents' labels by query, and the experts' answers to some, with their weights."""
    judged = material.data.judged
    labels: list[list[int]] = []
    sampled: dict[int, list[int]] = {0: [], 1: []}
    weights: dict[int, list[float]] = {0: [], 1: []}
    for query, scores in sorted(without_disputed(run, judged).items()):
        positives = material.qrels.get(query, {})
        known = {**dict.fromkeys(judged.negatives.get(query, ()), 0), **dict.fromkeys(positives, 1)}
        row = [(document, known[document]) for document in ranked(scores)[:CUTOFF] if document in known]
        if row:
            labels.append([label for _, label in row])
        for document, label in row:
            if (query, document) in experts.answers:
                sampled[label].append(experts.answers[query, document])
                weights[label].append(experts.weight((query, document)))
    return labels, sampled, weights
