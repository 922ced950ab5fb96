"""Tests of the application's responses, without a socket."""

from __future__ import annotations

import asyncio
import base64
import logging
import threading

import numpy as np
import pytest

from mar_st.errors import MarError
from tests.mar_st.serve.fakes import (
    DIM,
    DOCUMENTS,
    FakeDocumentEncoder,
    FakeEncoder,
    FakeSearcher,
    hits_of,
    vector_of,
)

QUERY = "头疼怎么办"


def test_search_by_text_gives_what_the_searcher_gives(client):
    response = client.post("/search", {"query": QUERY, "k": 3})
    assert response.status_code == 200
    content = response.json()
    assert content["hits"] == hits_of(QUERY, 3)
    assert content["truncated"] is False
    timing = content["timing"]
    assert 0 <= timing["search_ms"] <= timing["total_ms"] < 5000
    assert response.headers["cache-control"] == "no-store"


def test_search_by_vector_needs_no_encoder(make_client):
    client = make_client(FakeSearcher(DOCUMENTS))
    vector = vector_of(QUERY).tolist()
    assert client.post("/search", {"vector": vector, "k": 2}).json()["hits"] == hits_of(QUERY, 2)
    refused = client.post("/search", {"query": QUERY})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "query")
    assert client.post("/v1/embeddings", {"input": QUERY}).json()["error"]["code"] == "no_query_encoder"


def test_options_reach_the_searcher(make_client):
    searcher = FakeSearcher(DOCUMENTS, FakeEncoder(), rerank=True)
    client = make_client(searcher)
    where = {"department": ["内科", "外科"], "year": {"gte": 2020}}
    assert client.post(
        "/search", {"query": QUERY, "k": 4, "where": where, "hybrid": True, "rerank": 5}
    ).is_success
    call = searcher.calls[-1]
    assert (call["k"], call["hybrid"], call["rerank"]) == (4, True, 5)
    assert [condition.field for condition in call["where"].conditions] == ["department", "year"]
    # A vector for the dense leg, a text for the others.
    assert client.post("/search", {"query": "x", "vector": [0.5] * DIM, "hybrid": True}).is_success


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings_are_given_as_floats_or_base64(client, form):
    texts = ["头疼", "高血压吃什么"]
    content = client.post("/v1/embeddings", {"input": texts, "model": "fake", "encoding_format": form}).json()
    rows = [entry["embedding"] for entry in content["data"]]
    if form == "base64":
        rows = [np.frombuffer(base64.b64decode(row), dtype="<f4") for row in rows]
    np.testing.assert_array_equal(np.array(rows, np.float32), np.stack([vector_of(text) for text in texts]))
    assert content["usage"] == {"prompt_tokens": 12, "total_tokens": 12}
    assert [entry["index"] for entry in content["data"]] == [0, 1]
    one = client.post("/v1/embeddings", {"input": texts[0], "dimensions": 4}).json()
    short = np.array(one["data"][0]["embedding"], dtype=np.float32)
    np.testing.assert_allclose(
        short, vector_of(texts[0])[:4] / np.linalg.norm(vector_of(texts[0])[:4]), rtol=1e-6
    )
    assert one["model"] == "fake"


def test_input_type_document_needs_a_document_encoder(client, make_client):
    refused = client.post("/v1/embeddings", {"input": "文档", "input_type": "document"})
    assert refused.status_code == 400
    assert "--document-encoder" in refused.json()["error"]["message"]

    both = make_client(documents=FakeDocumentEncoder())
    for kind, sign in (("query", 1), ("document", -1)):
        answer = both.post("/v1/embeddings", {"input": "文档", "input_type": kind}).json()
        np.testing.assert_array_equal(np.float32(answer["data"][0]["embedding"]), sign * vector_of("文档"))


