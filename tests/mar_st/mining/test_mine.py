from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mar_st.data.columns import to_dataset
from mar_st.data.sequences import Triple
from mar_st.errors import MarError
from mar_st.mining.miner import mine
from mar_st.mining.retrievers import BM25
from mar_st.mining.rules import REASONS, Rules, grams
from tests.mar_st.mining.conftest import Table


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("mar_st.mining.miner.BLOCK_QUERIES", 6)


def _known(triples):
    known = {}
    for triple in triples:
        known.setdefault(triple.query, set()).update(triple.positives)
    return known


def _naive(triples, documents, table, rules):
    """The best ranked documents that pass every rule, by full sorts and plain loops."""
    known = _known(triples)
    labelled = {}
    for triple in triples:
        labelled.setdefault(triple.query, set()).update(triple.negatives)
    result = {}
    for query, positives in known.items():
        ranked = sorted(documents, key=lambda text: (-table.value(query, text), documents.index(text)))
        others = [text for text in ranked if text not in positives]
        lowest = min(table.value(query, text) for text in positives)
        first, last = rules.range_min + 1, rules.range_max
        kept = []
        for rank, text in enumerate(others, 1):
            score = table.value(query, text)
            ok = first <= rank <= last and text not in labelled[query]
            margin = rules.relative_margin
            ok = ok and (margin is None or score <= lowest - margin * abs(lowest))
            for other in (*positives, query):
                jaccard = len(grams(text) & grams(other)) / len(grams(text) | grams(other))
                ok = ok and (rules.near_duplicate is None or jaccard < rules.near_duplicate)
            if ok:
                kept.append(text)
        result[query] = kept[: rules.num_negatives]
    return result


@pytest.mark.thorough
@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"range_min": 2, "range_max": 12, "num_negatives": 10},
        {"relative_margin": -2.0, "near_duplicate": 0.05},
        {"relative_margin": -2.0, "range_min": 1, "range_max": 20, "num_negatives": 19},
    ],
)
def test_mining_equals_a_full_sort_and_plain_filters(triples, documents, table, rules):
    reasons = {
        "relative_margin": "within the margin",
        "near_duplicate": "near-duplicate",
        "range_min": "before the window",
    }
    expected_reasons = [reasons[name] for name in rules if name in reasons]
    # With as many negatives as there are ranks, nothing is drawn.
    rules = Rules(**{"num_negatives": 30, "range_max": 30, **rules}, fill=False)
    mined = mine([table], triples, documents, rules=rules)
    expected = _naive(triples, documents, table, rules)
    assert sum(map(len, expected.values())) > 20
    assert [t.query for t in mined.triples] == [t.query for t in triples]
    for before, after in zip(triples, mined.triples, strict=True):
        assert after.positives == before.positives
        assert after.source == before.source
        labelled = [text for text in before.negatives if text not in _known(triples)[before.query]]
        assert list(after.negatives) == [*labelled, *expected[before.query]]
    candidates = mined.candidates
    assert candidates["candidates"] == sum(candidates.get(name, 0) for name in (*REASONS, "mined"))
    assert candidates["mined"] == sum(map(len, expected.values()))
    assert all(candidates[reason] > 0 for reason in expected_reasons)


@pytest.mark.parametrize("fill", [True, False])
def test_a_positive_is_never_mined_as_a_negative(triples, documents, table, fill):
    rules = Rules(fill=fill, num_negatives=7, relative_margin=-100.0, near_duplicate=None)
    mined = mine([table, BM25()], triples, documents, rules=rules)
    known = _known(triples)
    assert all(not set(t.negatives) & known[t.query] for t in mined.triples)
    assert all(len(set(t.negatives)) == len(t.negatives) >= 7 for t in mined.triples)
    # Not vacuous: without the exclusion positives would be among them.
    assert mined.candidates["known positive"] > 20
    assert mined.candidates["labelled negative"] > 0


def test_paraphrases_are_positives_both_ways(table):
    rows = [
        Triple("甲甲甲甲", ("乙乙乙乙",)),
        Triple("乙乙乙乙", ("丙丙丙丙",)),
        Triple("丁丁丁丁", ("戊戊戊戊",)),
    ]
    rules = Rules(num_negatives=6, fill=False, range_max=10)
    mined = mine([table], rows, rules=rules, symmetric=True)
    negatives = {t.query: set(t.negatives) for t in mined.triples}
    assert negatives["乙乙乙乙"] == {"丁丁丁丁", "戊戊戊戊"}  # neither 甲 nor 丙, nor itself
    assert negatives["甲甲甲甲"] == {"丙丙丙丙", "丁丁丁丁", "戊戊戊戊"}


