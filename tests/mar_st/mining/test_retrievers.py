from __future__ import annotations

import numpy as np
import pytest
import torch

from mar_st import MAR
from mar_st.mining import retrievers
from mar_st.mining.retrievers import BM25, CrossScorer, Dense, best
from mar_st.text.words import BM25Index

QUERIES = ["头疼吃什么药", "感冒发热怎么办", "xyz", "高血压"]


def _naive(scores, k):
    return np.array([sorted(range(len(row)), key=lambda n: (-row[n], n))[:k] for row in scores])


@pytest.mark.parametrize("k", [1, 5, 12, 30])
def test_best_equals_a_full_sort_with_ties_by_position(k):
    scores = np.random.default_rng(0).integers(0, 4, (20, 12)).astype(np.float32)
    expected = _naive(scores, k)
    assert np.array_equal(np.array([best(row, k) for row in scores]), expected)


def test_bm25_scores_pairs_of_characters_and_finds_no_document_without_one(documents):
    retriever = BM25()
    retriever.prepare(QUERIES, documents)
    retrieved = retriever.search([0, 1, 2], 100)

    def pairs(text):
        return [text[i : i + 2] for i in range(len(text) - 1)]

    index = BM25Index([pairs(text) for text in documents])
    for place, query in enumerate(QUERIES[:2]):
        expected = index.scores(pairs(query))
        ranked = retrieved[place][retrieved[place] >= 0]
        assert set(ranked) == set(np.flatnonzero(expected > 0))
        assert 0 < len(ranked) < len(documents)
        assert np.all(np.diff(expected[ranked]) <= 1e-9)
        assert np.allclose(retriever.score([place], [np.array([3, 0])])[0], expected[[3, 0]])
    assert (retrieved[2] == -1).all()


def test_bm25_splits_by_words_and_takes_texts_without_words():
    retriever = BM25("jieba")
    retriever.prepare(["高血压"], ["高血压的饮食", "感冒"])
    assert retriever.search([0], 2).tolist() == [[0, -1]]
    retriever = BM25()
    retriever.prepare(["高血压"], ["？！", "……"])
    assert retriever.score([0], [np.array([1])])[0].tolist() == [0.0]
    with pytest.raises(match="char-bigram or jieba; got 'words'"):
        BM25("words")


@pytest.mark.parametrize("block", [7, 10_000])
def test_dense_search_is_a_full_sort_of_the_models_scores(mar, documents, block, monkeypatch, tmp_path):
    monkeypatch.setattr(retrievers, "BLOCK_DOCUMENTS", block)
    corpus = [*documents, documents[0] + "？"]  # the tokenizer drops nothing, so this is another vector
    expected = mar.similarity(
        mar.encode_queries(QUERIES, convert_to_tensor=True), mar.encode_corpus(corpus, convert_to_tensor=True)
    ).numpy()
    for store in (tmp_path / "a", tmp_path / "a"):
        retriever = Dense.open(mar, store)
        retriever.prepare(QUERIES, corpus)
        retrieved = retriever.search([0, 3], 9)
        chosen = expected[[0, 3]]
        found, wanted = (
            np.take_along_axis(chosen, order, axis=1) for order in (retrieved, _naive(chosen, 9))
        )
        assert np.allclose(found, wanted, atol=1e-5)
        assert np.allclose(retriever.score([0], [np.array([2, 5])])[0], chosen[0][[2, 5]], atol=1e-5)
        assert retriever.search([1], 500).shape == (1, len(corpus))


def test_identity_follows_weights_and_options(mar, query_source, document_source, documents, tmp_path):
    def identity(model, **options):
        return Dense.open(model, tmp_path, **options).identity()

    first = identity(mar)
    assert identity(mar) == first
    assert identity(mar, prompt="检索：") != first
    assert identity(mar, symmetric=True) != first
    torch.manual_seed(7)
    other = MAR.from_encoders(query=query_source, document=document_source, dim=32, device="cpu")
    assert identity(other) != first  # the same architecture, other random weights
    calls = []
    retriever = Dense.open(mar, tmp_path)
    retriever.prepare(QUERIES, documents)
    again = Dense.open(mar, tmp_path)
    again.teacher.encode = lambda *args: calls.append(args)
    again.prepare(QUERIES, documents)
    assert not calls
    assert np.array_equal(again.search([0], 9), retriever.search([0], 9))


def test_symmetric_documents_are_encoded_as_queries(mar, tmp_path):
    retriever = Dense.open(mar, tmp_path, symmetric=True)
    retriever.prepare(QUERIES, QUERIES)
    vectors = mar.encode_queries(QUERIES)
    every = np.arange(len(QUERIES))
    scores = retriever.score(every, [every] * len(QUERIES))
    assert np.allclose(scores, vectors @ vectors.T, atol=1e-5)
    assert not np.allclose(scores, vectors @ mar.encode_corpus(QUERIES).T, atol=1e-2)


def test_a_model_with_an_unsupported_distance_is_refused(mar, tmp_path):
    mar.similarity_fn_name = "euclidean"
    with pytest.raises(match="compares by euclidean"):
        Dense.open(mar, tmp_path)


class Judge:
    """Answers as a cross-encoder does."""

    def predict(self, pairs, batch_size, show_progress_bar):
        return np.array([len(query) + len(document) / 100 for query, document in pairs])


def test_a_cross_encoder_scores_pairs(documents):
    scorer = CrossScorer(Judge())
    scorer.prepare(QUERIES, documents)
    scores = scorer.score([3, 0], [np.array([4, 2]), np.array([], dtype=int)])
    assert np.allclose(scores[0], [3 + len(documents[4]) / 100, 3 + len(documents[2]) / 100])
    assert scores[1].shape == (0,)
    assert [len(some) for some in scorer.score([0, 1], [np.array([], dtype=int)] * 2)] == [0, 0]
