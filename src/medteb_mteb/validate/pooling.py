"""Judged shares of the systems' results, and the score that a new system would lose."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean
from typing import TYPE_CHECKING

from medteb_mteb.curation.labels.agreement import IntervalEstimate
from medteb_mteb.curation.labels.intervals import rounded
from medteb_mteb.measures import ENOUGH_JUDGED, Judged, means, score_queries
from medteb_mteb.validate.clusters import mean_of_queries
from medteb_mteb.validate.findings import Finding, Table, worst

if TYPE_CHECKING:
    from medteb_mteb.validate.findings import Number, Verdict
    from medteb_mteb.validate.material import Material
    from medteb_mteb.validate.ranks import Ranks

__all__ = ["LARGE_BIAS", "MIN_JUDGED_SHARE", "SMALL_BIAS", "holes", "pool_bias"]

#: Share of judged documents below which nDCG measures the pools and not the system.
MIN_JUDGED_SHARE = 0.5
#: Loss of nDCG@10 of a retriever that did not contribute: ok up to the first, a failure above the second.
SMALL_BIAS, LARGE_BIAS = 0.02, 0.05


def holes(material: Material) -> Finding:
    """Measure the judged share of the first 10 documents of each run; the worst run decides."""
    key, title = "judged@10", "Retrieved documents were judged"
    known = material.data.judged.known
    table = _table(material, known)
    if not known:
        reason = (
            "the data list no judged negatives, so unjudged documents cannot be distinguished from wrong "
            "ones; add them to the qrels with grade 0, or as judged_negatives.tsv"
        )
        return Finding(key, title, "not known", reason, {"judged negatives": None}, table)
    shares = {name: means(scores.values()).judged for name, scores in material.scores.items() if scores}
    judged = {name: share for name, share in shares.items() if share is not None}
    numbers: dict[str, Number] = {f"{name}, judged@10": round(share, 4) for name, share in judged.items()}
    if not judged:
        return Finding(key, title, "not known", "no run retrieved anything", numbers, table)
    name = min(judged, key=lambda run: judged[run])
    share = judged[name]
    sources = ", ".join(material.data.judged.sources)
    reason = f"{share:.1%} of the first 10 documents of {name} were judged (from {sources})"
    verdict = _by_share(share)
    if verdict != "ok":
        reason += "; the others count as wrong. Judge them, or compare by condensed nDCG@10 and bpref"
    return Finding(key, title, verdict, reason, numbers, table)


def _table(material: Material, known: bool) -> Table:
    rows = []
    for name, scores in material.scores.items():
        if not scores:
            continue
        mean = means(scores.values())
        ndcg = mean_of_queries(material, {query: one.ndcg for query, one in scores.items()})
        share = "not known" if mean.judged is None or not known else f"{mean.judged:.1%}"
        others = [f"{mean.condensed:.4f}", f"{mean.bpref:.4f}"] if known else ["-", "-"]
        rows.append((name, f"{mean.ndcg:.4f}{_ends(ndcg)}", share, *others))
    return Table(("run", "nDCG@10 [95 %]", "judged@10", "condensed nDCG@10", "bpref"), tuple(rows))


def pool_bias(material: Material) -> Finding:
    """Estimate pool bias: the score that each retriever would lose if it had not contributed to the pools.

    The judgements of documents that it alone found are removed (J. Zobel, SIGIR 1998). Queries that lose
    their last positive are left out of both means. Losses are paired by query, and their intervals are over
    clusters of near-duplicate queries.
    """
    key, title = "pool bias", "New systems are scored fairly (pool bias)"
    ranks = material.ranks
    if ranks is None:
        reason = "no pools were given (--pools), so it is unknown which retriever found which document"
        return Finding(key, title, "not known", reason)
    if len(ranks.retrievers) < 2:
        return Finding(
            key, title, "not known", "the pools are of one retriever alone; two or more are needed"
        )
    outcomes = {name: _left_out(material, ranks, name) for name in ranks.retrievers}
    changed = _order({n: o.ndcg for n, o in outcomes.items()}) != _order(
        {n: o.without for n, o in outcomes.items()}
    )
    numbers: dict[str, Number] = {}
    for name, outcome in outcomes.items():
        numbers[f"{name}, loss of nDCG@10"] = round(outcome.loss.value, 4)
        for end, value in (("low", outcome.loss.low), ("high", outcome.loss.high)):
            numbers[f"{name}, loss of nDCG@10, {end}"] = rounded(value)
        share = outcome.judged
        numbers[f"{name}, judged@10 without it"] = None if share is None else round(share, 4)
    numbers["order of the retrievers changes"] = "yes" if changed else "no"
    header = (
        *("retriever", "nDCG@10", "without its own documents", "loss [95 %]"),
        *("judged@10 then", "queries lost"),
    )
    table = Table(header, tuple((name, *outcome.cells()) for name, outcome in outcomes.items()))
    name = max(outcomes, key=lambda one: outcomes[one].loss.value)
    largest = outcomes[name].loss
    verdicts: list[Verdict] = ["warning" if changed else "ok", _by_loss(largest.value)]
    reason = (
        f"{name} would lose {largest.value:.4f} of nDCG@10{_ends(largest)} had it not contributed to the "
        "pools"
        if round(largest.value, 4) > 0
        else "no retriever would lose nDCG@10 had it not contributed to the pools"
    )
    if shares := {n: o.judged for n, o in outcomes.items() if o.judged is not None}:
        least = min(shares, key=lambda one: shares[one])
        verdicts.append(_by_share(shares[least]))
        reason += f"; {shares[least]:.1%} of the first 10 documents of {least} would be judged"
    reason += f"; the order of the retrievers {'changes' if changed else 'stays'}"
    verdict = worst(verdicts)
    if verdict != "ok":
        reason += (
            ". Add retrievers of other kinds to the pools, and judge what new systems retrieve (medteb "
            "edition extend)"
        )
    return Finding(key, title, verdict, reason, numbers, table)


@dataclass(frozen=True)
class _LeaveOneOut:
    """A retriever measured with all judgements, and without those of documents that it alone found.

    Attributes:
        ndcg: nDCG@10 with all judgements.
        without: nDCG@10 without the judgements of documents that it alone found.
        loss: Difference of the two.
        judged: judged@10 without these judgements, or None if unknown.
        lost: Number of queries left without a positive; both scores ignore them.
    """

    ndcg: float
    without: float
    loss: IntervalEstimate
    judged: float | None
    lost: int

    def cells(self) -> tuple[str, ...]:
        """Return a row of the table."""
        share = "not known" if self.judged is None else f"{self.judged:.1%}"
        loss = f"{self.loss.value:+.4f}{_ends(self.loss, '+.4f')}"
        return f"{self.ndcg:.4f}", f"{self.without:.4f}", loss, share, str(self.lost)


def _ends(estimate: IntervalEstimate, form: str = ".4f") -> str:
    """Return the interval of an estimate, with a space before it; empty with too few queries."""
    if isnan(estimate.low):
        return ""
    return f" [{estimate.low:{form}}, {estimate.high:{form}}]"


def _by_loss(loss: float) -> Verdict:
    return "ok" if loss <= SMALL_BIAS else "warning" if loss <= LARGE_BIAS else "fail"


def _by_share(judged: float) -> Verdict:
    return "ok" if judged >= ENOUGH_JUDGED else "warning" if judged >= MIN_JUDGED_SHARE else "fail"


def _order(scores: dict[str, float]) -> list[str]:
    return sorted(scores, key=lambda name: (-round(scores[name], 6), name))


def _left_out(material: Material, ranks: Ranks, retriever: str) -> _LeaveOneOut:
    run, alone = ranks.run(retriever), ranks.alone(retriever)
    reduced = {
        query: {d: score for d, score in row.items() if d not in alone.get(query, ())}
        for query, row in material.qrels.items()
    }
    judged = material.data.judged
    negatives = {q: documents - alone.get(q, set()) for q, documents in judged.negatives.items()}
    after = score_queries(reduced, Judged(negatives, judged.disputed), run)
    before = score_queries(material.qrels, judged, run)
    if not after:
        return _LeaveOneOut(0.0, 0.0, IntervalEstimate(0.0, nan, nan), None, len(before))
    losses = {query: before[query].ndcg - one.ndcg for query, one in after.items()}
    return _LeaveOneOut(
        fmean(before[query].ndcg for query in after),
        fmean(one.ndcg for one in after.values()),
        mean_of_queries(material, losses),
        means(after.values()).judged if judged.known else None,
        len(before) - len(after),
    )
