"""Check if other judges, another rule or shallower pools would order the systems differently."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.curation.labels.consensus import ConsensusRule, consensus
from medteb_mteb.measures import Judged, score_queries
from medteb_mteb.validate.findings import Finding, Table, worst

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from medteb_mteb.curation.labels.grades import Judgement
    from medteb_mteb.validate.findings import Number, Verdict
    from medteb_mteb.validate.material import Material

__all__ = ["OTHER_ORDER_TAU", "SAME_ORDER_TAU", "kendall", "order_of_systems"]

#: Kendall's tau from which two orders count as equal, and below which they clearly differ (E. Voorhees, SIGIR
#: 1998 and 2001).
SAME_ORDER_TAU, OTHER_ORDER_TAU = 0.9, 0.8
#: Minimum number of systems, most judges of which all subsets are tried, depths of pools, bootstrap samples.
MIN_SYSTEMS, MAX_SUBSET_JUDGES, POOL_DEPTHS, SAMPLES = 3, 4, (5, 10, 20, 50, 100), 1000


@dataclass(frozen=True)
class _Labels:
    """A labelling of the same queries: relevance by query and document, and what else was judged."""

    name: str
    qrels: dict[str, dict[str, int]]
    judged: Judged


def order_of_systems(material: Material) -> Finding:
    """Compare the systems' order by nDCG@10 with that under other labels, by Kendall's tau.

    The systems are the runs and, if these are too few, also the retrievers of the pools. Labels are varied in
    one way at a time: the judges (all subsets of up to four, else each alone and each left out), the rule,
    and the depth of the pools. Samples of queries are the same for both orders; queries without a positive
    under the other labels count in neither.
    """
    key, title = "order of systems", "The order of systems does not depend on judges, rules and pool depth"
    systems: dict[str, Any] = dict(material.runs)
    if len(systems) < MIN_SYSTEMS and material.ranks is not None:
        systems |= {f"pool: {name}": material.ranks.run(name) for name in material.ranks.retrievers}
    if len(systems) < MIN_SYSTEMS:
        reason = f"{len(systems)} systems have no order to speak of; give {MIN_SYSTEMS} runs or more (--run)"
        return Finding(key, title, "not known", reason)
    variants = list(_variants(material))
    if not variants:
        reason = "neither judgements (--judgements) nor pools (--pools) were given"
        return Finding(key, title, "not known", reason)
    edition = _scores(_Labels("edition", material.qrels, material.data.judged), systems)
    compared = [(labels.name, _compared(edition, _scores(labels, systems))) for labels in variants]
    known = [(name, one) for name, one in compared if one is not None]
    if not known:
        return Finding(key, title, "not known", "no query has a positive under other labels")
    numbers: dict[str, Number] = {"systems": len(systems)}
    for name, one in known:
        numbers[f"{name}, tau"] = round(one.tau, 4)
    noise = _noise(edition)
    numbers["queries alone, tau, mean"] = round(noise, 4)
    rows = tuple(
        (name, str(one.queries), f"{one.tau:.3f} [{one.low:.3f}, {one.high:.3f}]", one.first)
        for name, one in known
    )
    verdict = worst([one.verdict for _, one in known])
    name, lowest = min(known, key=lambda entry: entry[1].tau)
    reason = (
        f"{len(systems)} systems under {len(known)} other labellings: the lowest tau is {lowest.tau:.3f} "
        f"[{lowest.low:.3f}, {lowest.high:.3f}] ({name}); other queries of the same kind give {noise:.3f}"
    )
    if verdict != "ok":
        reason += ". Report what holds under every one of them"
    header = ("labels", "queries", "Kendall's tau with the edition [95 %]", "first")
    return Finding(key, title, verdict, reason, numbers, Table(header, rows))


def kendall(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Kendall's tau (b) of pairs of score vectors; a tie in both is ignored, one in either lowers it.

    It handles all samples of a bootstrap at once. For 1,000 samples of six systems it takes 0.13 ms,
    `scipy.stats.kendalltau` with `axis=1` 118 ms (2 processors of an Intel Xeon).

    Args:
        one: Scores, shape (samples, systems).
        other: Other scores of the same shape.

    Returns:
        Shape (samples,): 1 for the same order, -1 for the opposite one; 0 if one of them has no order.
    """
    first, second = np.triu_indices(one.shape[1], 1)
    a, b = np.sign(one[:, first] - one[:, second]), np.sign(other[:, first] - other[:, second])
    most = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.asarray((a * b).sum(axis=1) / np.maximum(most, 1), dtype=np.float64)


