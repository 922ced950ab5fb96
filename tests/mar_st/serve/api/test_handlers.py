"""Tests of the answers to searches and to requests for embeddings and documents."""

from __future__ import annotations

import base64
import json
import logging

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.serve.api.handlers import MAX_INLINE_NUMBERS, first_dimensions
from tests.mar_st.serve.fakes import DIM, DOCUMENTS, FakeEncoder, FakeSearcher, vector_of


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("normalised", [False, True])
def test_first_dimensions_are_a_copy_of_length_one_if_the_vectors_have_it(count, normalised):
    vectors = np.random.default_rng(0).standard_normal((count, 8)).astype(np.float32)
    vectors[0] = 0
    vectors.flags.writeable = False
    short = first_dimensions(vectors, 3, normalised=normalised)
    assert (short.shape, short.dtype) == ((count, 3), np.float32)
    assert not np.shares_memory(short, vectors)
    assert (short[0] == 0).all()
    lengths = np.linalg.norm(vectors[1:, :3], axis=1, keepdims=True) if normalised else 1
    np.testing.assert_allclose(short[1:], vectors[1:, :3] / lengths, rtol=1e-6)


@pytest.mark.parametrize("form", ["float", "base64"])
def test_a_large_answer_holds_the_vectors_of_the_small_ones(make_client, form):
    count = MAX_INLINE_NUMBERS // DIM + 1
    client = make_client(max_texts=count, max_queue=4096)
    texts = [f"问{number}" for number in range(count)]
    answer = client.post("/v1/embeddings", {"input": texts, "encoding_format": form}).json()
    rows = [entry["embedding"] for entry in answer["data"]]
    if form == "base64":
        rows = [np.frombuffer(base64.b64decode(row), dtype="<f4") for row in rows]
    np.testing.assert_array_equal(np.float32(rows), np.stack([vector_of(text) for text in texts]))
    assert [entry["index"] for entry in answer["data"]] == list(range(count))


def test_all_dimensions_are_the_whole_vector(client):
    answers = [client.post("/v1/embeddings", {"input": "头疼", **more}) for more in ({}, {"dimensions": DIM})]
    assert answers[0].json() == answers[1].json()


def test_a_short_vector_of_an_encoder_without_unit_length_is_not_normalised(make_client):
    encoder = FakeEncoder()
    encoder.normalised = False
    answer = make_client(encoder=encoder).post("/v1/embeddings", {"input": "头疼", "dimensions": 4}).json()
    np.testing.assert_array_equal(np.float32(answer["data"][0]["embedding"]), vector_of("头疼")[:4])


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        ({"query": "头疼"}, False),
        ({"query": "疼" * 100, "truncate": True}, True),
        ({"vector": [0.5] * DIM}, None),
        ({"vector": [0.5] * DIM, "query": "疼" * 100, "truncate": True}, None),
    ],
)
def test_only_an_encoded_query_is_reported_as_cut(client, body, reported):
    assert client.post("/search", body).json().get("truncated") is reported


@pytest.mark.parametrize(
    ("searcher", "option", "code"),
    [
        (FakeSearcher(DOCUMENTS, FakeEncoder(), words=False), {"hybrid": True}, "no_bm25"),
        (FakeSearcher(DOCUMENTS, FakeEncoder()), {"rerank": 3}, "no_reranker"),
    ],
)
def test_what_the_index_cannot_do_is_refused_and_the_rest_answered(make_client, searcher, option, code):
    client = make_client(searcher)
    refused = client.post("/search", {"query": "头疼", **option})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, code)
    assert client.post("/search", {"query": "头疼"}).status_code == 200


@pytest.mark.parametrize("where", ['{"year":' + "[" * 1000 + "]" * 1000 + "}", '{"' + "x" * 500_000 + '":1}'])
def test_a_hostile_filter_is_refused_without_an_echo(client, where):
    body = '{"query":"头疼","where":' + where + "}"
    refused = client("POST", "/search", content=body.encode(), headers={"content-type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_filter")
    assert len(refused.content) < 1000


def test_a_document_that_cannot_be_read_is_one_refusal(make_client):
    client = make_client()
    index = client.app.state.generations.current.searcher.index
    look_up = index.find_documents

    def find(names):
        if "d3" in names:
            raise MarError("The texts of d3 are damaged.")
        return look_up(names)

    index.find_documents = find
    refused = client.get("/document?id=d3")
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "The texts of d3 are damaged.")
    assert client.get("/document?id=d2").json()["id"] == "d2"


def test_a_logged_query_is_one_line_of_json(make_client, caplog):
    client = make_client(log_queries=True)
    query = '头疼\n2026 ERROR forged "line"\r\x1b[31m'
    with caplog.at_level(logging.INFO, logger="mar_st.serve.queries"):
        assert client.post("/search", {"query": query, "k": 3}).status_code == 200
        assert client.post("/v1/embeddings", {"input": [query, "x"]}).status_code == 200
        client.post("/search", {"vector": [0.5] * DIM})
    lines = [record.getMessage() for record in caplog.records if record.name == "mar_st.serve.queries"]
    assert [json.loads(line) for line in lines] == [{"query": query, "k": 3}, {"input": [query, "x"]}]
    assert all(line.isprintable() for line in lines)