def test_random_choices_depend_on_seed_and_query_alone(triples, documents):
    def call(rows, seed=1):
        rules = Rules(num_negatives=4, seed=seed, range_min=1, range_max=30)
        bare = [replace(row, negatives=()) for row in rows]
        mined = mine([Table()], bare, documents, rules=rules)
        return {triple.query: triple.negatives for triple in mined.triples}

    whole = call(triples)
    queries = set(list(whole)[3:11])
    part = call([triple for triple in reversed(triples) if triple.query in queries])
    assert part == {query: whole[query] for query in queries}
    assert call(triples, seed=2) != whole


def test_too_few_are_filled_up_with_random_documents(triples, documents, table):
    rules = {"num_negatives": 5, "relative_margin": 2.0, "range_max": 20}
    mined, bare = (
        mine([table], triples, documents, rules=Rules(**rules, fill=fill)) for fill in (True, False)
    )
    assert mined.counts["random negatives"] > 0
    assert bare.counts["random negatives"] == 0
    assert bare.counts["triples without a negative"] > 0
    assert mined.candidates == bare.candidates
    assert bare.counts["queries without a mined negative"] > 0
    assert len(to_dataset(mined.triples, negatives=5, seed=0)) == sum(len(t.positives) for t in triples)


def test_the_teacher_scores_for_the_margin(triples, documents, table):
    teacher = Table("teacher")
    rules = Rules(fill=False, relative_margin=0.1)
    mined = mine([table], triples, documents, rules=rules, scorer=teacher)
    known, checked = _known(triples), 0
    labelled = {text for triple in triples for text in triple.negatives}
    for triple in mined.triples:
        lowest = min(teacher.value(triple.query, text) for text in known[triple.query])
        for text in set(triple.negatives) - labelled:
            assert teacher.value(triple.query, text) <= lowest - 0.1 * abs(lowest)
            checked += 1
    assert checked > 20
    assert mined.triples != mine([table], triples, documents, rules=rules).triples


def test_the_consistency_filter_keeps_what_is_in_the_top_k(triples, documents, table):
    mined = mine([table], triples, documents, rules=Rules(num_negatives=0, consistent=10))
    known = _known(triples)

    def rank(query, positive):
        others = [d for d in documents if d not in known[query] or d == positive]
        ranked = sorted(others, key=lambda text: (-table.value(query, text), documents.index(text)))
        return 1 + ranked.index(positive)

    expected = []
    for triple in triples:
        kept = tuple(text for text in triple.positives if rank(triple.query, text) <= 10)
        if kept:
            expected.append((triple.query, kept))
    assert [(t.query, t.positives) for t in mined.triples] == expected
    assert 0 < len(expected) < len(triples)
    counts = mined.counts
    assert counts["triples read"] - counts["triples without a consistent positive"] == len(expected)
    assert counts["triples written"] == len(expected)
    assert sum(len(t.positives) for t in triples) - counts["inconsistent positives"] == sum(
        len(kept) for _, kept in expected
    )


def test_no_retriever_or_no_triples_are_refused(triples, table):
    with pytest.raises(MarError, match="a retriever and triples; got 0 and 30"):
        mine([], triples)
    with pytest.raises(MarError, match="got 1 and 0"):
        mine([table], [])


class Asked:
    """A retriever that records the queries that it is asked."""

    name = "asked"

    def __init__(self):
        self.queries = []

    def identity(self):
        return {}

    def prepare(self, queries, corpus):
        self.queries = list(queries)

    def search(self, rows, k):
        return np.full((len(rows), k), -1)


@pytest.mark.parametrize("instructed", [True, False])
def test_queries_are_searched_for_after_their_instruction_if_asked(instructed):
    triples = [
        Triple("头疼", ("休息",), instruction="查医嘱："),
        Triple("发热", ("喝水",), instruction="查护理："),
        Triple("头疼", ("服药",), instruction="查用药："),
    ]
    retriever = Asked()
    mined = mine([retriever], triples, instructed=instructed)
    assert retriever.queries == (["查医嘱：头疼", "查护理：发热"] if instructed else ["头疼", "发热"])
    assert [triple.query for triple in mined.triples] == ["头疼", "发热", "头疼"]
