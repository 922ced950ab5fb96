"""The OpenAPI document, with the bounds of the index that answers.

Its schemas come from the pydantic models. FastAPI cannot make the document, because searches and embeddings
bypass its routing (see `mar_st.serve.api.http`), and the bounds change with the index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.index.base import LARGEST_VALUE
from mar_st.index.filters import MAX_VALUES
from mar_st.serve.api.models import served_models
from mar_st.serve.api.requests import EmbeddingsRequest, SearchRequest
from mar_st.serve.api.responses import response_schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

_REF = "#/components/schemas/{model}"

#: Descriptions of the error responses, by status.
_REFUSALS = {
    "400": "The request is invalid, or its Host header is not allowed.",
    "401": "No API key, or a wrong one.",
    "404": "There is no such model or document.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not application/json, or it is compressed.",
    "429": "The queue is full; retry after the seconds in Retry-After.",
    "500": "Internal server error.",
    "503": "The server is starting or stopping.",
    "504": "The request timed out.",
}


def openapi(
    *, dim: int, fields: Mapping[str, str], max_k: int, max_texts: int, model: str, documents: bool,
    hybrid: bool, rerank: bool, keys: bool, version: str,
) -> dict[str, Any]:  # fmt: skip
    """Return the OpenAPI 3.1 document of a server.

    Args:
        dim: Dimensions of the index.
        fields: Metadata fields and their types.
        max_k: Maximum number of hits of a search.
        max_texts: Maximum number of texts of a request.
        model: Name of the model.
        documents: Whether documents can be encoded.
        hybrid: Whether the index has BM25.
        rerank: Whether there is a reranker.
        keys: Whether API keys are required.
        version: Version of the package.
    """
    served = served_models(model, queries=True, documents=documents)
    schemas = {
        "EmbeddingsRequest": _embeddings_request(dim, max_texts, served),
        "SearchRequest": _search_request(dim, fields, max_k, hybrid=hybrid, rerank=rerank),
        **response_schemas(_REF),
    }
    secured: dict[str, Any] = {"security": [{"key": []}]} if keys else {}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "MAR search", "version": version},
        "paths": {
            "/search": {
                "post": _post("search", "Search the index.", "SearchRequest", "SearchResponse", secured)
            },
            "/document": {"get": _document(secured)},
            "/v1/embeddings": {
                "post": _post(
                    "embeddings", "Encode texts.", "EmbeddingsRequest", "EmbeddingsResponse", secured
                )
            },
            "/v1/models": {"get": _get("models", "Names of the models.", "ModelsResponse", secured)},
            "/v1/models/{model}": {"get": _model(served, secured)},
            "/info": {
                "get": _get("info", "Contents of the index, and limits of requests.", "InfoResponse", secured)
            },
            "/healthz": {"get": _get("healthz", "Liveness check.", "StatusResponse", {})},
            "/readyz": {"get": _ready()},
        },
        "components": {"schemas": schemas},
    }
    if keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return document


def _reference(schema: str) -> dict[str, str]:
    return {"$ref": _REF.format(model=schema)}


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(schema)}}


def _post(name: str, summary: str, request: str, answer: str, secured: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": _content(request)},
        "responses": {
            "200": {"description": "The answer.", "content": _content(answer)},
            **{
                status: {"description": why, "content": _content("ErrorResponse")}
                for status, why in _REFUSALS.items()
                if (status != "401" or secured) and (status != "404" or name == "embeddings")
            },
        },
        **secured,
    }


def _get(
    name: str, summary: str, answer: str, secured: Mapping[str, Any], more: tuple[str, ...] = ()
) -> dict[str, Any]:
    codes = ("400", *more, *(("401",) if secured else ()))
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": _content(answer)},
            **{
                code: {"description": _REFUSALS[code], "content": _content("ErrorResponse")} for code in codes
            },
        },
        **secured,
    }


def _ready() -> dict[str, Any]:
    operation = _get("readyz", "Readiness check.", "StatusResponse", {}, more=("503",))
    bodies = [_reference("StatusResponse"), _reference("ErrorResponse")]
    operation["responses"]["503"]["content"] = {"application/json": {"schema": {"anyOf": bodies}}}
    return operation


def _document(secured: Mapping[str, Any]) -> dict[str, Any]:
    parameter = {
        "name": "id",
        "in": "query",
        "required": True,
        "description": "Id of the document, as hits show it.",
        "schema": {"type": "string", "minLength": 1},
    }
    operation = _get(
        "document", "One document in full.", "DocumentResponse", secured, more=("404", "429", "504")
    )
    return {**operation, "parameters": [parameter]}


def _model(served: list[str], secured: Mapping[str, Any]) -> dict[str, Any]:
    parameter = {
        "name": "model",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "enum": served},
    }
    return {
        **_get("model", "One of the models.", "ModelEntry", secured, more=("404",)),
        "parameters": [parameter],
    }


def _embeddings_request(dim: int, max_texts: int, served: list[str]) -> dict[str, Any]:
    schema = EmbeddingsRequest.model_json_schema()
    fields = schema["properties"]
    fields["input"]["anyOf"][1]["maxItems"] = max_texts
    fields["model"]["anyOf"][0]["enum"] = served
    fields["dimensions"]["anyOf"][0]["maximum"] = dim
    if len(served) == 1:
        fields["input_type"] = {**fields["input_type"], "enum": ["query"]}
    else:
        query_of_documents = {"model": {"const": served[1]}, "input_type": {"const": "query"}}
        schema["not"] = {"required": [*query_of_documents], "properties": query_of_documents}
    return schema


def _search_request(
    dim: int, fields: Mapping[str, str], max_k: int, *, hybrid: bool, rerank: bool
) -> dict[str, Any]:
    schema = SearchRequest.model_json_schema()
    own = schema["properties"]
    own["k"]["maximum"] = max_k
    own["vector"]["anyOf"][0] |= {"minItems": dim, "maxItems": dim}
    own["vector"]["anyOf"][0]["items"] |= {"minimum": -LARGEST_VALUE, "maximum": LARGEST_VALUE}
    own["where"]["anyOf"] = [_where(fields), {"type": "null"}]
    if not hybrid:
        own["hybrid"] = {**own["hybrid"], "const": False}
    if not rerank:
        own["rerank"] = {"type": "null", "description": "This server has no reranker."}
    else:
        own["rerank"]["anyOf"][0]["maximum"] = max_k
    schema["anyOf"] = [
        {"required": ["query"], "properties": {"query": {"type": "string"}}},
        {
            "required": ["vector"],
            "properties": {
                "vector": {"type": "array"},
                "hybrid": {"const": False},
                "rerank": {"type": "null"},
            },
        },
    ]
    return schema


def _where(fields: Mapping[str, str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, kind in fields.items():
        value = {"type": kind}
        forms: list[dict[str, Any]] = [
            value,
            {"type": "array", "items": value, "minItems": 1, "maxItems": MAX_VALUES},
        ]
        if kind != "boolean":
            bounds = dict.fromkeys(("gte", "gt", "lte", "lt"), value)
            forms.append(
                {"type": "object", "properties": bounds, "additionalProperties": False, "minProperties": 1}
            )
        properties[name] = {"anyOf": forms}
    return {"type": "object", "properties": properties, "additionalProperties": False}
