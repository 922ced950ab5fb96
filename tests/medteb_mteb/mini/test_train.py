"""The train split: queries, documents and triples apart from those of the tests."""

from __future__ import annotations

import pytest

from medteb_mteb.mini import train as train_module
from medteb_mteb.mini.labels import grade
from medteb_mteb.mini.train import build_train
from medteb_mteb.mini.wording import wording_of


def build_small(world, queries=(), texts=(), triples=150):
    """A document per cell, some with a second one, apart from the given queries and texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_module, "N_DOCUMENTS", len(world.cells) + 40)
        patch.setattr(train_module, "N_TRIPLES", triples)
        return build_train(world, list(queries), set(texts), 42)


@pytest.fixture(scope="module")
def small(small_world):
    return build_small(small_world)


@pytest.mark.slow
def test_train_and_tests_are_disjoint(edition):
    test, train = edition.test, edition.train
    tests = [*test.retrieval.values(), *test.reranking.values()]
    assert len({query.text for query in tests}) == 600
    assert len({query.cell for query in tests}) == 600
    trained = list(train.queries.values())
    assert not {query.text for query in tests} & {query.text for query in trained}
    assert not {query.pair for query in tests} & {query.pair for query in trained}
    assert not {d.text for d in test.corpus.values()} & {d.text for d in train.corpus.values()}
    held_out = {query.pattern for query in tests} - {query.pattern for query in trained}
    assert len(held_out) >= 40
    sts_test, sts_train = edition.sts
    assert not {s for p in sts_test for s in (p.sentence1, p.sentence2)} & {
        s for p in sts_train for s in (p.sentence1, p.sentence2)
    }
    assert not {u for p in sts_test for u in p.used} & {u for p in sts_train for u in p.used}
    sentences = {s for p in (*sts_test, *sts_train) for s in (p.sentence1, p.sentence2)}
    assert not sentences & {query.text for query in (*tests, *trained)}


@pytest.mark.slow
def test_train_teaches_every_tested_term(edition):
    """Terms of the tests occur in train queries, with other patterns."""
    trained = {query.term for query in edition.train.queries.values()}
    tested = {query.term for query in (*edition.test.retrieval.values(), *edition.test.reranking.values())}
    assert tested <= trained


@pytest.mark.slow
def test_triples_are_right_and_hard(edition):
    train, world = edition.train, edition.world
    same_subject = 0
    for triple in train.triples:
        cell = train.queries[triple.query_id].cell
        assert triple.positives
        assert len(triple.negatives) >= 3
        assert len(set(triple.negatives)) == len(triple.negatives)
        assert all(grade(world, cell, train.corpus[d]) in "SA" for d in triple.positives)
        letters = [grade(world, cell, train.corpus[d]) for d in triple.negatives]
        assert not {"S", "A"} & set(letters)
        same_subject += "B" in letters
    assert same_subject >= 0.95 * len(train.triples)


def test_nothing_of_the_tests_is_repeated(small_world):
    first = build_small(small_world, triples=350)
    queries = list(first.queries.values())
    texts = {document.text for document in first.corpus.values()}
    assert len(texts) == len(first.corpus)
    apart = build_small(small_world, queries, texts, triples=350)
    assert not {query.text for query in queries} & {query.text for query in apart.queries.values()}
    assert not {query.pair for query in queries} & {query.pair for query in apart.queries.values()}
    assert not texts & {document.text for document in apart.corpus.values()}


def test_sentences_of_the_sts_are_not_asked(small_world, small):
    texts = {query.text for query in small.queries.values()}
    apart = build_small(small_world, texts=texts)
    assert not texts & {query.text for query in apart.queries.values()}


def test_queries_are_distinct_and_never_of_the_patterns_held_out_for_tests(small, small_world):
    queries = list(small.queries.values())
    assert list(small.queries) == [f"tq{number:05}" for number in range(150)]
    assert len({query.text for query in queries}) == len({query.pair for query in queries}) == 150
    for query in queries:
        wording = wording_of(small_world.entities[query.cell.entity], query.cell.intent)
        assert int(query.pattern.rpartition(".")[2]) in wording.shared


def test_triples_hold_answers_and_near_misses(small, small_world):
    near = 0
    for triple in small.triples:
        cell = small.queries[triple.query_id].cell
        assert 1 <= len(triple.positives) <= 3
        assert len(triple.negatives) == len(set(triple.negatives)) <= 4
        letters = [grade(small_world, cell, small.corpus[name]) for name in triple.positives]
        # Direct answers come before those in part.
        assert letters == sorted(letters, reverse=True)
        assert letters[0] == "S"
        wrong = [grade(small_world, cell, small.corpus[name]) for name in triple.negatives]
        assert set(wrong) <= set("BCD")
        near += "B" in wrong
    assert [triple.query_id for triple in small.triples] == list(small.queries)
    assert near > 0.9 * len(small.triples)


def test_the_same_seed_gives_the_same_split(small_world, small):
    assert build_small(small_world) == small


def test_too_few_patterns_are_reported(small_world, monkeypatch):
    monkeypatch.setattr(train_module, "N_DOCUMENTS", len(small_world.cells))
    monkeypatch.setattr(train_module, "N_TRIPLES", 100_000)
    monkeypatch.setattr(train_module, "_MAX_ROUNDS", 1)
    with pytest.raises(ValueError, match=r"\d+ train queries after 1 rounds, 100000 needed; add patterns"):
        build_train(small_world, [], set(), 42)
