"""A run of another program as a retriever: what it lists, in the order of its scores, and nothing else."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from mar_st.data.trec import write_run
from mar_st.errors import MarError
from medteb_mteb.curation.files.run_file import RunFile

QUERIES, DOCUMENTS = ["q0", "q1", "q2"], ["d0", "d1", "d2", "d3"]
RUN = {"q2": {"d0": 1.5, "d3": 9.0, "d1": 9.0}, "q0": {"d2": -0.25}}
NONE = [np.empty(0, np.int64)]


@pytest.fixture(params=["trec", "json"])
def path(request, tmp_path):
    write_run(tmp_path / f"dense.{request.param}", RUN)
    return tmp_path / f"dense.{request.param}"


def test_documents_come_in_the_order_of_the_run_by_their_places(path):
    found = RunFile(path, QUERIES, DOCUMENTS).search([2, 1, 0], 2, NONE * 3)
    assert found.documents.tolist() == [[3, 1], [-1, -1], [2, -1]]
    assert found.scores.tolist() == [[9.0, 9.0], [-np.inf, -np.inf], [-0.25, -np.inf]]
    more = RunFile(path, QUERIES, DOCUMENTS).search([2], 9, NONE)
    assert more.documents[0].tolist() == [3, 1, 0, -1, -1, -1, -1, -1, -1]


def test_scores_are_those_of_the_run_and_minus_infinity_elsewhere(path):
    retriever = RunFile(path, QUERIES, DOCUMENTS)
    scores = retriever.score([2, 1], [np.array([3, 2, 0]), np.array([1])])
    assert [row.tolist() for row in scores] == [[9.0, -np.inf, 1.5], [-np.inf]]
    also = retriever.search([0], 1, [np.array([2, 3])]).also
    assert [row.tolist() for row in also] == [[-0.25, -np.inf]]


def test_a_run_is_identified_by_its_content_and_named_by_its_file(path):
    retriever = RunFile(path, QUERIES, DOCUMENTS)
    assert retriever.identity() == {"kind": "run", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert retriever.name == "dense"
    assert RunFile(path, QUERIES, DOCUMENTS, name="bge").name == "bge"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.json", json.dumps({"q9": {"d0": 1.0}}), "there is no query 'q9'"),
        ("r.json", json.dumps({"q0": {"d9": 1.0}}), "there is no document 'd9'"),
        ("r.json", '{"q0": {"d0": NaN}}', "must be a finite number, got nan"),
        ("r.json", '{"q0": {"d0": 1, "d0": 2}}', "'d0' occurs twice"),
        ("r.json", '{"q0": {"d0": 1', "is not JSON"),
        ("r.trec", "q0 Q0 d0 1 2.0 x\nq0 Q0 d0 2 1.0 x\n", r"r\.trec:2: document 'd0' of query 'q0' again"),
        ("r.trec", "q0 Q0 d0 1 2.0\n", r"r\.trec:1: expected 6 columns"),
        ("r.trec", "", "holds no results"),
        ("r.txt", "q0 Q0 d0 1 2.0 x\n", "name a run"),
    ],
)
def test_a_run_that_does_not_fit_the_texts_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(MarError, match=message):
        RunFile(tmp_path / name, QUERIES, DOCUMENTS)
