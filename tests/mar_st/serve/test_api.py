"""The endpoints: searches, embeddings, documents, and requests that are refused."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time

import numpy as np
import pytest

from mar_st.index.searcher import Searcher
from mar_st.online.batcher import DeadlinePassed
from mar_st.serve import ServeSettings, create_app, engine, guard
from tests.mar_st.serve.conftest import Client
from tests.mar_st.serve.fakes import DIM, DOCUMENTS, KEY, FakeEncoder, make_index, vector_of


def error_of(response):
    """Status and code of a refusal, which has the one form of errors."""
    content = response.json()
    assert set(content) == {"error"}
    assert set(content["error"]) == {"message", "type", "param", "code"}
    return response.status_code, content["error"]["code"]


@pytest.mark.parametrize(
    "options", [{}, {"hybrid": True}, {"where": {"department": "内科"}}, {"where": {"department": ["外科"]}}]
)
def test_a_search_gives_what_the_index_gives(client, index, encoder, options):
    response = client.post("/search", {"query": "头疼吃药", "k": 3, **options})
    content = response.json()
    assert response.status_code == 200
    expected = Searcher.open(index, encoder).search(["头疼吃药"], 3, **options)[0]
    assert content["hits"] == [hit.to_json() for hit in expected]
    assert not content["truncated"]
    assert content["timing"]["total_ms"] >= content["timing"]["search_ms"] >= 0


def test_a_search_by_a_vector_needs_no_encoder(make_client, index):
    client = make_client(None)
    body = {"vector": vector_of(DOCUMENTS[2]).tolist(), "k": 1}
    (hit,) = client.post("/search", body).json()["hits"]
    assert (hit["id"], hit["legs"]["dense"]["rank"]) == ("d2", 1)
    assert error_of(client.post("/search", {"query": "x"})) == (400, "no_query_encoder")
    assert error_of(client.post("/v1/embeddings", {"input": "x"})) == (400, "no_query_encoder")
    both = client.post("/search", {**body, "query": "高血压", "hybrid": True}).json()["hits"][0]
    assert set(both["legs"]) == {"dense", "bm25"}


def test_hits_are_reranked_by_a_cross_encoder(make_client):
    class Shortest:
        batch_size = 8

        def score(self, pairs):
            return np.array([-len(document) for _, document in pairs], dtype=np.float32)

    client = make_client(reranker=Shortest())
    hits = client.post("/search", {"query": "x", "k": 6, "rerank": 6}).json()["hits"]
    assert [hit["legs"]["rerank"]["rank"] for hit in hits] == [1, 2, 3, 4, 5, 6]
    lengths = [len(DOCUMENTS[int(hit["id"][1:])]) for hit in hits]
    assert lengths == sorted(lengths)


def test_embeddings_are_those_of_openais_endpoint(client):
    content = client.post("/v1/embeddings", {"input": ["头疼", "感冒"], "model": "fake"}).json()
    assert (content["object"], content["model"]) == ("list", "fake")
    assert content["usage"] == {"prompt_tokens": 8, "total_tokens": 8}
    assert [item["index"] for item in content["data"]] == [0, 1]
    np.testing.assert_array_equal(np.float32(content["data"][1]["embedding"]), vector_of("感冒"))
    short = client.post("/v1/embeddings", {"input": "头疼", "dimensions": 4, "encoding_format": "base64"})
    vector = np.frombuffer(base64.b64decode(short.json()["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(
        vector, vector_of("头疼")[:4] / np.linalg.norm(vector_of("头疼")[:4]), rtol=1e-6
    )


def test_as_many_texts_as_openai_takes_are_encoded_in_parts(client, encoder):
    texts = [f"文{number}" for number in range(2048)]
    data = client.post("/v1/embeddings", {"input": texts}).json()["data"]
    np.testing.assert_array_equal(np.float32(data[-1]["embedding"]), vector_of(texts[-1]))
    assert max(map(len, encoder.batches)) <= 64


@pytest.mark.parametrize("item", [b"1", b'" "', b"null", b"[]", b"{}"])
def test_the_number_of_texts_is_checked_before_the_texts(client, item):
    body = b'{"input": [' + b",".join([item] * (2_000_000 // (len(item) + 1))) + b"]}"
    began = time.process_time()
    refused = client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
    assert error_of(refused) == (400, "invalid_request")
    assert time.process_time() - began < 1


def test_texts_are_scored_as_text_embeddings_inference_does(make_client):
    class Lengths:
        batch_size = 8
        activation_fn = type("Identity", (), {})()

        def open(self):
            return self

        def score(self, pairs):
            return np.array([len(text) - 3 for _, text in pairs], dtype=np.float32)

    client = make_client(reranker=Lengths())
    body = {"query": "x", "texts": ["一", "三三三", "五五五五五"], "truncate": True, "raw_scores": None}
    ranks = client.post("/rerank", body).json()
    assert [rank["index"] for rank in ranks] == [2, 1, 0]
    np.testing.assert_allclose([rank["score"] for rank in ranks], 1 / (1 + np.exp([-2.0, 0, 2])), rtol=1e-6)
    raw = client.post("/rerank", {**body, "raw_scores": True, "return_text": True}).json()
    assert raw[0] == {"index": 2, "score": 2.0, "text": "五五五五五"}


def test_browsers_of_named_websites_may_call(make_client):
    site = "https://example.org"
    client = make_client(cors=[site])
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    for origin, allowed in ((site, site), ("https://evil.example", None)):
        headers = {"origin": origin}
        preflight = asyncio.run(client.many(("OPTIONS", "/search", {"headers": {**headers, **asks}})))[0]
        assert preflight.headers.get("access-control-allow-origin") == allowed
        answer = client.post("/search", {"query": "头疼"}, headers=headers)
        assert answer.headers.get("access-control-allow-origin") == allowed
    assert "access-control-allow-origin" not in make_client().get("/info", headers={"origin": site}).headers


def test_null_is_absent(client):
    nulls = dict.fromkeys(["model", "encoding_format", "dimensions", "truncate", "user", "input_type"])
    plain = client.post("/v1/embeddings", {"input": "头疼"})
    assert client.post("/v1/embeddings", {"input": "头疼", **nulls}).json() == plain.json()
    nulls = dict.fromkeys(["vector", "k", "where", "hybrid", "rerank", "truncate"])
    assert len(client.post("/search", {"query": "头疼", **nulls}).json()["hits"]) == 6


def test_the_server_describes_itself(client):
    info = client.get("/info").json()
    assert (info["model"], info["query_encoder"]) == ("fake", "query-fake")
    assert (info["documents"], info["dim"]) == (6, DIM)
    assert (info["hybrid"], info["rerank"]) == (True, False)
    assert info["fields"] == {"department": "string"}
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    paths = client.get("/openapi.json").json()["paths"]
    assert "SearchRequest" in json.dumps(paths["/search"])
    assert "422" not in json.dumps(paths)
    assert "department" not in json.dumps(paths)  # it needs no key
    assert info["examples"] == [title for title in info["examples"] if title.startswith("标题")] != []
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert client.get("/page.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/search", {}, "invalid_request"),
        ("/search", {"query": "  "}, "invalid_request"),
        ("/search", {"query": "x", "k": 0}, "invalid_request"),
        ("/search", {"query": "x", "nix": 1}, "invalid_request"),
        ("/search", {"query": "x", "where": {"nix": 1}}, "invalid_request"),
        ("/search", {"query": "x", "where": {"department": {"$ne": 1}}}, "invalid_request"),
        ("/search", {"query": "x", "rerank": 5}, "no_reranker"),
        ("/search", {"vector": [0.5] * 15}, "invalid_request"),
        ("/search", {"vector": [1e30] * 16}, "invalid_request"),
        ("/search", {"vector": [0.5] * 16, "hybrid": True}, "invalid_request"),
        ("/search", b'{"query": "x"', "invalid_json"),
        ("/search", b'{"vector": [NaN' + b", 1" * 15 + b"]}", "invalid_request"),
        ("/search", b'{"query": "\\ud800"}', "invalid_request"),
        ("/search", b'{"query": "x", "where": {"department": "\\ud800"}}', "invalid_request"),
        ("/search", b"\xff", "invalid_json"),
        ("/search", b"[" * 100_000, "invalid_json"),
        ("/v1/embeddings", {"input": []}, "invalid_request"),
        ("/v1/embeddings", {"input": [1, 2]}, "invalid_request"),
        ("/v1/embeddings", {"input": ["x", ""]}, "invalid_request"),
        ("/v1/embeddings", {"input": "x", "dimensions": 17}, "invalid_request"),
        ("/v1/embeddings", {"input": ["x"] * 2049}, "invalid_request"),
        ("/rerank", {"query": "x", "texts": ["x"]}, "no_reranker"),
        ("/rerank", {"query": "x", "texts": []}, "invalid_request"),
    ],
)
def test_an_invalid_request_is_one_error(client, path, body, code):
    headers = {"content-type": "application/json"}
    given = {"content": body, "headers": headers} if isinstance(body, bytes) else {"json": body}
    assert error_of(client.post(path, **given)) == (400, code)


def test_other_models_paths_methods_and_bodies_are_refused(client):
    assert error_of(client.post("/v1/embeddings", {"input": "x", "model": "gpt"})) == (404, "model_not_found")
    assert error_of(client.get("/nix")) == (404, "no_such_path")
    assert error_of(client.get("/search")) == (405, "method_not_allowed")
    plain = client.post("/search", content=b'{"query": "x"}', headers={"content-type": "text/plain"})
    assert error_of(plain) == (415, "not_json")


def test_long_texts_are_refused_before_they_are_counted_or_cut(make_client, encoder):
    client = make_client()
    for path, field in (("/search", "query"), ("/v1/embeddings", "input")):
        for text in ("x" * 63, "x" * 100_000):
            assert error_of(client.post(path, {field: text})) == (400, "text_too_long")
            assert client.post(path, {field: text, "truncate": True}).status_code == 200
    assert encoder.counted == 16 * 64
    cut = client.post("/search", {"query": "头" * 70, "truncate": True}).json()
    assert cut["truncated"] is True
    assert client.post("/search", {"query": "头" * 20}).json()["truncated"] is False


@pytest.mark.parametrize("text", ["㍿" * 20, "ﷺ" * 4, " " * 2000])
def test_what_is_cut_is_said_although_the_text_is_short_or_blank(client, text):
    one, other = (
        client.post("/search", {"query": text + end, "truncate": True}).json() for end in ("头疼", "感冒")
    )
    assert one["hits"] == other["hits"]
    assert one["truncated"] is other["truncated"] is True
    assert error_of(client.post("/search", {"query": text + "头疼"})) == (400, "text_too_long")


def test_a_body_of_the_largest_allowed_size_is_accepted(client, monkeypatch):
    monkeypatch.setattr(guard, "MAX_BODY", 2000)

    async def parts(size):
        yield b'{"query": "x"}'.ljust(size - 1)
        yield b" "

    for size, status in ((2000, 200), (2001, 413)):
        for content in (b'{"query": "x"}'.ljust(size), parts(size)):
            headers = {"content-type": "application/json"}
            assert client.post("/search", content=content, headers=headers).status_code == status


def test_a_key_is_needed_where_keys_are_set(make_client, tmp_path, monkeypatch):
    file = tmp_path / "keys"
    file.write_text(f"# comment\n{KEY}\n", encoding="utf-8")
    file.chmod(0o600)
    client = make_client(api_keys=file)
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": KEY}, {"x-api-key": ""}):
        assert error_of(client.post("/search", {"query": "x"}, headers=headers)) == (401, "invalid_api_key")
        assert client.get("/metrics", headers=headers).status_code == 401
        assert client.get("/healthz", headers=headers).status_code == 200
        assert client.get("/", headers=headers).status_code == 200
    for headers in ({"authorization": f"bearer {KEY}"}, {"x-api-key": KEY}):
        assert client.post("/search", {"query": "x"}, headers=headers).status_code == 200
    monkeypatch.setenv("MAR_API_KEYS", f"{KEY}, {KEY}2")
    other = make_client()
    assert other.get("/info", headers={"x-api-key": KEY + "2"}).status_code == 200
    assert other.get("/info").status_code == 401


def test_only_known_hosts_are_answered_without_keys(make_client):
    client = make_client()
    for host, status in (
        ("127.0.0.1:8000", 200), ("LOCALHOST", 200), ("[::1]:99", 200),
        ("evil.example.org", 400), ("127.0.0.1.evil.org", 400), ("", 400), ("[::1", 400),
    ):  # fmt: skip
        assert client.get("/info", headers={"host": host}).status_code == status, host
    assert error_of(client.post("/admin/reload")) == (403, "no_api_keys")


def test_texts_of_concurrent_requests_are_encoded_together(make_client, encoder):
    client = make_client()
    encoder.gate.clear()

    async def run():
        first = asyncio.create_task(client.many(("POST", "/search", {"json": {"query": "先"}})))
        while not encoder.batches:
            await asyncio.sleep(0.005)
        others = [("POST", "/search", {"json": {"query": text, "k": 1}}) for text in DOCUMENTS]
        rest = asyncio.create_task(client.many(*others))
        await asyncio.sleep(0.1)
        encoder.gate.set()
        return await first + await rest

    _, *answers = asyncio.run(run())
    assert [answer.json()["hits"][0]["id"] for answer in answers] == [f"d{place}" for place in range(6)]
    assert sorted(encoder.batches[1]) == sorted(DOCUMENTS)


def test_a_full_queue_is_429_and_a_late_answer_504(make_client, encoder, monkeypatch):
    monkeypatch.setattr(engine, "MAX_QUEUE", 3)
    client = make_client(timeout=0.5)
    encoder.gate.clear()
    bodies = [("POST", "/search", {"json": {"query": f"问{number}"}}) for number in range(8)]
    answers = asyncio.run(client.many(*bodies))
    encoder.gate.set()
    assert {answer.status_code for answer in answers} == {429, 504}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert error_of(refused) == (429, "overloaded")
    assert int(refused.headers["retry-after"]) >= 1
    time.sleep(0.05)
    assert client.post("/search", {"query": "later"}).status_code == 200


def test_a_search_is_told_its_deadline(index, encoder):
    searcher = Searcher.open(index, encoder)
    app = create_app(searcher, ServeSettings(timeout=0.3))
    plain = searcher.search_vectors

    def slow(vectors, texts=None, k=10, **options):
        if texts == ["slow"]:
            while time.monotonic() < options["deadline"]:
                time.sleep(0.01)
            raise DeadlinePassed("stopped")
        return plain(vectors, texts, k, **options)

    searcher.search_vectors = slow
    client = Client(app)
    assert error_of(client.post("/search", {"query": "slow"})) == (504, "timeout")
    assert client.post("/search", {"query": "later"}).status_code == 200


def test_a_failure_fails_one_request_and_its_text_is_not_logged(client, caplog):
    bodies = [("POST", "/search", {"json": {"query": query}}) for query in ("头疼", "炸", "感冒")]
    answers = asyncio.run(client.many(*bodies))
    assert [answer.status_code for answer in answers] == [200, 500, 200]
    assert error_of(answers[1]) == (500, "internal")
    assert "KeyError in a request" in caplog.text
    for secret in ("秘密", "炸"):
        assert secret not in caplog.text + answers[1].text


def test_queries_are_logged_only_if_asked_for(make_client, caplog):
    caplog.set_level("INFO")
    make_client().post("/search", {"query": "头疼"})
    assert "头疼" not in caplog.text
    client = make_client(log_queries=True)
    client.post("/search", {"query": "头疼"})
    client.post("/v1/embeddings", {"input": ["发热"]})
    assert "头疼" in caplog.text
    assert "发热" in caplog.text


def test_metrics_count_requests_batches_and_errors(client):
    client.post("/search", {"query": "x"})
    client.post("/search", {"query": "x" * 70})
    client.get("/secret-text")
    client.get("/readyz")
    client.get("/metrics")
    page = client.get("/metrics").text
    for line in (
        'mar_requests_total{route="/search",status="200"} 1.0',
        'mar_requests_total{route="/search",status="400"} 1.0',
        'mar_requests_total{route="other",status="404"} 1.0',
        'mar_errors_total{kind="text_too_long"} 1.0',
        'mar_batch_size_count{stage="search"} 1.0',
        'mar_errors_total{kind="internal"} 0.0',
        'mar_stage_seconds_count{stage="encode"} 1.0',
        'mar_stage_seconds_count{stage="total"} 1.0',
        'mar_queue_length{stage="search"} 0.0',
        "mar_index_documents 6.0",
        'mar_query_encoder{model="fake",query_encoder="query-fake"} 1.0',
    ):
        assert line in page
    assert "secret" not in page


def test_a_reload_opens_the_index_again(tmp_path, monkeypatch):
    first, second = (make_index(tmp_path / prefix, prefix=prefix) for prefix in "ab")
    current = tmp_path / "current"
    current.symlink_to(first)
    monkeypatch.setattr("mar_st.index.searcher.load_query_encoder", lambda *_, **__: FakeEncoder())
    monkeypatch.setenv("MAR_API_KEYS", KEY)
    client = Client(create_app(current, ServeSettings(encoder="fake")))
    headers = {"x-api-key": KEY}

    def first_id():
        return client.post("/search", {"query": "头疼"}, headers=headers).json()["hits"][0]["id"][0]

    assert first_id() == "a"
    current.unlink()
    assert error_of(client.post("/admin/reload", headers=headers)) == (409, "not_reloaded")
    assert first_id() == "a"
    current.symlink_to(second)
    assert client.post("/admin/reload", headers=headers).json() == {"documents": 6}
    assert first_id() == "b"
    assert client.get("/info", headers=headers).json()["generation"] == 2


def test_the_server_does_not_import_torch():
    code = "import sys, mar_st.serve.launch; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
