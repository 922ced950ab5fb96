from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from mar_st.text.texts import normalise
from medteb_mteb.curation.texts.near_duplicates import clusters, near_duplicates, split_queries

PHRASES = "感冒 发烧 头疼 高血压 糖尿病 怎么办 吃什么药 多久能好 要忌口吗 小孩 老人 了 呢"
WORDS = PHRASES.split()


def texts_of(number, seed=0):
    rng = random.Random(seed)
    ends = ["", "？", "?", " "]
    return ["".join(rng.sample(WORDS, rng.randint(2, 4))) + rng.choice(ends) for _ in range(number)]


def grams(text):
    plain = normalise(text) or text
    return {*plain, *(plain[i : i + 2] for i in range(len(plain) - 1))}


def jaccard(left, right):
    first, second = grams(left), grams(right)
    return len(first & second) / len(first | second)


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.9, 1.0])
def test_all_pairs_are_found_and_no_others(threshold, monkeypatch):
    monkeypatch.setattr("medteb_mteb.curation.texts.near_duplicates.TEXTS_PER_BLOCK", 7)
    texts = texts_of(40)
    pairs = {(i, j): value for i, j, value in near_duplicates(texts, threshold=threshold)}
    every = {(i, j): jaccard(texts[i], texts[j]) for i, j in combinations(range(40), 2)}
    assert pairs == pytest.approx({pair: value for pair, value in every.items() if value >= threshold - 1e-9})
    assert len(pairs) > 0
    other = texts_of(15, seed=1)
    across = {(i, j) for i, j, _ in near_duplicates(texts, other, threshold=threshold)}
    near = product(range(40), range(15))
    assert across == {(i, j) for i, j in near if jaccard(texts[i], other[j]) >= threshold - 1e-9}


def test_near_duplicates_are_in_one_cluster_and_other_texts_are_not():
    same = ["感冒怎么办", "感冒了怎么办？"], ["ＭＲＩ检查", "mri 检查"], ["？？", "？？"]
    other = ["感冒怎么办", "发烧怎么办"], ["头疼", "腹泻"]
    assert all(len(clusters(pair)) == 1 for pair in same)
    assert all(len(clusters(pair)) == 2 for pair in other)
    assert clusters([]) == []


def test_clusters_join_over_others():
    chain = ["甲乙丙丁戊己", "乙丙丁戊己庚", "丙丁戊己庚辛"]
    assert jaccard(chain[0], chain[2]) < 0.5 <= jaccard(chain[0], chain[1])
    assert clusters([chain[0], "另一个问题", chain[2], chain[1]], threshold=0.5) == [[0, 2, 3], [1]]


@pytest.mark.parametrize("test", [0.3, 25, 1])
def test_no_text_of_one_side_has_a_near_duplicate_on_the_other(test):
    queries = {f"q{i}": text for i, text in enumerate(texts_of(100))}
    tested, others, sizes = split_queries(queries, test, threshold=0.5)
    assert sorted(tested + others) == sorted(queries)
    assert len(tested) <= (test * 100 if test < 1 else test)
    left, right = ([queries[name] for name in names] for names in (tested, others))
    assert not list(near_duplicates(left, right, threshold=0.5))
    assert max(sizes) > 1
    assert split_queries(queries, test, threshold=0.5) == (tested, others, sizes)


def test_a_number_above_the_total_takes_all():
    queries = {f"q{i}": text for i, text in enumerate(texts_of(10))}
    assert split_queries(queries, 100)[1] == []
