"""Response models: every response has the fields of its model, and every schema of them is complete."""

from __future__ import annotations

import re

import orjson
import pytest

from mar_st.serve.api import responses
from mar_st.serve.api.responses import response_schemas
from tests.mar_st.serve.fakes import DIM


@pytest.mark.parametrize(
    ("model", "path", "body"),
    [
        ("SearchResponse", "/search", {"query": "x", "k": 2}),
        ("SearchResponse", "/search", {"vector": [1.0] + [0.0] * (DIM - 1)}),
        ("EmbeddingsResponse", "/v1/embeddings", {"input": ["x", "y"]}),
        ("EmbeddingsResponse", "/v1/embeddings", {"input": "x", "encoding_format": "base64"}),
        ("ErrorResponse", "/search", {"query": ""}),
        ("ErrorResponse", "/document?id=none", None),
        ("ModelsResponse", "/v1/models", None),
        ("InfoResponse", "/info", None),
        ("StatusResponse", "/healthz", None),
        ("StatusResponse", "/readyz", None),
    ],
)
def test_response_has_the_fields_of_its_model_and_no_others(client, model, path, body):
    answer = (client.get(path) if body is None else client.post(path, body)).json()
    parsed = getattr(responses, model).model_validate(answer, strict=True)
    assert parsed.model_dump(exclude_unset=True) == answer  # a field that the model lacks would be missing


@pytest.mark.parametrize("template", ["#/components/schemas/{model}", "{model}.json"])
def test_every_schema_that_another_refers_to_is_there(template):
    schemas = response_schemas(template)
    before, after = map(re.escape, template.split("{model}"))
    named = re.findall(rf'"\$ref":"{before}(\w+){after}"', orjson.dumps(schemas).decode())
    assert {"SearchHit", "LegResult", "ErrorDetails"} <= set(named) <= set(schemas)
