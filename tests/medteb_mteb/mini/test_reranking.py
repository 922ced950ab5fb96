"""Lists of candidates for reranking."""

from __future__ import annotations

import pytest
from tests.medteb_mteb.mini.task_files import rows, table

from medteb_mteb.mini.labels import grade
from medteb_mteb.mini.reranking import LIST_SIZE, build_lists
from medteb_mteb.mini.retrieval import CorpusIndex, positives


@pytest.fixture(scope="module")
def index(small_split):
    return CorpusIndex(small_split.corpus)


@pytest.fixture(scope="module")
def lists(small_world, small_split, index):
    return build_lists(small_world, small_split.reranking, index, 42)


def test_reranking_uses_documents_of_the_retrieval_corpus_in_random_order(packaged):
    whole = {row["_id"]: row for row in rows(packaged / "MedTEBRetrieval" / "corpus.jsonl")}
    folder = packaged / "MedTEBReranking"
    corpus = rows(folder / "corpus.jsonl")
    assert all(whole[row["_id"]] == row for row in corpus)
    lists = {row["query-id"]: row["corpus-ids"] for row in rows(folder / "top_ranked.jsonl")}
    assert {doc_id for ids in lists.values() for doc_id in ids} == {row["_id"] for row in corpus}
    assert all(len(set(ids)) == 100 for ids in lists.values())
    relevant = {tuple(row[:2]) for row in table(folder / "qrels" / "test.tsv")[1]}
    places = [rank for q, ids in lists.items() for rank, d in enumerate(ids) if (q, d) in relevant]
    assert len(places) == len(relevant)
    assert 40 < sum(places) / len(places) < 60


def test_lists_hold_all_positives_and_the_grade_of_each_candidate(small_world, small_split, index, lists):
    assert list(lists) == list(small_split.reranking)
    for name, (ids, letters) in lists.items():
        cell = small_split.reranking[name].cell
        assert len(ids) == len(set(ids)) == LIST_SIZE
        assert letters == {other: grade(small_world, cell, small_split.corpus[other]) for other in ids}
        every = positives(index.graded(small_world, cell))
        assert set(every) == {other for other, letter in letters.items() if letter in "SA"}
        assert list(letters.values()).count("B") <= 12


def test_a_list_does_not_depend_on_the_other_queries_but_on_the_seed(small_world, small_split, index, lists):
    name = list(small_split.reranking)[-1]
    alone = {name: small_split.reranking[name]}
    assert build_lists(small_world, alone, index, 42) == {name: lists[name]}
    assert build_lists(small_world, alone, index, 43)[name].ids != lists[name].ids


def test_positives_are_not_ahead_of_the_others(lists):
    places = [
        place for ids, letters in lists.values() for place, name in enumerate(ids) if letters[name] in "SA"
    ]
    assert 0.3 * LIST_SIZE < sum(places) / len(places) < 0.7 * LIST_SIZE