@dataclass(frozen=True)
class _Compared:
    """Tau of two orders, its interval, and the system that is first under the other labels."""

    queries: int
    tau: float
    low: float
    high: float
    first: str

    @property
    def verdict(self) -> Verdict:
        """Return fail if the whole interval is below `OTHER_ORDER_TAU`, ok if the orders are alike."""
        if self.high < OTHER_ORDER_TAU:
            return "fail"
        return "ok" if self.tau >= SAME_ORDER_TAU and self.low > 0 else "warning"


def _scores(labels: _Labels, systems: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return nDCG@10 by query and system."""
    scores: dict[str, dict[str, float]] = {}
    for name, run in systems.items():
        for query, one in score_queries(labels.qrels, labels.judged, run).items():
            scores.setdefault(query, {})[name] = one.ndcg
    return scores


def _table(scores: Mapping[str, Mapping[str, float]], queries: Sequence[str]) -> NDArray[np.float64]:
    return np.array([list(scores[query].values()) for query in queries])


def _samples(number: int) -> NDArray[np.float64]:
    """Return the weights of queries in bootstrap samples, shape (samples, queries)."""
    draw = np.random.default_rng(0)
    return draw.multinomial(number, np.full(number, 1 / number), size=SAMPLES) / number


def _compared(
    edition: Mapping[str, Mapping[str, float]], other: Mapping[str, Mapping[str, float]]
) -> _Compared | None:
    queries = sorted(set(edition) & set(other))
    if not queries:
        return None
    one, two = _table(edition, queries), _table(other, queries)
    tau = float(kendall(one.mean(axis=0)[None], two.mean(axis=0)[None])[0])
    weights = _samples(len(queries))
    low, high = np.percentile(kendall(weights @ one, weights @ two), [2.5, 97.5])
    first = list(other[queries[0]])[int(two.mean(axis=0).argmax())]
    return _Compared(len(queries), tau, float(low), float(high), first)


def _noise(edition: Mapping[str, Mapping[str, float]]) -> float:
    """Return the mean tau of the edition's order with that of a sample of its queries."""
    scores = _table(edition, sorted(edition))
    sampled = _samples(len(scores)) @ scores
    return float(kendall(np.broadcast_to(scores.mean(axis=0), sampled.shape), sampled).mean())


def _variants(material: Material) -> Iterator[_Labels]:
    if material.judgements:
        judges = sorted({one.judge for one in material.judgements})
        for some in _subsets(judges):
            yield _labelled(f"judges: {', '.join(some)}", material.judgements, ConsensusRule(only=some))
        kinds = (
            [ConsensusRule(rule="unanimous"), ConsensusRule(rule="majority"), ConsensusRule(rule="graded")]
            if len(judges) > 1
            else [ConsensusRule(rule="graded")]
        )
        for rule in kinds:
            yield _labelled(f"rule: {rule.rule}", material.judgements, rule)
    if material.ranks is not None:
        nearest = {
            query: {document: min(ranks.values()) for document, ranks in row.items() if ranks}
            for query, row in material.ranks.by_query.items()
        }
        deepest = max((rank for row in nearest.values() for rank in row.values()), default=0)
        for depth in POOL_DEPTHS:
            if depth < deepest:
                yield _shallower(material, nearest, depth)


def _subsets(judges: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield all proper subsets; of many judges, only each judge alone and all but one."""
    sizes = range(1, len(judges)) if len(judges) <= MAX_SUBSET_JUDGES else (1, len(judges) - 1)
    for size in sizes:
        yield from combinations(judges, size)


def _labelled(name: str, judgements: Sequence[Judgement], rule: ConsensusRule) -> _Labels:
    qrels: dict[str, dict[str, int]] = {}
    negatives: dict[str, set[str]] = {}
    disputed: dict[str, set[str]] = {}
    counted = [one for one in judgements if not rule.judges or one.judge in rule.judges]
    for label in consensus(counted, rule):
        if label.relevance:
            qrels.setdefault(label.query_id, {})[label.document_id] = label.relevance
        else:
            into = negatives if label.relevance == 0 else disputed
            into.setdefault(label.query_id, set()).add(label.document_id)
    judged = Judged(
        {query: frozenset(documents) for query, documents in negatives.items()},
        {query: frozenset(documents) for query, documents in disputed.items()},
    )
    return _Labels(name, qrels, judged)


def _shallower(material: Material, nearest: Mapping[str, Mapping[str, int]], depth: int) -> _Labels:
    """Return the edition's labels of documents that some retriever has among its first `depth`."""

    def inside(query: str, document: str) -> bool:
        return nearest.get(query, {}).get(document, depth + 1) <= depth

    qrels = {q: {d: score for d, score in row.items() if inside(q, d)} for q, row in material.qrels.items()}
    judged = material.data.judged
    negatives = {q: frozenset(d for d in row if inside(q, d)) for q, row in judged.negatives.items()}
    return _Labels(
        f"depth: {depth}", {q: row for q, row in qrels.items() if row}, Judged(negatives, judged.disputed)
    )
