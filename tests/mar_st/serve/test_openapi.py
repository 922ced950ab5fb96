"""The OpenAPI document is true: what follows it is answered, the rest refused, and answers are as it says."""

from __future__ import annotations

import subprocess
import sys

import pytest
from jsonschema_rs import Draft202012Validator

from tests.mar_st.serve.fakes import DIM


def test_the_document_has_the_bounds_of_this_index(client):
    document = client.get("/openapi.json").json()
    search = document["components"]["schemas"]["SearchRequest"]["properties"]
    assert search["vector"]["anyOf"][0]["maxItems"] == DIM
    assert search["rerank"] == {"type": "null", "description": "This server has no reranker."}
    assert set(search["where"]["anyOf"][0]["properties"]) == {"department", "year"}
    for name in document["components"]["schemas"]:
        whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        Draft202012Validator(whole)  # raises if it is none
    assert set(document["paths"]) >= {"/search", "/v1/embeddings", "/healthz", "/readyz"}


def schemathesis(server, examples, keys=()):
    """A run of schemathesis with all its checks; what it says where something is wrong."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--checks",
               "all", "--max-examples", str(examples), "--seed", "1", "--no-color", "--request-timeout", "20",
               "--suppress-health-check", "all"]  # fmt: skip
    for key in keys:
        command += ["--header", f"Authorization: Bearer {key}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, cwd=server.folder)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert server.stop() == 0
    assert not any("ERROR" in line for line in server.log), server.log


def test_requests_that_follow_the_document_and_others(serve):
    schemathesis(serve(max_k=50, max_texts=8), 2)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [[], ["a-key-of-enough-characters"]])
def test_many_requests_that_follow_the_document_and_others(serve, keys):
    schemathesis(serve(max_k=50, max_texts=8, api_keys=keys), 200, keys)
