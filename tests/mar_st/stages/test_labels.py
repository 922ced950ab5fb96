"""Tests of labels that are read from stored vectors and scores when a batch is made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets import Dataset

from mar_st.data import DataError, Triple, to_dataset
from mar_st.stages.labels import labelled, with_scores, with_vectors
from mar_st.stages.samplers import TrainRows
from mar_st.teachers.vectors import Part, Vectors

MATRIX = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
DOCUMENTS = [f"文{number}" for number in range(40)]
TRIPLES = [
    Triple(f"问{number % 5}", (f"答{number}", f"解{number % 3}"), (f"错{number}", f"误{number % 4}"))
    for number in range(8)
]
ROLES = {"query": "query", "positive": "document", "negative_1": "document"}


@pytest.fixture
def stored(tmp_path):
    """Vectors in a file, all of them or some rows."""

    def make(matrix=MATRIX, rows=None):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        np.save(path, matrix)
        rows = np.arange(len(matrix)) if rows is None else np.asarray(rows)
        return Vectors([Part.npy(path)], np.stack([np.zeros_like(rows), rows], axis=1))

    return make


def _vector(role, text):
    """A vector of its own for each role and text."""
    return np.random.default_rng([ord(character) for character in role + text]).standard_normal(4)


@pytest.fixture
def teacher(stored):
    """Vectors of texts by role, and what it was asked for."""
    asked = []

    def vectors_of(texts, role):
        asked.append((role, list(texts)))
        return stored(np.array([_vector(role, text) for text in texts], dtype=np.float32))

    vectors_of.asked = asked
    return vectors_of


def _expected(row, names):
    vectors = [_vector("query" if name == "query" else "document", row[name]) for name in names]
    return np.array(vectors, dtype=np.float32)


def test_vectors_are_not_copied_into_memory(stored):
    vectors = stored()
    data = labelled(pa.table({"text": DOCUMENTS}), np.arange(40), vectors)
    assert data.data.nbytes < MATRIX.nbytes
    np.testing.assert_array_equal(data[[5, 2]]["label"][1].numpy(), MATRIX[2])
    np.testing.assert_array_equal(data[7]["label"].numpy(), MATRIX[7])
    assert len(data._fingerprint) < 100


def test_a_row_can_have_several_vectors(stored):
    columns = {"query": ["问", "题"], "positive": DOCUMENTS[:2]}
    data = labelled(pa.table(columns), np.array([[0, 9], [1, 8]]), stored())
    assert data.column_names == ["query", "positive", "label"]
    row = data[[1]]
    assert set(row) == {"query", "label"}
    np.testing.assert_array_equal(row["label"][0].numpy(), MATRIX[[1, 8]])


def test_labels_follow_chosen_repeated_and_shuffled_rows(stored):
    places = np.random.default_rng(1).permutation(40)
    rows = np.array([3, 39, 3, 0])
    data = labelled(pa.table({"text": DOCUMENTS}), places, stored(), rows)
    for dataset in (data, data.shuffle(seed=2), data.select([2, 1])):
        for row in dataset:
            np.testing.assert_array_equal(row["label"], MATRIX[places[DOCUMENTS.index(row["text"])]])
    assert [row["text"] for row in data] == [DOCUMENTS[number] for number in rows]


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


def test_labels_follow_documents_that_are_drawn_for_every_epoch(teacher, stored):
    whole = to_dataset(TRIPLES, negatives=1, seed=0, positives="one-per-epoch")
    vectors = with_vectors(whole, ROLES, teacher)
    scores = with_scores(whole, lambda pairs: stored(np.array([[_score(*pair)] for pair in pairs], "f4")))
    seen = set()
    for data, expected in ((vectors, _expected), (scores, _expected_scores)):
        rows = TrainRows({"qa": data})
        for epoch in (0, 1, 5):
            rows.set_epoch(epoch)
            for row in rows.__getitems__([7, 0, 3]):
                np.testing.assert_array_equal(row["label"].numpy(), expected(row, list(ROLES)))
                seen.add((row["query"], row["positive"], row["negative_1"]))
    assert len(seen) > 3  # the draw changes


def _score(query, document):
    return np.float32(_vector(query, document)[0])


def _expected_scores(row, names):
    return np.array([_score(row["query"], row[name]) for name in names[1:]])


def test_each_document_of_a_row_has_the_score_of_its_pair(stored):
    asked = []

    def scores_of(pairs):
        asked.extend(pairs)
        assert [pairs[number] for number in range(len(pairs))] == asked
        return stored(np.array([[_score(*pair)] for pair in pairs], dtype=np.float32))

    whole = to_dataset(TRIPLES, negatives=2, seed=0)
    data = with_scores(whole, scores_of)
    names = ["query", "positive", "negative_1", "negative_2"]
    assert list(data[0]) == [*names, "label"]
    for row in data:
        np.testing.assert_array_equal(row["label"].numpy(), _expected_scores(row, names))
    assert len(asked) == 3 * len(whole)


def test_labels_are_those_of_selected_and_shuffled_rows(teacher, stored):
    whole = to_dataset(TRIPLES, negatives=1, seed=0)
    for dataset in (whole.shuffle(seed=3), whole.select([5, 0, 5])):
        scored = with_scores(
            dataset, lambda pairs: stored(np.array([[_score(*pair)] for pair in pairs], "f4"))
        )
        for data, expected in (
            (with_vectors(dataset, ROLES, teacher), _expected),
            (scored, _expected_scores),
        ):
            assert [row["query"] for row in data] == dataset["query"][:]
            for row in data:
                np.testing.assert_array_equal(row["label"].numpy(), expected(row, list(ROLES)))


@pytest.mark.parametrize("positives", ["all", "one-per-epoch"])
def test_rows_without_a_negative_are_refused_before_anything_is_asked_for(positives):
    options = {"negatives": 1, "seed": 0, "positives": positives, "missing_negatives": "batch"}
    data = to_dataset([*TRIPLES, Triple("问", ("答",))], **options)
    for call in (
        lambda: with_vectors(data, ROLES, lambda texts, role: pytest.fail("asked for vectors")),
        lambda: with_scores(data, lambda pairs: pytest.fail("asked for scores")),
    ):
        with pytest.raises(DataError, match="have no stored vectors or scores to learn from"):
            call()


def test_no_rows_have_no_labels(stored):
    assert len(labelled(pa.table({"text": pa.array([], pa.string())}), np.arange(0), stored())) == 0
    empty = Dataset.from_dict({name: [] for name in ROLES})
    assert len(with_scores(empty, lambda pairs: stored(np.zeros((len(pairs), 1), np.float32)))) == 0
