"""Tests of the quality of queries on a task: nDCG, and the vectors of its documents."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.export import ExportError
from mar_st.export.judge import LossTask, open_judge

IDS = ["d4", "d1", "d6", "other", "d2", "d5", "d3"]


def test_ndcg_matches_its_definition():
    judge = LossTask(
        name="toy",
        digest="",
        ids=["d0", "d1", "d2"],
        documents=np.eye(3, dtype=np.float32),
        queries={"q0": "", "q1": ""},
        qrels={"q0": {"d1": 1}, "q1": {"d0": 1, "d2": 1}},
        cosine=True,
    )
    perfect = np.array([[0, 1, 0], [1, 0, 0.9]], dtype=np.float32)
    assert judge.ndcg(perfect) == pytest.approx(1)
    second = np.array([[0.9, 0.5, 0], [1, 0, 0.9]], dtype=np.float32) * 7
    assert judge.ndcg(second) == pytest.approx((1 / np.log2(3) + 1) / 2)


@pytest.fixture
def vectors(tmp_path):
    """Vectors of the documents of `make_folder("Retrieval")`, in another order and of various lengths."""
    drawn = np.random.default_rng(0).standard_normal((len(IDS), 5)).astype(np.float32)
    drawn *= np.arange(1, len(IDS) + 1, dtype=np.float32)[:, None]
    write_vectors(tmp_path / "vectors", IDS, drawn)
    return drawn


@pytest.mark.parametrize("cosine", [True, False])
def test_stored_vectors_are_those_of_the_documents_of_the_task(make_folder, tmp_path, vectors, cosine):
    task = make_folder("Retrieval")
    judge = open_judge(str(task), "no model", vectors=tmp_path / "vectors", cosine=cosine)
    assert list(judge.ids) == [f"d{number}" for number in range(1, 7)]
    assert list(judge.queries) == ["q1", "q2", "q3"]
    expected = vectors[[IDS.index(name) for name in judge.ids]]
    if cosine:
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(judge.documents, expected, rtol=1e-6)
    assert judge.name == "tiny-retrieval"


def test_lengths_count_only_for_dot_products(make_folder, tmp_path, vectors):
    """Each query lies at the document that answers it; the document of length seven is not the nearest."""
    task = str(make_folder("Retrieval"))
    at = [IDS.index(name) for name in ("d1", "d2", "d4")]
    queries = vectors[at] / np.linalg.norm(vectors[at], axis=1, keepdims=True)
    cosine, dot = (
        open_judge(task, "no model", vectors=tmp_path / "vectors", cosine=how) for how in (True, False)
    )
    assert cosine.ndcg(queries) == cosine.ndcg(5 * queries) > dot.ndcg(queries)
    assert dot.ndcg(queries) == dot.ndcg(5 * queries)


def test_documents_without_a_vector_are_refused(make_folder, tmp_path):
    write_vectors(tmp_path / "few", IDS[1:5], np.ones((4, 5), np.float32))
    with pytest.raises(ExportError, match=r"3 of 6 documents .* no vector in .*few \(the first is 'd3'\)"):
        open_judge(str(make_folder("Retrieval")), "no model", vectors=tmp_path / "few", cosine=True)


@pytest.mark.parametrize(("kind", "name"), [("STS", "sts"), ("Reranking", "rerank")])
def test_a_task_of_another_type_is_refused(make_folder, kind, name):
    with pytest.raises(ExportError, match=f"is a task of type {name}; give a retrieval task"):
        open_judge(str(make_folder(kind)), "no model", cosine=True)
