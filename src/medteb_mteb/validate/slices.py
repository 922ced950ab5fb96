"""Check that scores hold for all kinds of queries."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import ttest_ind

from mar_st.evaluation.statistics import holm
from medteb_mteb.measures import means
from medteb_mteb.validate.clusters import cluster_means, mean_of_queries
from medteb_mteb.validate.findings import Finding, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.validate.findings import Number
    from medteb_mteb.validate.material import Material

__all__ = ["MIN_SLICE_QUERIES", "slices"]

LENGTH_QUANTILES = 4
#: Minimum number of queries of a slice; with fewer, its score says little.
MIN_SLICE_QUERIES = 50
#: Maximum number of values of a field that get a slice each; rarer ones share one.
MAX_FIELD_VALUES = 20
SIGNIFICANCE_LEVEL = 0.05


def slices(material: Material) -> Finding:
    """Return scores by quartile of query length, and by every requested field.

    Each slice is compared with all other queries (Welch's test), and the p-values of a run are adjusted for
    the number of its slices (Holm). Near-duplicates of a query count as one, here and in the intervals.
    """
    key, title = "slices", "Scores hold for all kinds of queries"
    parts = _parts(material)
    if not parts or not material.scores:
        return Finding(key, title, "not known", "no query has a positive")
    known = material.data.judged.known
    rows, different = [], []
    numbers: dict[str, Number] = {}
    for name, scores in material.scores.items():
        ndcg = {query: one.ndcg for query, one in scores.items()}
        tested = {label: _differs(material, ndcg, queries) for label, queries in parts.items()}
        adjusted = holm({label: p_value for label, p_value in tested.items() if p_value is not None})
        for label, queries in parts.items():
            p_value = adjusted.get(label)
            estimate = mean_of_queries(material, {query: ndcg[query] for query in queries})
            judged = means([scores[query] for query in queries]).judged
            numbers[f"{name}, {label}, nDCG@10"] = round(estimate.value, 4)
            ends = "-" if estimate.low != estimate.low else f"{estimate.low:.4f}, {estimate.high:.4f}"
            share = f"{judged:.1%}" if known and judged is not None else "not known"
            shown = "-" if p_value is None else f"{p_value:.3f}"
            rows.append((name, label, str(len(queries)), f"{estimate.value:.4f} [{ends}]", share, shown))
            if p_value is not None and p_value < SIGNIFICANCE_LEVEL:
                different.append((p_value, name, label))
    header = ("run", "queries", "number", "nDCG@10 [95 %]", "judged@10", "p against the others (Holm)")
    table = Table(header, tuple(rows))
    fewest = min(map(len, parts.values()))
    numbers["queries of the smallest slice"] = fewest
    numbers["slices that differ from the others"] = len(different)
    reason = f"{len(parts)} slices by {_dimensions(material)}, the smallest of {fewest} queries"
    if different:
        p_value, name, label = min(different)
        reason += (
            f"; {len(different)} scores differ from those of the other queries, most of all {name} on "
            f"{label} (p = {p_value:.3f}, Holm). Report the slices"
        )
        return Finding(key, title, "warning", reason, numbers, table)
    if fewest < MIN_SLICE_QUERIES:
        return Finding(key, title, "warning", f"{reason}: too few to compare slices", numbers, table)
    return Finding(key, title, "ok", reason, numbers, table)


def _parts(material: Material) -> dict[str, list[str]]:
    """Return the queries with a positive, by slice."""
    lengths = {row["id"]: len(row["text"]) for row in material.data.queries if row["id"] in material.qrels}
    if not lengths:
        return {}
    bounds = np.quantile(list(lengths.values()), np.arange(1, LENGTH_QUANTILES) / LENGTH_QUANTILES)
    by_length: dict[int, list[str]] = {}
    for query, length in lengths.items():
        by_length.setdefault(int(np.searchsorted(bounds, length)), []).append(query)
    parts = {}
    for _, queries in sorted(by_length.items()):
        slice_lengths = [lengths[query] for query in queries]
        parts[f"{min(slice_lengths)} to {max(slice_lengths)} characters"] = queries
    for field, values in material.fields.items():
        counts = Counter(values[query] for query in lengths if query in values)
        frequent = {value for value, _ in counts.most_common(MAX_FIELD_VALUES)}
        by_value: dict[str, list[str]] = {}
        for query in lengths:
            value = values.get(query, "not stated")
            by_value.setdefault(value if value in frequent or query not in values else "others", []).append(
                query
            )
        for value in sorted(by_value, key=lambda value: (-len(by_value[value]), value)):
            parts[f"{field}: {value}"] = by_value[value]
    return parts


def _dimensions(material: Material) -> str:
    return " and ".join(["query length", *material.fields])


def _differs(material: Material, scores: Mapping[str, float], queries: Sequence[str]) -> float | None:
    """Return the p-value of the slice against all other queries; None if nothing can be tested."""
    inside = set(queries)
    one = cluster_means(material, {query: scores[query] for query in queries})
    others = {query: score for query, score in scores.items() if query not in inside}
    other = cluster_means(material, others) if others else np.zeros(0)
    if min(len(one), len(other)) < 2:
        return None
    if not one.std() and not other.std():  # no deviation to compare with
        return 1.0 if one[0] == other[0] else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nearly equal scores lose precision
        return float(ttest_ind(one, other, equal_var=False).pvalue)
