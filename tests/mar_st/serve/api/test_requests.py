"""Refusal of bad requests, with the field that is wrong."""

from __future__ import annotations

import orjson
import pytest

from tests.mar_st.serve.fakes import DIM

BAD = [
    ("/search", {}, "query"),
    ("/search", {"query": ""}, "query"),
    ("/search", {"query": " \n"}, "query"),
    ("/search", {"query": 5}, "query"),
    ("/search", {"query": ["头疼"]}, "query"),
    ("/search", {"query": "x", "k": 0}, "k"),
    ("/search", {"query": "x", "k": -1}, "k"),
    ("/search", {"query": "x", "k": 10**9}, "k"),
    ("/search", {"query": "x", "k": 10**30}, "k"),
    ("/search", {"query": "x", "k": 2.5}, "k"),
    ("/search", {"query": "x", "k": True}, "k"),
    ("/search", {"query": "x", "k": "3"}, "k"),
    ("/search", {"query": "x", "where": {"nothing": 1}}, "where"),
    ("/search", {"query": "x", "where": {"year": "abc"}}, "where"),
    ("/search", {"query": "x", "where": {"year": {"about": 1}}}, "where"),
    ("/search", {"query": "x", "where": [1]}, "where"),
    ("/search", {"query": "x", "hybrid": 1}, "hybrid"),
    ("/search", {"query": "x", "rerank": 3}, "rerank"),
    ("/search", {"vector": [0.1] * DIM, "hybrid": True}, "query"),
    ("/search", {"vector": [0.1] * (DIM + 1)}, "vector"),
    ("/search", {"vector": []}, "vector"),
    ("/search", {"vector": "AAAA"}, "vector"),
    ("/search", {"vector": [True] * DIM}, "vector"),
    ("/search", {"vector": ["1"] * DIM}, "vector"),
    ("/search", {"vector": [None] * DIM}, "vector"),
    ("/search", {"vector": [[0.1]] * DIM}, "vector"),
    ("/search", {"vector": [1e300] * DIM}, "vector"),
    ("/search", {"vector": [3e38] * DIM}, "vector"),
    ("/search", {"vector": [0.0] * (DIM - 1) + [-1.1e15]}, "vector"),
    ("/search", {"vector": [10**30] * DIM}, "vector"),
    ("/search", {"query": "x", "surprise": 1}, None),
    ("/v1/embeddings", {}, "input"),
    ("/v1/embeddings", {"input": []}, "input"),
    ("/v1/embeddings", {"input": ""}, "input"),
    ("/v1/embeddings", {"input": ["x", " "]}, "input"),
    ("/v1/embeddings", {"input": [1, 2, 3]}, "input"),
    ("/v1/embeddings", {"input": [[1, 2], [3]]}, "input"),
    ("/v1/embeddings", {"input": [None]}, "input"),
    ("/v1/embeddings", {"input": ["x"] * 257}, "input"),
    ("/v1/embeddings", {"input": "x", "encoding_format": "hex"}, "encoding_format"),
    ("/v1/embeddings", {"input": "x", "dimensions": 0}, "dimensions"),
    ("/v1/embeddings", {"input": "x", "dimensions": DIM + 1}, "dimensions"),
    ("/v1/embeddings", {"input": "x", "input_type": "both"}, "input_type"),
]


@pytest.mark.parametrize(("path", "content", "param"), BAD)
def test_bad_requests_name_the_field(client, path, content, param):
    try:
        body = orjson.dumps(content)
    except TypeError:  # more digits than orjson writes
        import json

        body = json.dumps(content).encode()
    response = client.post(path, headers={"content-type": "application/json"}, content=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param
    assert error["message"]
    assert set(error) == {"message", "type", "param", "code"}


RAW = {
    "nan": b'{"vector": [NaN, NaN]}',
    "infinity": b'{"vector": [Infinity]}',
    "minus infinity": b'{"vector": [-Infinity]}',
    "invalid utf-8": b'{"query": "\xff\xfe"}',
    "overlong utf-8": b'{"query": "\xc0\xaf"}',
    "lone surrogate": b'{"query": "\\ud800"}',
    "surrogate bytes": b'{"query": "\xed\xa0\x80"}',
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep in a field": b'{"where": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    "cut off": b'{"query": "x',
    "nothing": b"",
    "a list": b"[1]",
    "a text": b'"query"',
    "null": b"null",
    "two": b"{} {}",
    "bom": b'\xef\xbb\xbf{"query": "x"}',
    "control": b'{"query": "a\x00b"}',
}


@pytest.mark.parametrize("path", ["/search", "/v1/embeddings"])
@pytest.mark.parametrize("name", RAW)
def test_invalid_json_is_refused(client, path, name):
    response = client.post(
        path, content=RAW[name], headers={"content-type": "application/json; charset=utf-8"}
    )
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


def test_wrong_types_methods_paths_and_hosts_are_refused(client):
    form = client.post("/search", content=b"{}", headers={"content-type": "text/plain"})
    assert (form.status_code, form.json()["error"]["code"]) == (415, "not_json")
    assert client.post("/search", content=b"{}").status_code == 415
    assert client.get("/search").status_code == 405
    assert client.get("/search").json()["error"]["code"] == "method_not_allowed"
    assert client.get("/头疼").json()["error"]["code"] == "no_such_path"
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/healthz", headers={"host": "[::1]:8000"}).status_code == 200
    unknown = client.post("/v1/embeddings", {"input": "x", "model": "gpt"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert client.post("/search", {"query": "x", "k": 13}).json()["error"]["message"] == "13 brings bad luck."
    reload = client.post("/admin/reload", {})
    assert (reload.status_code, reload.json()["error"]["code"]) == (403, "no_api_keys")


def test_the_body_is_limited_with_and_without_a_content_length(make_client):
    client = make_client(max_body=1000)
    large = client.post("/search", {"query": "x" * 2000})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")

    async def parts():
        for _ in range(100):
            yield b" " * 100

    chunked = client.post("/search", content=parts(), headers={"content-type": "application/json"})
    assert chunked.status_code == 413


def test_too_many_tokens_are_refused(make_client):
    client = make_client(max_tokens=100, max_texts=8)
    many = client.post("/v1/embeddings", {"input": ["疼" * 50] * 4})
    assert (many.status_code, many.json()["error"]["code"]) == (400, "too_many_tokens")
    assert client.post("/v1/embeddings", {"input": ["疼" * 20] * 4}).status_code == 200
