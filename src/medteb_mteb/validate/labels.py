"""Checks of labels, by judges and experts, and of the scores that they give."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import somersd

from mar_st.errors import MarError
from medteb_mteb.curation.labels.agreement import agreement
from medteb_mteb.curation.labels.consensus import ConsensusRule, consensus
from medteb_mteb.curation.labels.grades import value
from medteb_mteb.measures import ENOUGH_JUDGED, Judged, means, score_queries
from medteb_mteb.report.intervals import IntervalEstimate
from medteb_mteb.report.page import Finding, Table, graded, with_interval, worst

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from medteb_mteb.report.page import Verdict
    from medteb_mteb.validate.material import Material

#: Share of judged documents below which nDCG measures the pools and not the system.
MIN_JUDGED_SHARE = 0.5
#: Loss of nDCG@10 of a retriever that did not contribute: ok up to the first, a failure above the second.
SMALL_BIAS, LARGE_BIAS = 0.02, 0.05
#: Kendall's tau from which two orders count as equal, and below which they clearly differ (E. Voorhees, SIGIR
#: 1998 and 2001); minimum number of systems; bootstrap samples.
SAME_ORDER_TAU, OTHER_ORDER_TAU, MIN_SYSTEMS, SAMPLES = 0.9, 0.8, 3, 1000


def holes(material: Material) -> Finding:
    """Measure the judged share of the first 10 documents of each run; the worst run decides."""
    title, known = "Retrieved documents were judged", material.data.judged.known
    rows, judged = [], {}
    for name, scores in material.scores.items():
        if not scores:
            continue
        mean = means(scores.values())
        ndcg = material.mean({query: one.ndcg for query, one in scores.items()})
        if known and mean.judged is not None:
            judged[name] = mean.judged
            more = (f"{mean.judged:.1%}", f"{mean.condensed:.4f}", f"{mean.bpref:.4f}")
        else:
            more = ("not known", "-", "-")
        rows.append((name, with_interval(*ndcg), *more))
    table = Table(("run", "nDCG@10 [95 %]", "judged@10", "condensed nDCG@10", "bpref"), tuple(rows))
    if not known:
        reason = (
            "the data list no judged negatives, so unjudged documents cannot be told from wrong ones; "
            "add them to the qrels with grade 0, or as labels.tsv"
        )
        return Finding(title, "not known", reason, table=table)
    if not judged:
        return Finding(title, "not known", "no run retrieved anything", table=table)
    name = min(judged, key=lambda run: judged[run])
    reason = f"{judged[name]:.1%} of the first 10 documents of {name} were judged"
    verdict = graded(judged[name], ENOUGH_JUDGED, MIN_JUDGED_SHARE)
    if verdict != "ok":
        reason += "; the others count as wrong. Judge them, or compare by condensed nDCG@10 and bpref"
    return Finding(title, verdict, reason, table=table)


def pool_bias(material: Material) -> Finding:
    """Estimate pool bias: the score that each retriever would lose if it had not contributed to the pools.

    The judgements of documents that it alone found are removed (J. Zobel, SIGIR 1998). Queries that lose
    their last positive are left out of both means.
    """
    title, pooled = "New systems are scored fairly (pool bias)", material.pooled
    if len(pooled) < 2:
        return Finding(title, "not known", "no pools of two or more retrievers were given (--build)")
    rows, losses, before, after = [], {}, {}, {}
    for name in pooled:
        with_own, without = _left_out(material, name)
        lost = str(len(with_own) - len(without))
        if not without:
            rows.append((name, "-", "-", "-", lost))
            continue
        loss = material.mean({query: with_own[query] - without[query] for query in without})
        losses[name], after[name] = loss.value, fmean(without.values())
        before[name] = fmean(with_own[query] for query in without)
        scores = (f"{before[name]:.4f}", f"{after[name]:.4f}")
        rows.append((name, *scores, with_interval(*loss, "+.4f"), lost))
    table = Table(("retriever", "nDCG@10", "without its own", "loss [95 %]", "queries lost"), tuple(rows))
    if len(losses) < len(pooled):
        alone = ", ".join(name for name in pooled if name not in losses)
        reason = f"no query keeps a positive without the documents that {alone} alone found"
        return Finding(title, "fail", f"{reason}. Add retrievers to the pools", table=table)
    changed = sorted(before, key=lambda one: -before[one]) != sorted(after, key=lambda one: -after[one])
    name = max(losses, key=lambda one: losses[one])
    verdict = worst([graded(losses[name], SMALL_BIAS, LARGE_BIAS), "warning" if changed else "ok"])
    reason = (
        f"{name} would lose {losses[name]:.4f} of nDCG@10 had it not contributed to the pools; "
        f"the order of the retrievers {'changes' if changed else 'stays'}"
    )
    if verdict != "ok":
        reason += ". Add retrievers of other kinds to the pools, and judge what new systems retrieve"
    return Finding(title, verdict, reason, table=table)


def order_of_systems(material: Material) -> Finding:
    """Compare the systems' order by nDCG@10 with that under other labels, by Kendall's tau.

    The systems are the runs and, if these are too few, also the retrievers of the pools. Labels are varied in
    one way at a time: each judge alone, each judge left out, other rules. Samples of queries are the same for
    both orders; queries without a positive under the other labels count in neither.
    """
    title = "The order of systems does not depend on judges and rules"
    systems: dict[str, Any] = dict(material.runs)
    if len(systems) < MIN_SYSTEMS:
        systems |= {f"pool: {name}": run for name, run in material.pooled.items()}
    if len(systems) < MIN_SYSTEMS or not material.judgements:
        reason = f"needs judgements (--build) and {MIN_SYSTEMS} systems (--run), has {len(systems)}"
        return Finding(title, "not known", reason)
    edition = _scores(material.qrels, material.data.judged, systems)
    rows, verdicts, taus = [], list[Any](), dict[str, float]()
    for name, rule in _rules(sorted({one.judge for one in material.judgements})):
        other = _scores(*_labelled(material, rule), systems)
        queries = sorted(set(edition) & set(other))
        if not queries:
            continue
        one, two = (np.array([list(each[query].values()) for query in queries]) for each in (edition, other))
        weights = np.random.default_rng(0).multinomial(
            len(queries), [1 / len(queries)] * len(queries), SAMPLES
        )
        tau = float(kendall(one.mean(axis=0)[None], two.mean(axis=0)[None])[0])
        low, high = np.percentile(kendall(weights @ one, weights @ two), [2.5, 97.5])
        same = tau >= SAME_ORDER_TAU and low > 0
        verdicts.append("fail" if high < OTHER_ORDER_TAU else "ok" if same else "warning")
        taus[name] = tau
        best = list(systems)[int(two.mean(axis=0).argmax())]
        rows.append((name, str(len(queries)), f"{tau:.3f} [{low:.3f}, {high:.3f}]", best))
    table = Table(("labels", "queries", "Kendall's tau with the edition [95 %]", "first"), tuple(rows))
    if not taus:
        return Finding(title, "not known", "no query has a positive under other labels", table=table)
    name, verdict = min(taus, key=lambda one: taus[one]), worst(verdicts)
    reason = (
        f"{len(systems)} systems, {len(taus)} other labellings: the lowest tau is {taus[name]:.3f} ({name})"
    )
    if verdict != "ok":
        reason += ". Report what holds under every one of them"
    return Finding(title, verdict, reason, table=table)


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


def _left_out(material: Material, retriever: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return nDCG@10 by query of a retriever's run, with all labels and without those that it alone gave."""
    run = material.pooled[retriever]
    others = [other for name, other in material.pooled.items() if name != retriever]
    shared = {query: {d for other in others for d in other.get(query, ())} for query in run}
    reduced = {
        query: {d: score for d, score in row.items() if d not in run.get(query, ()) or d in shared[query]}
        for query, row in material.qrels.items()
    }
    judged = material.data.judged
    before = score_queries(material.qrels, judged, run)
    after = score_queries({query: row for query, row in reduced.items() if row}, judged, run)
    return {q: one.ndcg for q, one in before.items()}, {q: one.ndcg for q, one in after.items()}