def test_the_name_of_the_model_chooses_the_side(make_client):
    both = make_client(documents=FakeDocumentEncoder(), model_name="fake")
    for model, sign in (("fake", 1), ("fake-document", -1)):
        answer = both.post("/v1/embeddings", {"input": "文档", "model": model}).json()
        np.testing.assert_array_equal(np.float32(answer["data"][0]["embedding"]), sign * vector_of("文档"))
        assert answer["model"] == model
        entry = both.get(f"/v1/models/{model}").json()
        assert entry == {"id": model, "object": "model", "created": 0, "owned_by": "medteb"}
    assert [entry["id"] for entry in both.get("/v1/models").json()["data"]] == ["fake", "fake-document"]
    redundant = {"input": "文档", "model": "fake-document", "input_type": "document"}
    assert both.post("/v1/embeddings", redundant).status_code == 200
    refused = both.post("/v1/embeddings", {**redundant, "input_type": "query"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input_type")
    for path in ("/v1/models/other", "/v1/models/a/b/c", "/v1/models/"):
        missing = both.get(path)
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
        assert "other" not in missing.text


def test_without_a_document_encoder_its_model_says_how_to_get_one(client):
    assert [entry["id"] for entry in client.get("/v1/models").json()["data"]] == ["fake"]
    refused = client.post("/v1/embeddings", {"input": "文档", "model": "fake-document"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
    missing = client.get("/v1/models/fake-document")
    assert missing.status_code == 404
    assert all("--document-encoder" in answer.json()["error"]["message"] for answer in (refused, missing))


def test_a_document_encoder_of_another_space_is_refused(make_client):
    documents = FakeDocumentEncoder()
    documents.space = "another-space"
    with pytest.raises(MarError, match="another document space"):
        make_client(documents=documents)
    documents.space, documents.dim = None, DIM - 1
    with pytest.raises(MarError, match="15 dimensions"):
        make_client(documents=documents)


def test_long_texts_are_refused_or_cut(client):
    text = "疼" * 100
    for path, content in (("/search", {"query": text}), ("/v1/embeddings", {"input": text})):
        refused = client.post(path, content)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "text_too_long")
        assert "102 tokens" in refused.json()["error"]["message"]
        assert text not in refused.text
        assert client.post(path, {**content, "truncate": True}).status_code == 200
    assert client.post("/search", {"query": text, "truncate": True}).json()["truncated"] is True
    used = client.post("/v1/embeddings", {"input": text, "truncate": True}).json()["usage"]
    assert used["prompt_tokens"] == 64


def test_metrics_count_what_happened(client):
    for _ in range(3):
        client.post("/search", {"query": QUERY})
    client.post("/search", {"query": ""})
    client.get("/nowhere/头疼")
    lines = client.get("/metrics").text.splitlines()
    assert 'mar_requests_total{route="/search",status="200"} 3.0' in lines
    assert 'mar_requests_total{route="other",status="404"} 1.0' in lines
    assert 'mar_errors_total{kind="invalid_request"} 1.0' in lines
    for stage in ("queue", "encode", "search", "total"):
        assert f'mar_stage_seconds_count{{stage="{stage}"}} 3.0' in lines
    assert f"mar_index_documents {float(len(DOCUMENTS))}" in lines
    assert not any("头疼" in line for line in lines)


def test_logs_hold_no_query_unless_asked(make_client, caplog):
    with caplog.at_level(logging.DEBUG):
        quiet = make_client(access_log=True)
        quiet.post("/search?text=秘密", {"query": "秘密的病"})
        quiet.post("/v1/embeddings", {"input": "秘密的病"})
        quiet.get("/秘密")
    assert "秘密" not in caplog.text
    assert "POST /search 200" in caplog.text
    assert "GET other 404" in caplog.text
    with caplog.at_level(logging.INFO):
        loud = make_client(log_queries=True)
        loud.post("/search", {"query": "秘密的病"})
    assert "秘密的病" in caplog.text


def test_middleware_that_is_added_sees_every_request(make_client):
    client = make_client()
    seen = []

    class Watching:
        def __init__(self, app, name):
            self.app, self.name = app, name

        async def __call__(self, scope, receive, send):
            seen.append((self.name, scope["path"]))
            await self.app(scope, receive, send)

    client.app.add_middleware(Watching, name="first")
    client.app.add_middleware(Watching, name="last")
    assert client.post("/search", {"query": QUERY}).is_success
    assert client.get("/healthz").is_success
    assert seen == [(name, path) for path in ("/search", "/healthz") for name in ("last", "first")]


def test_a_document_is_shown_by_its_id(client, make_client):
    response = client.get("/document", params={"id": "d2"})
    assert response.json() == {"id": "d2", "title": "标题2", "text": "全文", "metadata": {"year": 2020}}
    assert response.headers["cache-control"] == "no-store"
    missing = client.get("/document", params={"id": "d99"})
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "no_such_document")
    assert "d99" not in missing.text
    for query in ("", "?id=", "?id=d1&id=d2", "?id=%ff", "?" + "&".join(f"a{n}=1" for n in range(20))):
        refused = client.get(f"/document{query}")
        assert refused.status_code == 400, query
        assert refused.json()["error"]["type"] == "invalid_request_error"
    locked = make_client(api_keys=["a-key-of-enough-characters"])
    assert locked.get("/document", params={"id": "d2"}).status_code == 401


def test_a_search_says_whether_its_best_hit_is_a_good_match(make_client):
    client = make_client()
    assert client.post("/search", {"query": DOCUMENTS[0]}).json()["match"] is None
    assert client.get("/info").json()["match"] is None
    searcher = FakeSearcher(DOCUMENTS, FakeEncoder())
    searcher.calibrated = {"threshold": 0.9, "false_reject": 0.05, "chosen_on": 100}
    client = make_client(searcher)
    for query, match in ((DOCUMENTS[0], "good"), (QUERY, "doubtful")):
        for options in ({}, {"hybrid": True, "k": 1}):
            assert client.post("/search", {"query": query, **options}).json()["match"] == match
    # A vector may be of any encoder.
    vector = vector_of(DOCUMENTS[0]).tolist()
    assert client.post("/search", {"vector": vector, "query": DOCUMENTS[0]}).json()["match"] is None
    assert client.get("/info").json()["match"] == {"threshold": 0.9, "false_reject": 0.05}


def test_waiting_requests_for_documents_are_limited(make_client):
    client = make_client(timeout=0.5)
    engine = client.app.state.generations.current
    go = threading.Event()
    engine.searcher.index.find_documents = lambda names: go.wait(20) and {}

    async def ask():
        request = ("GET", "/document?id=d0", {})
        answers = await client.many(*[request] * 70, ("POST", "/search", {"json": {"query": QUERY}}))
        go.set()
        return [answer.status_code for answer in answers]

    *codes, search = asyncio.run(ask())
    assert search == 200
    assert sorted(set(codes)) == [429, 504]
    assert codes.count(504) == 64
