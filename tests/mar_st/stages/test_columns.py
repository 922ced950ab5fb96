"""Tests of labels that are read from stored vectors and scores when a batch is made."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mar_st.data.columns import to_dataset
from mar_st.data.sequences import Triple
from mar_st.errors import MarError
from mar_st.stages.columns import check_prompt, with_scores, with_vectors
from tests.mar_st.stages.helpers import encoder as model

TRIPLES = [
    Triple(f"问{number % 5}", (f"答{number}", f"解{number % 3}"), (f"错{number}", f"误{number % 4}"))
    for number in range(8)
]
ROLES = {"query": "query", "positive": "document", "negative_1": "document"}


def _vector(role, text):
    """A vector of its own for each role and text."""
    return np.random.default_rng([ord(character) for character in role + text]).standard_normal(4)


@pytest.fixture
def teacher():
    """Vectors of texts by role, and what it was asked for."""
    asked = []

    def vectors_of(texts, role):
        asked.append((role, list(texts)))
        return np.array([_vector(role, text) for text in texts], dtype=np.float32)

    vectors_of.asked = asked
    return vectors_of


def _expected(row, names):
    vectors = [_vector("query" if name == "query" else "document", row[name]) for name in names]
    return np.array(vectors, dtype=np.float32)


def test_each_text_has_the_vector_of_its_role_and_is_asked_for_once(teacher):
    whole = to_dataset(TRIPLES, negatives=1, seed=0)
    data = with_vectors(whole, ROLES, teacher)
    assert [row["query"] for row in data] == whole["query"][:]
    for row in data:
        np.testing.assert_array_equal(row["label"].numpy(), _expected(row, ROLES))
        assert row["label"].dtype == torch.float32
    assert [role for role, _ in teacher.asked] == ["query", "document"]
    assert all(len(set(texts)) == len(texts) for _, texts in teacher.asked)


def test_only_read_columns_are_handed_on_and_labels_stay_those_of_all(teacher):
    whole = to_dataset(TRIPLES, negatives=1, seed=0)
    data = with_vectors(whole, ROLES, teacher, read=["query"])
    assert set(data[0]) == {"query", "label"}
    for row, read in zip(whole, data, strict=True):
        np.testing.assert_array_equal(read["label"].numpy(), _expected(row, ROLES))


def _score(query, document):
    return np.float32(_vector(query, document)[0])


def _expected_scores(row, names):
    return np.array([_score(row["query"], row[name]) for name in names[1:]])


def test_each_document_of_a_row_has_the_score_of_its_pair():
    asked = []

    def scores_of(pairs):
        asked.extend(pairs)
        assert [pairs[number] for number in range(len(pairs))] == asked
        return np.array([[_score(*pair)] for pair in pairs], dtype=np.float32)

    whole = to_dataset(TRIPLES, negatives=2, seed=0)
    data = with_scores(whole, scores_of)
    names = ["query", "positive", "negative_1", "negative_2"]
    assert list(data[0]) == [*names, "label"]
    for row in data:
        np.testing.assert_array_equal(row["label"].numpy(), _expected_scores(row, names))
    assert len(asked) == 3 * len(whole)


def test_labels_are_those_of_selected_and_shuffled_rows(teacher):
    whole = to_dataset(TRIPLES, negatives=1, seed=0)
    for dataset in (whole.shuffle(seed=3), whole.select([5, 0, 5])):
        scored = with_scores(dataset, lambda pairs: np.array([[_score(*pair)] for pair in pairs], "f4"))
        for data, expected in (
            (with_vectors(dataset, ROLES, teacher), _expected),
            (scored, _expected_scores),
        ):
            assert [row["query"] for row in data] == dataset["query"][:]
            for row in data:
                np.testing.assert_array_equal(row["label"].numpy(), expected(row, list(ROLES)))


@pytest.mark.parametrize(("prompt", "told"), [("检索：", 0), ("请检索回答下列医学问题的文档段落", 1)])
def test_a_prompt_that_cuts_many_texts_is_told(prompt, told, monkeypatch):
    warnings = []
    monkeypatch.setattr("mar_st.stages.columns.logger.warning", warnings.append)
    encoder = model()[0]
    encoder.max_seq_length = 40
    check_prompt(encoder, prompt, ["头疼怎么办"] * 90 + ["头疼发热咳嗽" * 6] * 10)
    assert len(warnings) == told


def test_a_prompt_that_leaves_no_room_for_texts_is_refused():
    encoder = model()[0]
    encoder.max_seq_length = 24
    with pytest.raises(MarError, match="leaves 6 of 24 tokens"):
        check_prompt(encoder, "请检索回答下列医学问题的文档段落", ["头疼"])
