"""Check that the test is large enough to distinguish systems."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from medteb_mteb.curation.labels.intervals import smallest_difference
from medteb_mteb.validate.findings import Finding

if TYPE_CHECKING:
    from medteb_mteb.validate.findings import Number
    from medteb_mteb.validate.material import Material

__all__ = ["FINE_DIFFERENCE", "USABLE_DIFFERENCE", "size"]

#: Smallest detectable difference in nDCG@10 up to which a test is fine, and up to which it is of some use.
FINE_DIFFERENCE, USABLE_DIFFERENCE = 0.05, 0.10
#: Assumed standard deviation of the differences per query.
ASSUMED_DEVIATION = 0.3


def size(material: Material) -> Finding:
    """Report sizes, and the smallest difference that a paired test finds four times in five.

    The standard deviation of the differences per query is the assumed one, or the largest among the runs if
    that is larger: runs that are much alike say little about others.
    """
    queries = len(material.qrels)
    each = [len(row) for row in material.qrels.values()] or [0]
    measured = _deviation(material)
    deviation = max(ASSUMED_DEVIATION, measured or 0.0)
    numbers: dict[str, Number] = {
        "queries": queries,
        "documents": len(material.data.corpus),
        "positives": sum(each),
        "positives per query, mean": round(fmean(each), 2),
        "positives per query, most": max(each),
        "judged negatives": material.data.judged.pairs if material.data.judged.known else None,
        "disputed pairs": sum(map(len, material.data.judged.disputed.values())),
        "standard deviation of differences, assumed": ASSUMED_DEVIATION,
        "standard deviation of differences, of the runs": measured and round(measured, 4),
    }
    key, title = "size", "Large enough to tell systems apart"
    if not queries:
        return Finding(key, title, "fail", "no query has a positive", numbers)
    smallest = smallest_difference(queries, deviation)
    numbers["smallest detectable difference in nDCG@10"] = round(smallest, 4)
    source = "assumed" if deviation == ASSUMED_DEVIATION else "measured on the runs"
    reason = (
        f"{queries} queries find a difference of {smallest:.3f} in nDCG@10 four times in five (paired test "
        f"at 5 %, standard deviation of differences {deviation:.2f}, {source})"
    )
    verdict = "ok" if smallest <= FINE_DIFFERENCE else "warning" if smallest <= USABLE_DIFFERENCE else "fail"
    if verdict != "ok":
        reason += f"; {_needed(deviation):,} queries would find {FINE_DIFFERENCE}"
    return Finding(key, title, verdict, reason, numbers)  # type: ignore[arg-type]


def _deviation(material: Material) -> float | None:
    deviations = []
    for one, other in combinations(material.scores.values(), 2):
        differences = [one[query].ndcg - other[query].ndcg for query in one]
        if len(differences) > 1:
            deviations.append(stdev(differences))
    return max(deviations, default=0.0) or None


def _needed(deviation: float) -> int:
    """Return the number of queries with which the smallest detectable difference is `FINE_DIFFERENCE`."""
    return int((smallest_difference(1, deviation) / FINE_DIFFERENCE) ** 2) + 1
