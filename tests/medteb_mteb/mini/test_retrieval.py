"""The test split of retrieval: its corpus, its queries, and the index over the corpus."""

from __future__ import annotations

import pytest

from medteb_mteb.mini import retrieval
from medteb_mteb.mini.cells import TWINS, Cell
from medteb_mteb.mini.labels import grade
from medteb_mteb.mini.retrieval import CorpusIndex, build_test, distinct_document, positives


@pytest.mark.slow
def test_another_seed_gives_other_data(edition):
    other = build_test(edition.world, 43)
    assert {q.text for q in other.retrieval.values()} != {q.text for q in edition.test.retrieval.values()}


@pytest.mark.slow
def test_no_positive_is_about_another_subject_or_question(edition):
    """Every unlabelled document would be graded B, C or D; every positive shares subject and intent."""
    test, world = edition.test, edition.world
    for query in list(test.retrieval.values())[:60]:
        for document in test.corpus.values():
            if grade(world, query.cell, document) in "SA":
                assert document.entity == query.cell.entity
                intents = {cell.intent for cell in document.answers}
                assert query.cell.intent in intents or (
                    query.cell.intent == "treatment" and "drugs" in intents
                )


@pytest.mark.slow
def test_queries_meet_their_near_misses(edition):
    """The corpus holds wrong answers about the subject, and the same question answered for others."""
    test, world = edition.test, edition.world
    wrong = elsewhere = 0
    for query in test.retrieval.values():
        same = [d for d in test.corpus.values() if d.entity == query.cell.entity]
        wrong += any(grade(world, query.cell, d) == "B" for d in same)
        elsewhere += any(
            cell.intent == query.cell.intent and d.entity != query.cell.entity
            for d in test.corpus.values()
            for cell in d.answers
        )
    assert wrong >= 0.97 * len(test.retrieval)
    assert elsewhere == len(test.retrieval)


@pytest.fixture
def small_sizes(monkeypatch):
    monkeypatch.setattr(retrieval, "N_DOCUMENTS", 240)
    monkeypatch.setattr(retrieval, "N_QUERIES", 15)


def test_the_split_has_distinct_documents_and_queries(small_split):
    corpus = small_split.corpus
    assert list(corpus) == [f"d{number:05}" for number in range(240)]
    assert len({document.text for document in corpus.values()}) == 240
    assert [list(some)[-1] for some in (small_split.retrieval, small_split.reranking)] == ["q0014", "r0014"]
    queries = [*small_split.retrieval.values(), *small_split.reranking.values()]
    assert len({query.cell for query in queries}) == len({query.text for query in queries}) == 30


def test_every_query_has_one_to_six_positives(small_world, small_split):
    index = CorpusIndex(small_split.corpus)
    for query in (*small_split.retrieval.values(), *small_split.reranking.values()):
        assert 1 <= len(positives(index.graded(small_world, query.cell))) <= 6


def test_cells_with_too_many_positives_are_not_asked_for(small_world, monkeypatch):
    monkeypatch.setattr(retrieval, "N_DOCUMENTS", 240)
    monkeypatch.setattr(retrieval, "N_QUERIES", 15)
    monkeypatch.setattr(retrieval, "MAX_POSITIVES", 3)
    split = build_test(small_world, 42)
    index = CorpusIndex(split.corpus)
    queries = [*split.retrieval.values(), *split.reranking.values()]
    assert {len(positives(index.graded(small_world, query.cell))) for query in queries} == {1, 2, 3}


def test_entities_that_share_their_words_are_not_asked_about(world, small_sizes):
    names = {query.cell.entity.partition(":")[2] for query in build_test(world, 7).retrieval.values()}
    assert len(names) > 10
    assert not names & (set(TWINS) | set(TWINS.values()))


def test_the_same_seed_gives_the_same_split_and_another_one_does_not(small_world, small_split, small_sizes):
    assert build_test(small_world, 42) == small_split
    other = build_test(small_world, 43)
    assert {query.text for query in other.retrieval.values()} != {
        query.text for query in small_split.retrieval.values()
    }


def test_a_corpus_that_is_too_small_or_too_large_is_refused(small_world, monkeypatch):
    monkeypatch.setattr(retrieval, "N_QUERIES", 15)
    monkeypatch.setattr(retrieval, "N_DOCUMENTS", 10)
    with pytest.raises(ValueError, match=r"\d answerable cells, 30 needed; widen the corpus"):
        build_test(small_world, 42)
    monkeypatch.setattr(retrieval, "N_DOCUMENTS", 100_000)
    with pytest.raises(ValueError, match=r"\d+ distinct documents, 100000 needed"):
        build_test(small_world, 42)


def test_the_index_grades_what_is_not_about_other_subjects(small_world, small_split):
    index = CorpusIndex(small_split.corpus)
    for query in list(small_split.retrieval.values())[:5]:
        whole = {name: grade(small_world, query.cell, one) for name, one in small_split.corpus.items()}
        assert index.graded(small_world, query.cell) == {
            name: letter for name, letter in whole.items() if letter in "SAB"
        }
    assert index.graded(small_world, Cell("drug:没有", "usage")) == {}


def test_a_document_whose_text_is_used_is_written_again(small_world):
    cell = small_world.cells[0]
    first = distinct_document(small_world, cell, 0, {}, "test", 42)
    second = distinct_document(small_world, cell, 0, {first.text}, "test", 42)
    assert second.text != first.text
    assert second.answers[cell] == "S"

    class Everything:
        def __contains__(self, text):
            return True

    with pytest.raises(ValueError, match=r"no new document for .* in 100 attempts; add wording"):
        distinct_document(small_world, cell, 0, Everything(), "test", 42)
