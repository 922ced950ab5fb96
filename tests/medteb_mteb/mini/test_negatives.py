"""Near misses: overlap of bigrams, look-alikes, wrong answers and answers about other subjects."""

from __future__ import annotations

import random

import pytest

from medteb_mteb.mini.documents import Document
from medteb_mteb.mini.labels import grade
from medteb_mteb.mini.negatives import (
    LexicalIndex,
    bigram_cosine,
    bigrams,
    judged,
    same_intent,
    sample,
    wrong_answers,
)
from medteb_mteb.mini.retrieval import CorpusIndex


@pytest.fixture(scope="module")
def index(small_split):
    return CorpusIndex(small_split.corpus)


def test_bigrams_are_those_of_the_text_without_blanks():
    assert bigrams("一 二三") == ["一二", "二三"]
    assert bigrams(" 一\n") == []


def test_the_cosine_of_bigram_counts_is_symmetric_and_from_0_to_1():
    assert bigram_cosine("头疼怎么办", "头疼怎么办") == pytest.approx(1.0)
    assert bigram_cosine("头疼", "发烧") == 0.0
    assert bigram_cosine("头", "头") == 0.0
    part = bigram_cosine("头疼怎么办", "头疼")
    assert part == bigram_cosine("头疼", "头疼怎么办") == pytest.approx(0.5)
    assert bigram_cosine("头头头", "头头") == pytest.approx(1.0)  # the same bigram, once and twice


def test_look_alikes_share_rare_bigrams_and_equal_ones_come_by_id():
    texts = {"d3": "头疼怎么办", "d2": "痛风怎么办", "d1": "痛风怎么办", "d4": "咳嗽"}
    index = LexicalIndex({name: Document("", text, "", "", {}) for name, text in texts.items()})
    assert index.nearest("头疼怎么办", 9) == ["d3", "d1", "d2"]  # d4 shares nothing
    assert index.nearest("痛风怎么办", 1) == ["d1"]
    # One rare bigram weighs more than one that most documents have.
    assert index.nearest("头疼，怎么", 9)[0] == "d3"
    assert index.nearest("湿疹", 9) == []


def test_wrong_answers_are_about_the_subject_of_the_query(small_world, small_split, index):
    found = 0
    for query in small_split.retrieval.values():
        wrong = wrong_answers(small_world, query.cell, index)
        documents = [small_split.corpus[name] for name in wrong]
        assert {document.entity for document in documents} <= {query.cell.entity}
        assert {grade(small_world, query.cell, document) for document in documents} <= {"B"}
        found += bool(wrong)
    assert found > 10


def test_the_same_question_is_answered_for_near_and_for_far_subjects(small_world, small_split, index):
    counts = {True: 0, False: 0}
    for query in small_split.retrieval.values():
        for related, letter in ((True, "C"), (False, "D")):
            names = same_intent(small_world, query.cell, index, related=related)
            counts[related] += len(names)
            for name in names:
                document = small_split.corpus[name]
                assert grade(small_world, query.cell, document) == letter
                assert query.cell.intent in {cell.intent for cell in document.answers}
    assert min(counts.values()) > 5


def test_a_sample_has_distinct_items_and_no_more_than_there_are():
    items = list("abcdef")
    drawn = sample(random.Random(0), items, 4)
    assert len(set(drawn)) == 4
    assert set(drawn) < set(items)
    assert sorted(sample(random.Random(0), items, 10)) == items
    assert sample(random.Random(0), [], 3) == []


def test_judged_letters_are_the_grades_of_the_documents(small_world, small_split, index):
    for name, query in small_split.retrieval.items():
        letters = judged(small_world, query.cell, index, random.Random(name))
        documents = {other: small_split.corpus[other] for other in letters}
        assert letters == {other: grade(small_world, query.cell, d) for other, d in documents.items()}
        own = [other for other, d in small_split.corpus.items() if d.entity == query.cell.entity]
        assert set(own) <= set(letters)
        values = list(letters.values())
        assert values.count("C") <= 8
        assert values.count("D") <= 4
