"""Tests that the server accepts, refuses and answers requests as the OpenAPI document says."""

from __future__ import annotations

import subprocess
import sys

import pytest
from jsonschema_rs import Draft202012Validator

from tests.mar_st.serve.fakes import DIM, FakeEncoder


def test_the_document_has_the_bounds_of_this_index(client):
    document = client.get("/openapi.json").json()
    search = document["components"]["schemas"]["SearchRequest"]["properties"]
    assert search["vector"]["anyOf"][0]["maxItems"] == DIM
    assert search["rerank"] == {"type": "null", "description": "This server has no reranker."}
    assert set(search["where"]["anyOf"][0]["properties"]) == {"department", "year"}
    for name in document["components"]["schemas"]:
        whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        Draft202012Validator(whole)  # raises if invalid
    assert set(document["paths"]) >= {"/search", "/v1/embeddings", "/healthz", "/readyz"}


def test_the_document_names_the_model_of_documents(make_client):
    client = make_client(documents=FakeEncoder(), model_name="fake")
    document = client.get("/openapi.json").json()
    request = document["components"]["schemas"]["EmbeddingsRequest"]
    assert request["properties"]["model"]["anyOf"][0]["enum"] == ["fake", "fake-document"]
    (name,) = document["paths"]["/v1/models/{model}"]["get"]["parameters"]
    assert name["schema"]["enum"] == ["fake", "fake-document"]
    valid = Draft202012Validator({**request, "components": document["components"]}).is_valid
    for content in (
        {"input": "x", "model": "fake-document"},
        {"input": "x", "model": "fake-document", "input_type": "document"},
        {"input": "x", "model": "fake-document", "input_type": "query"},
        {"input": "x", "input_type": "document"},
        {"input": "x", "model": "other"},
    ):
        assert valid(content) == (client.post("/v1/embeddings", content).status_code == 200)


def schemathesis(server, examples, keys=()):
    """Run schemathesis with all its checks; the test fails with its report."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--checks",
               "all", "--max-examples", str(examples), "--seed", "1", "--no-color", "--request-timeout", "20",
               "--suppress-health-check", "all"]  # fmt: skip
    for key in keys:
        command += ["--header", f"Authorization: Bearer {key}"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=250, cwd=server.folder)
    assert process.returncode == 0, process.stdout[-6000:] + process.stderr[-2000:]
    assert server.stop() == 0
    assert not any("ERROR" in line for line in server.log), server.log


@pytest.mark.thorough
def test_server_conforms_to_its_document(serve):
    schemathesis(serve(max_k=50, max_texts=8), 2)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [[], ["a-key-of-enough-characters"]])
def test_server_conforms_to_its_document_in_many_requests(serve, keys):
    schemathesis(serve(max_k=50, max_texts=8, api_keys=keys), 200, keys)