def _scores(
    qrels: Mapping[str, Mapping[str, int]], judged: Judged, systems: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    """Return nDCG@10 by query and system."""
    scores: dict[str, dict[str, float]] = {}
    for name, run in systems.items():
        for query, one in score_queries(qrels, judged, run).items():
            scores.setdefault(query, {})[name] = one.ndcg
    return scores


def _rules(judges: Sequence[str]) -> Iterator[tuple[str, ConsensusRule]]:
    for size in sorted({1, len(judges) - 1} - {0, len(judges)}):
        for judge in judges:
            some = (judge,) if size == 1 else tuple(one for one in judges if one != judge)
            yield f"judges: {', '.join(some)}", ConsensusRule(only=some)
    yield "rule: graded", ConsensusRule(rule="graded")
    if len(judges) > 1:
        yield "rule: unanimous", ConsensusRule(rule="unanimous")
        yield "rule: majority", ConsensusRule(rule="majority")


def _labelled(material: Material, rule: ConsensusRule) -> tuple[dict[str, dict[str, int]], Judged]:
    """Return the labels of all judged pairs under a rule."""
    qrels: dict[str, dict[str, int]] = {}
    others: dict[bool, dict[str, set[str]]] = {True: {}, False: {}}
    for label in consensus(material.judgements or (), rule):
        if label.relevance:
            qrels.setdefault(label.query_id, {})[label.document_id] = label.relevance
        else:
            others[label.relevance is None].setdefault(label.query_id, set()).add(label.document_id)
    disputed, negatives = ({q: frozenset(d) for q, d in others[kind].items()} for kind in (True, False))
    return qrels, Judged(negatives, disputed)


#: Krippendorff's alpha from which tentative conclusions may be drawn (K. Krippendorff, 2018, chapter 12), and
#: below which labels are little better than chance.
TENTATIVE_ALPHA, POOR_ALPHA = 0.667, 0.4
#: Rank correlation (Somers' D of the place given the grade) up to which a bias is small: of two passages with
#: different grades the better one is later in the prompt in 55 of 100 cases instead of 50; p-value below
#: which a larger one is a failure.
SMALL_CORRELATION, SIGNIFICANT = 0.1, 0.05
#: Share of positives, and of negatives, that experts confirm, for `ok` and for `warning`; minimum number of
#: answers to each for a verdict.
CONFIRMED_SHARES, MIN_ANSWERS = (0.90, 0.75), 20


def agreement_of_judges(material: Material) -> Finding:
    """Measure the agreement of the judges on the pairs of this edition's queries."""
    title = "Judges agree"
    if material.judgements is None:
        return Finding(title, "not known", "no judgements were given (--build)")
    try:
        measured = agreement(material.judgements)
    except MarError as error:
        return Finding(title, "not known", str(error))
    alpha = measured.labels["krippendorff_alpha"]
    rows = tuple(
        (
            name.replace("_", " "),
            *(with_interval(*one[name], ".3f") for one in (measured.labels, measured.grades)),
        )
        for name in measured.labels
    )
    table = Table(("coefficient", "positive or negative [95 %]", "letters [95 %]"), rows)
    numbers = {"judges": len(measured.judges), "pairs": measured.pairs}
    if math.isnan(alpha.value):
        return Finding(title, "not known", "all labels are of one kind", numbers, table)
    verdict = graded(alpha.value, TENTATIVE_ALPHA, POOR_ALPHA)
    judges, pairs = len(measured.judges), measured.pairs
    reason = f"Krippendorff's alpha of {judges} judges on {pairs:,} pairs is {with_interval(*alpha, '.3f')}"
    if verdict != "ok":
        reason += f", below {TENTATIVE_ALPHA}. Look at the pairs they differ on (medteb review)"
    return Finding(title, verdict, reason, numbers, table)


def position_bias(material: Material) -> Finding:
    """Compare the grades of each judge by the place of the passage in the prompt.

    `medteb judge` puts the passages in a random order, so their places are independent of their relevance,
    and every correlation is due to the judge.
    """
    title = "Grades do not depend on the place in the prompt"
    if not material.judgements or not material.places:
        return Finding(title, "not known", "no judgements with places in a prompt were given (--build)")
    found = {}
    for judge in sorted({one.judge for one in material.judgements}):
        placed = [
            (value(one.grade), material.places[judge, *one.pair])
            for one in material.judgements
            if one.judge == judge and one.grade and (judge, *one.pair) in material.places
        ]
        if len({grade for grade, _ in placed}) > 1:
            found[judge] = somersd(*np.array(placed).T)
    if not found:
        return Finding(title, "not known", "no judge gave different grades")
    rows = tuple((judge, f"{one.statistic:.3f}", f"{one.pvalue:.4f}") for judge, one in found.items())
    judge = max(found, key=lambda name: abs(found[name].statistic))
    size, p = abs(found[judge].statistic), found[judge].pvalue
    verdict: Verdict = "ok" if size <= SMALL_CORRELATION else "fail" if p < SIGNIFICANT else "warning"
    reason = f"rank correlation of the grades of {judge}, the worst, with the place is {size:.3f}"
    if verdict != "ok":
        reason += ". Ask for fewer passages at a time (passages), or take another judge"
    return Finding(title, verdict, reason, table=Table(("judge", "Somers' D", "p"), rows))


def accuracy_of_labels(material: Material) -> Finding:
    """Look whether experts confirm the labels that they have reviewed."""
    title, report = "Experts confirm the labels", material.review
    if report is None:
        reason = "no answers of experts were given (--review: the folder of medteb review --answer)"
        return Finding(title, "not known", reason)
    numbers = {"experts": len(report["by_reviewer"]), "kappa": report["kappa"], "pairs": report["pairs"]}
    confirmed = {
        name: IntervalEstimate(*one["share"])
        for name, one in report["confirmed"].items()
        if one["pairs"] >= MIN_ANSWERS
    }
    if not confirmed:
        reason = f"experts answered fewer than {MIN_ANSWERS} positives and fewer than {MIN_ANSWERS} negatives"
        return Finding(title, "not known", reason, numbers)
    shown = " and ".join(f"{with_interval(*share, '.1%')} of the {name}" for name, share in confirmed.items())
    verdict = worst([graded(share.value, *CONFIRMED_SHARES) for share in confirmed.values()])
    return Finding(title, verdict, f"experts confirm {shown}", numbers)
