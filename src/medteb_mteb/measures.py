"""Share of a ranking that was judged, and scores that do not count unjudged documents as wrong.

By trec_eval's definitions: `judged@k` is the share of judged documents among the first k (or fewer, if fewer
were retrieved); condensed nDCG is nDCG of the ranking without its unjudged documents, as in `trec_eval -J`
(T. Sakai, SIGIR 2007); `bpref` counts judged negatives above each positive (C. Buckley, E. Voorhees,
SIGIR 2004).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Number of documents of a ranking that count.
CUTOFF = 10
#: Share of judged documents below which a comparison by nDCG misleads.
ENOUGH_JUDGED = 0.8
#: Scores beside the main one of a retrieval task whose judged negatives are known: names in mteb's results,
#: and in tables.
HOLES = {"judged_at_10": "judged@10", "condensed_ndcg_at_10": "condensed nDCG@10", "bpref": "bpref"}


@dataclass(frozen=True)
class Judged:
    """Judgements of a test besides its positives.

    Attributes:
        negatives: Query id -> ids of the documents judged irrelevant.
        disputed: Query id -> ids of the documents that the judges disagree on; neither positive nor negative.
        contradictions: Pairs that are positive in one file and negative in the other; the qrels count.
        dangling: Pairs of these files whose query or document does not exist.
    """

    negatives: Mapping[str, frozenset[str]] = field(default_factory=dict)
    disputed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    contradictions: int = 0
    dangling: int = 0

    @property
    def known(self) -> bool:
        """Return True if negatives are listed, which distinguishes wrong documents from unjudged ones."""
        return any(self.negatives.values())

    @property
    def pairs(self) -> int:
        """Return the number of judged negatives."""
        return sum(map(len, self.negatives.values()))


@dataclass(frozen=True)
class QueryScores:
    """Scores of one ranking.

    Attributes:
        ndcg: nDCG@10, unjudged documents counted as wrong.
        judged: Share of the first 10 documents that were judged; None if nothing was retrieved.
        bpref: bpref.
        condensed: nDCG@10 of only the judged documents.
    """

    ndcg: float
    judged: float | None
    bpref: float
    condensed: float


def ranked(scores: Mapping[str, float]) -> list[str]:
    """Return documents best first; equal scores in trec_eval's order, by id from the last."""
    return sorted(scores, key=lambda document: (scores[document], document), reverse=True)


def without_disputed(run: Mapping[str, Mapping[str, float]], judged: Judged) -> dict[str, dict[str, float]]:
    """Return a run without the documents that the judges of a query disagree on."""
    return {
        query: {d: s for d, s in scores.items() if d not in judged.disputed.get(query, ())}
        for query, scores in run.items()
    }


def score_queries(
    qrels: Mapping[str, Mapping[str, int]], judged: Judged, run: Mapping[str, Mapping[str, float]]
) -> dict[str, QueryScores]:
    """Return scores of every query that has a positive; disputed documents are left out of its ranking first.

    Args:
        qrels: Relevance by query and document.
        judged: Other pairs that were judged. Unless it is `known`, only `ndcg` has a meaning.
        run: Scores by query and document, higher is better. A missing query has an empty ranking.
    """
    import pytrec_eval  # lazy: pytrec_eval

    positives = {q: {d: s for d, s in row.items() if s > 0} for q, row in qrels.items()}
    everything = {
        query: {**dict.fromkeys(judged.negatives.get(query, ()), 0), **row}
        for query, row in positives.items()
        if row
    }
    run = without_disputed({query: run.get(query, {}) for query in everything}, judged)
    condensed = {q: {d: s for d, s in scores.items() if d in everything[q]} for q, scores in run.items()}

    def evaluate(of: Mapping[str, Mapping[str, float]], measure: str) -> dict[str, float]:
        name = measure.replace(".", "_")
        scored = pytrec_eval.RelevanceEvaluator(everything, {measure}).evaluate(of)
        return {query: float(row[name]) for query, row in scored.items()}

    ndcg, bpref = evaluate(run, f"ndcg_cut.{CUTOFF}"), evaluate(run, "bpref")
    alone = evaluate(condensed, f"ndcg_cut.{CUTOFF}")
    return {
        query: QueryScores(ndcg[query], _judged(run[query], row), bpref[query], alone[query])
        for query, row in everything.items()
    }


def means(scores: Iterable[QueryScores]) -> QueryScores:
    """Return means over one or more queries; for `judged`, over those that retrieved something."""
    rows = list(scores)
    shares = [row.judged for row in rows if row.judged is not None]
    return QueryScores(
        fmean(row.ndcg for row in rows),
        fmean(shares) if shares else None,
        fmean(row.bpref for row in rows),
        fmean(row.condensed for row in rows),
    )


def _judged(scores: Mapping[str, float], row: Mapping[str, int]) -> float | None:
    first = ranked(scores)[:CUTOFF]
    return sum(document in row for document in first) / len(first) if first else None
