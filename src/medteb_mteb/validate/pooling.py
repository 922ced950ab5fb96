"""Who was judged: how much of what systems retrieve, and how much a new system would lose."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.build.intervals import interval
from medteb_mteb.folders.judged import Judged
from medteb_mteb.measures import ENOUGH_JUDGED, means, score_queries
from medteb_mteb.report.intervals import MeanSample
from medteb_mteb.validate.findings import Finding, Table, worst

if TYPE_CHECKING:
    from medteb_mteb.measures import QueryScores
    from medteb_mteb.validate.findings import Number, Verdict
    from medteb_mteb.validate.material import Material

__all__ = ["FEWEST_JUDGED", "LARGE_BIAS", "SMALL_BIAS", "holes", "pool_bias"]

#: Share of judged documents below which nDCG measures the pools and not the system.
FEWEST_JUDGED = 0.5
#: Loss of nDCG@10 of a retriever that did not contribute: fine up to the one, a failure beyond the other.
SMALL_BIAS, LARGE_BIAS = 0.02, 0.05


def holes(material: Material) -> Finding:
    """How much of the first 10 documents of each run was judged; the worst run decides."""
    key, title = "judged@10", "What systems retrieve was judged"
    known = material.data.judged.known
    table = _table(material, known)
    if not known:
        reason = (
            "the data list no judged negatives, so unjudged documents cannot be told from wrong ones; add "
            "them to the qrels with grade 0, or as judged_negatives.tsv"
        )
        return Finding(key, title, "not known", reason, {"judged negatives": None}, table)
    shares = {name: means(found.values()).judged for name, found in material.scores.items() if found}
    judged = {name: share for name, share in shares.items() if share is not None}
    numbers: dict[str, Number] = {f"{name}, judged@10": round(share, 4) for name, share in judged.items()}
    if not judged:
        return Finding(key, title, "not known", "no run retrieved anything", numbers, table)
    name = min(judged, key=lambda run: judged[run])
    share = judged[name]
    sources = ", ".join(material.data.judged.sources)
    reason = f"{share:.1%} of the first 10 documents of {name} were judged (from {sources})"
    verdict: Verdict = "ok"
    if share < ENOUGH_JUDGED:
        verdict = "warning" if share >= FEWEST_JUDGED else "fail"
        reason += "; the others count as wrong. Judge them, or compare by condensed nDCG@10 and bpref"
    return Finding(key, title, verdict, reason, numbers, table)


def _table(material: Material, known: bool) -> Table:
    rows = []
    for name, found in material.scores.items():
        if not found:
            continue
        mean = means(found.values())
        low, high = interval(MeanSample(np.array([one.ndcg for one in found.values()])))
        share = "not known" if mean.judged is None or not known else f"{mean.judged:.1%}"
        others = [f"{mean.condensed:.4f}", f"{mean.bpref:.4f}"] if known else ["-", "-"]
        rows.append((name, f"{mean.ndcg:.4f} [{low:.4f}, {high:.4f}]", share, *others))
    return Table(("run", "nDCG@10 [95 %]", "judged@10", "condensed nDCG@10", "bpref"), tuple(rows))


def pool_bias(material: Material) -> Finding:
    """What each retriever of the pools would have lost, had it not contributed to them.

    The judgements of the documents that it alone found are taken away (J. Zobel, SIGIR 1998). Queries that
    lose their last positive are left out of both means.
    """
    key, title = "pool bias", "A new system is not marked down"
    ranks = material.ranks
    if ranks is None:
        reason = "no pools were given (--pools), so it is not known who found which document"
        return Finding(key, title, "not known", reason)
    if len(ranks.retrievers) < 2:
        return Finding(
            key, title, "not known", "the pools are of one retriever alone; two or more are needed"
        )
    outcomes = {name: _left_out(material, name) for name in ranks.retrievers}
    numbers: dict[str, Number] = {}
    rows = []
    for name, found in outcomes.items():
        loss = found["ndcg"] - found["without"]
        numbers[f"{name}, loss of nDCG@10"] = round(loss, 4)
        numbers[f"{name}, judged@10 without it"] = found["judged"] and round(found["judged"], 4)
        share = "not known" if found["judged"] is None else f"{found['judged']:.1%}"
        rows.append(
            (
                name,
                f"{found['ndcg']:.4f}",
                f"{found['without']:.4f}",
                f"{loss:+.4f}",
                share,
                str(found["lost"]),
            )
        )
    header = ("retriever", "nDCG@10", "without its own documents", "loss", "judged@10 then", "queries lost")
    kept = _order({name: found["ndcg"] for name, found in outcomes.items()})
    changed = kept != _order({name: found["without"] for name, found in outcomes.items()})
    numbers["order of the retrievers changes"] = "yes" if changed else "no"
    losses = {name: found["ndcg"] - found["without"] for name, found in outcomes.items()}
    name = max(losses, key=lambda one: abs(losses[one]))
    verdicts: list[Verdict] = ["warning" if changed else "ok"]
    verdicts.append(
        "ok" if abs(losses[name]) <= SMALL_BIAS else "warning" if abs(losses[name]) <= LARGE_BIAS else "fail"
    )
    reason = f"{name} would lose {losses[name]:.4f} of nDCG@10 had it not contributed to the pools"
    reason += "; the order of the retrievers changes" if changed else "; the order of the retrievers stays"
    verdict = worst(verdicts)
    if verdict != "ok":
        reason += ". Add retrievers of other kinds to the pools, and judge what new systems retrieve"
    return Finding(key, title, verdict, reason, numbers, Table(header, tuple(rows)))


def _order(scores: dict[str, float]) -> list[str]:
    return sorted(scores, key=lambda name: (-round(scores[name], 6), name))


def _left_out(material: Material, retriever: str) -> dict[str, Any]:
    """nDCG@10 of a retriever with all judgements, and without those of documents that it alone found."""
    assert material.ranks is not None  # noqa: S101 - the caller has looked
    run, alone = material.ranks.run(retriever), material.ranks.alone(retriever)
    reduced = {
        query: {d: score for d, score in row.items() if d not in alone.get(query, ())}
        for query, row in material.qrels.items()
    }
    judged = material.data.judged
    negatives = {q: found - alone.get(q, set()) for q, found in judged.negatives.items()}
    after = score_queries(reduced, Judged(negatives, judged.disputed), run)
    before = score_queries(material.qrels, judged, run)
    shared: list[QueryScores] = [before[query] for query in after]
    return {
        "ndcg": fmean(one.ndcg for one in shared) if shared else 0.0,
        "without": fmean(one.ndcg for one in after.values()) if after else 0.0,
        "judged": means(after.values()).judged if after and judged.known else None,
        "lost": len(before) - len(after),
    }
