"""Synonym STS of the mini edition: pairs of questions that ask the same thing, or do not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import correlation

import pytest
from tests.medteb_mteb.mini.task_files import rows

from medteb_mteb.mini import sts
from medteb_mteb.mini.cells import World
from medteb_mteb.mini.knowledge import load_knowledge
from medteb_mteb.mini.negatives import bigram_cosine
from medteb_mteb.mini.sts import LENGTH_TOLERANCE, REWRITE_KINDS, build_sts


@pytest.fixture
def few(world, monkeypatch):
    """Builds 30 test pairs and 45 train pairs."""
    monkeypatch.setattr(sts, "N_TEST", 30)
    monkeypatch.setattr(sts, "N_TRAIN", 45)

    def build(seed=42, used=()):
        return build_sts(world, set(used), seed)

    return build


def sentences(pairs):
    return {sentence for pair in pairs for sentence in (pair.sentence1, pair.sentence2)}


@pytest.mark.slow
def test_sts_follows_the_published_construction(edition):
    world = edition.world
    owner = {}
    for entity in world.entities.values():
        owner |= dict.fromkeys((entity.name, *entity.aliases, *entity.lay), entity.key)
    for pairs in edition.sts:
        shares = Counter(pair.kind for pair in pairs)
        assert max(shares.values()) - min(shares.values()) <= 2
        for pair in pairs:
            (term1, template1), (term2, template2) = pair.used
            assert owner[term1] == owner[term2]
            same_intent = template1.split(".")[2] == template2.split(".")[2]
            assert same_intent == (pair.kind == "positive") == (pair.score == 1.0)
            assert (term1 == term2) == (pair.kind == "negative-2")
            if pair.kind == "positive":
                assert abs(len(pair.sentence2) - len(pair.sentence1)) <= 0.3 * len(pair.sentence1)
            assert pair.sentence1.endswith("？")
            assert pair.sentence2.endswith("？")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["test", "train"])
def test_sts_is_not_solved_by_overlap(packaged, name):
    pairs = rows(packaged / "MedTEBSTS" / f"{name}.jsonl")
    overlap = [bigram_cosine(pair["sentence1"], pair["sentence2"]) for pair in pairs]
    characters = [
        len(set(pair["sentence1"]) & set(pair["sentence2"])) / len(set(pair["sentence1"] + pair["sentence2"]))
        for pair in pairs
    ]
    labels = [pair["score"] for pair in pairs]
    assert abs(correlation(overlap, labels)) < 0.35
    assert abs(correlation(characters, labels)) < 0.35


def test_a_test_question_has_one_rewrite_and_a_train_question_all_three(few):
    test, train = few()
    assert Counter(pair.kind for pair in test) == dict.fromkeys(REWRITE_KINDS, 10)
    assert Counter(pair.kind for pair in train) == dict.fromkeys(REWRITE_KINDS, 15)
    by_question = {}
    for pair in train:
        by_question.setdefault(pair.sentence1, set()).add(pair.kind)
    assert len(by_question) == 15
    assert all(kinds == set(REWRITE_KINDS) for kinds in by_question.values())


def test_the_splits_share_no_sentence_and_no_term_in_a_template_even_of_few_entities(monkeypatch):
    kb = load_knowledge()
    rows = {name: getattr(kb, name)[:3] for name in ("conditions", "drugs", "symptoms", "exams")}
    monkeypatch.setattr(sts, "N_TEST", 30)
    monkeypatch.setattr(sts, "N_TRAIN", 45)
    test, train = build_sts(World(replace(kb, **rows)), set(), 42)
    assert not sentences(test) & sentences(train)
    assert not {one for pair in test for one in pair.used} & {one for pair in train for one in pair.used}


def test_used_texts_are_not_repeated_and_the_same_seed_gives_the_same_pairs(few):
    first = few()
    assert few() == first
    assert few(43) != first
    without = few(used=sentences(first[0]))
    assert not sentences(without[0]) & sentences(first[0])
    assert not sentences(without[1]) & sentences(first[0])


def test_terms_and_intents_follow_the_kind_of_a_pair(few):
    for pair in (pair for pairs in few() for pair in pairs):
        (term1, template1), (term2, template2) = pair.used
        assert term1 in pair.sentence1
        assert term2 in pair.sentence2
        assert (term1 == term2) == (pair.kind == "negative-2")
        same = template1.rpartition(".")[0] == template2.rpartition(".")[0]
        assert same == (pair.kind == "positive") == (pair.score == 1.0)
        if pair.kind == "positive":
            change = abs(len(pair.sentence2) - len(pair.sentence1))
            assert change <= LENGTH_TOLERANCE * len(pair.sentence1)
