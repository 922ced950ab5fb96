"""Check if grades depend on the place of a passage in the prompt, or on its length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.curation.labels.grades import POSITIVE_GRADES, by_pair, value
from medteb_mteb.validate.dominance import Graded, binned, difference, rank_correlation, ratio
from medteb_mteb.validate.findings import Finding, Table, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from medteb_mteb.curation.labels.agreement import IntervalEstimate
    from medteb_mteb.curation.labels.grades import Judgement
    from medteb_mteb.validate.findings import Number, Verdict
    from medteb_mteb.validate.material import Material

__all__ = ["SMALL_CORRELATION", "length_bias", "note", "position_bias", "severity", "shown", "verdict_of"]

#: Rank correlation (Somers' D) up to which a bias is small: of two passages with different grades the better
#: one is later in the prompt, or longer, in 55 of 100 cases instead of 50.
SMALL_CORRELATION = 0.1
_QUARTERS = 4


def position_bias(material: Material) -> Finding:
    """Compare the grades of each judge by the quarter of the prompt that holds the passage.

    `medteb judge` puts the passages in a random order, so their places are independent of their relevance,
    and every correlation is due to the judge.
    """
    key, title = "position bias", "Grades do not depend on the place in the prompt"
    if material.judgements is None:
        return Finding(key, title, "not known", "no judgements were given (--judgements)")
    if not material.places:
        reason = (
            "no places of passages were recorded: judgements of an earlier version, of other tools, or of "
            "judges that see one passage at a time"
        )
        return Finding(key, title, "not known", reason)
    numbers: dict[str, Number] = {}
    rows, correlations = [], {}
    for judge, judgements in _by_judge(material.judgements).items():
        placed = [(one, material.places.get((judge, *one.pair))) for one in judgements]
        known = [(one, place) for one, place in placed if place is not None]
        if not known:
            continue
        places = np.array([place for _, place in known])
        quarters = np.minimum((places * _QUARTERS).astype(int), _QUARTERS - 1)
        queries, number = _numbers([one for one, _ in known])
        grades = np.array([value(one.grade) for one, _ in known])
        correlations[judge] = rank_correlation(Graded(queries, grades, binned(places)), number)
        cells = _quarters(numbers, judge, ("first", "second", "third", "last"), quarters, grades, queries)
        rows.append((judge, f"{len(known):,}", *cells, shown(correlations[judge])))
        note(numbers, f"{judge}, rank correlation with the place", correlations[judge])
    defined = {judge: one for judge, one in correlations.items() if one.value == one.value}
    header = ("judge", "pairs", "first quarter", "second", "third", "last", "rank correlation [95 %]")
    table = Table(header, tuple(rows))
    if not defined:
        return Finding(key, title, "not known", "no judge gave different grades", numbers, table)
    judge = max(defined, key=lambda name: severity(defined[name]))
    verdict = worst([verdict_of(one) for one in defined.values()])
    reason = (
        f"rank correlation of the grades of {judge} with the place is {shown(defined[judge])}, of no other "
        "judge worse"
    )
    if verdict == "fail":
        reason += ". Ask for fewer passages at a time (passages), or take another judge"
    elif verdict == "warning":
        reason += (
            f": a bias beyond {SMALL_CORRELATION} cannot be excluded. Judge more pairs, or fewer passages at "
            "a time"
        )
    return Finding(key, title, verdict, reason, numbers, table)


def length_bias(material: Material) -> Finding:
    """Compare the grades of each judge by the length of the passage with those of the other judges.

    Long passages may answer more, so a correlation alone is not a bias. A correlation beyond that of the
    other judges on the same pairs is a judge's own bias; only experts can find a bias that all share.
    """
    key, title = "length bias", "All judges treat the length of passages alike"
    if material.judgements is None:
        return Finding(key, title, "not known", "no judgements were given (--judgements)")
    lengths = {row["id"]: len(row["title"]) + len(row["text"]) for row in material.data.corpus}
    kept = [one for one in material.judgements if one.document_id in lengths]
    if not kept:
        return Finding(key, title, "not known", "no judged document is in the corpus")
    bounds = np.quantile([lengths[one.document_id] for one in kept], np.arange(1, _QUARTERS) / _QUARTERS)
    numbers: dict[str, Number] = {
        f"characters, {name} quartile up to": round(float(bound))
        for name, bound in zip(("first", "second", "third"), bounds, strict=True)
    }
    rows, differences = [], {}
    compared = _compared(kept, lengths)
    for judge, judgements in _by_judge(kept).items():
        judge_lengths = np.array([lengths[one.document_id] for one in judgements], dtype=float)
        queries, number = _numbers(judgements)
        grades = np.array([value(one.grade) for one in judgements])
        plain = rank_correlation(Graded(queries, grades, binned(judge_lengths)), number)
        names = ("shortest", "second", "third", "longest")
        cells = _quarters(numbers, judge, names, np.searchsorted(bounds, judge_lengths), grades, queries)
        note(numbers, f"{judge}, rank correlation with the length", plain)
        beyond = compared.get(judge)
        if beyond is not None:
            note(numbers, f"{judge}, rank correlation beyond the others", beyond)
            if beyond.value == beyond.value:
                differences[judge] = beyond
        more = "-" if beyond is None else shown(beyond)
        rows.append((judge, f"{len(judgements):,}", *cells, shown(plain), more))
    header = (
        *("judge", "pairs", "shortest quarter", "second", "third", "longest"),
        *("rank correlation [95 %]", "beyond the others [95 %]"),
    )
    table = Table(header, tuple(rows))
    if not differences:
        reason = "no two judges have graded the same pairs, so the correlations cannot be compared"
        return Finding(key, title, "not known", reason, numbers, table)
    judge = max(differences, key=lambda name: severity(differences[name]))
    # It is unknown which judge is right, so this is a warning at worst.
    fine = all(verdict_of(one) == "ok" for one in differences.values())
    reason = (
        f"the rank correlation of grades and length of {judge} differs from that of the others by "
        f"{shown(differences[judge])}, of no other judge by more"
    )
    if not fine:
        reason += ". Have experts look at long and short passages (medteb review plan)"
    return Finding(key, title, "ok" if fine else "warning", reason, numbers, table)


def _by_judge(judgements: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    by_judge: dict[str, list[Judgement]] = {}
    for one in sorted(judgements, key=lambda one: one.judge):
        by_judge.setdefault(one.judge, []).append(one)
    return by_judge


def _numbers(judgements: Sequence[Judgement]) -> tuple[NDArray[np.int64], int]:
    """Return the number of the query of each judgement, and how many queries there are."""
    names, numbers = np.unique([one.query_id for one in judgements], return_inverse=True)
    return numbers, len(names)


def _compared(judgements: Sequence[Judgement], lengths: dict[str, int]) -> dict[str, IntervalEstimate]:
    """Return the correlation with length beyond that of the others, on the pairs that all judges graded."""
    judges, grades = by_pair(judgements)
    complete = {pair: given for pair, given in grades.items() if len(given) == len(judges)}
    if len(judges) < 2 or not complete:
        return {}
    names, queries = np.unique([query for query, _ in complete], return_inverse=True)
    bins = binned(np.array([lengths[document] for _, document in complete], dtype=float))
    by_judge = {
        judge: Graded(queries, np.array([value(given[judge]) for given in complete.values()]), bins)
        for judge in judges
    }
    return {
        judge: difference(one, tuple(other for name, other in by_judge.items() if name != judge), len(names))
        for judge, one in by_judge.items()
    }


def _quarters(
    numbers: dict[str, Number],
    judge: str,
    names: Sequence[str],
    quarters: NDArray[np.int64],
    grades: NDArray[np.int64],
    queries: NDArray[np.int64],
) -> list[str]:
    """Return the share of positives of each quarter, formatted; mean grades go to the numbers."""
    positive = np.isin(grades, [value(grade) for grade in POSITIVE_GRADES]).astype(float)
    cells = []
    for quarter, name in enumerate(names):
        inside = quarters == quarter
        if not inside.any():
            cells.append("-")
            continue
        of_query = queries[inside]
        share = ratio(positive[inside], of_query, int(queries.max()) + 1)
        mean = ratio(grades[inside].astype(float), of_query, int(queries.max()) + 1)
        numbers[f"{judge}, {name} quarter, pairs"] = int(inside.sum())
        note(numbers, f"{judge}, {name} quarter, share of positives", share)
        note(numbers, f"{judge}, {name} quarter, mean grade", mean)
        ends = "" if share.low != share.low else f" [{share.low:.1%}, {share.high:.1%}]"
        cells.append(f"{share.value:.1%}{ends}")
    return cells


def note(numbers: dict[str, Number], name: str, estimate: IntervalEstimate) -> None:
    """Add an estimate and its interval to the numbers of a point."""
    for part, number in (("", estimate.value), (", low", estimate.low), (", high", estimate.high)):
        numbers[f"{name}{part}"] = None if number != number else round(number, 4)


def severity(estimate: IntervalEstimate) -> float:
    """Return how far from no correlation the interval reaches."""
    return (
        max(abs(estimate.value), abs(estimate.low), abs(estimate.high))
        if estimate.low == estimate.low
        else 2.0
    )


def verdict_of(estimate: IntervalEstimate) -> Verdict:
    """Return ok if the interval is within `SMALL_CORRELATION`, fail if it is beyond, else a warning."""
    if estimate.low > SMALL_CORRELATION or estimate.high < -SMALL_CORRELATION:
        return "fail"
    return "ok" if estimate.low >= -SMALL_CORRELATION and estimate.high <= SMALL_CORRELATION else "warning"


def shown(estimate: IntervalEstimate) -> str:
    """Return an estimate with its sign and interval, for tables."""
    if estimate.value != estimate.value:
        return "-"
    ends = "not known" if estimate.low != estimate.low else f"{estimate.low:+.3f}, {estimate.high:+.3f}"
    return f"{estimate.value:+.3f} [{ends}]"
