"""The OpenAPI document, with the bounds of the index that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.serve.models import served_models
from mar_st.serve.requests import EmbeddingsRequest, SearchRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

_REF = "#/components/schemas/{model}"
_NUMBER = {"type": "number"}
_COUNT = {"type": "integer", "minimum": 0}

_ERROR = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "additionalProperties": False,
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}

_HIT = {
    "type": "object",
    "required": ["id", "score", "rank", "title", "snippet", "metadata", "legs"],
    "properties": {
        "id": {"type": "string"},
        "score": _NUMBER,
        "rank": {"type": "integer", "minimum": 1},
        "title": {"type": "string"},
        "snippet": {"type": "string"},
        "metadata": {"type": "object"},
        "legs": {
            "type": "object",
            "description": "Which legs found it (`dense`, `bm25`, `rerank`), with rank and score there.",
            "additionalProperties": {
                "type": "object",
                "properties": {"rank": {"type": "integer"}, "score": _NUMBER},
            },
        },
    },
}

_DOCUMENT = {
    "type": "object",
    "required": ["id", "title", "text", "metadata"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string"},
        "title": {"type": "string"},
        "text": {"type": "string"},
        "metadata": {"type": "object"},
    },
}

_HITS = {
    "type": "object",
    "required": ["hits", "match", "timing"],
    "properties": {
        "hits": {"type": "array", "items": {"$ref": "#/components/schemas/Hit"}},
        "match": {
            "enum": ["good", "doubtful", None],
            "description": "Whether the nearest document is near enough to be an answer; null where nothing "
            "was calibrated for the query encoder, or a vector was sent.",
        },
        "timing": {
            "type": "object",
            "description": "Milliseconds. `encode_ms` includes the time in the queue.",
            "required": ["encode_ms", "search_ms", "total_ms"],
            "properties": {"encode_ms": _NUMBER, "search_ms": _NUMBER, "total_ms": _NUMBER},
        },
        "truncated": {"type": "boolean", "description": "Whether the query was cut to what the model takes."},
    },
}

_EMBEDDINGS = {
    "type": "object",
    "required": ["object", "data", "model", "usage"],
    "properties": {
        "object": {"const": "list"},
        "model": {"type": "string"},
        "data": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["object", "index", "embedding"],
                "properties": {
                    "object": {"const": "embedding"},
                    "index": _COUNT,
                    "embedding": {
                        "anyOf": [{"type": "array", "items": _NUMBER}, {"type": "string", "format": "byte"}]
                    },
                },
            },
        },
        "usage": {
            "type": "object",
            "required": ["prompt_tokens", "total_tokens"],
            "properties": {"prompt_tokens": _COUNT, "total_tokens": _COUNT},
        },
    },
}

#: Statuses with which any request may be refused, and why.
_REFUSALS = {
    "400": "The request is not as expected, or has a Host this server does not answer to.",
    "401": "No API key, or a wrong one.",
    "404": "There is no such model or document.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "429": "Too much waits; come again after the seconds of Retry-After.",
    "500": "An error of the server.",
    "503": "The server is starting or stopping.",
    "504": "There was no answer in time.",
}


def openapi(
    *, dim: int, fields: Mapping[str, str], max_k: int, max_texts: int, model: str, documents: bool,
    hybrid: bool, rerank: bool, keys: bool, version: str,
) -> dict[str, Any]:  # fmt: skip
    """Return the OpenAPI 3.1 document of a server.

    Args:
        dim: Dimensions of the index.
        fields: Metadata fields and their types.
        max_k: Most hits of a search.
        max_texts: Most texts of a request.
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
        "Embeddings": _EMBEDDINGS,
        "Hit": _HIT,
        "Hits": _HITS,
        "Document": _DOCUMENT,
        "Error": _ERROR,
    }
    secured: dict[str, Any] = {"security": [{"key": []}]} if keys else {}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "MAR search", "version": version},
        "paths": {
            "/search": {"post": _post("search", "Search the index.", "SearchRequest", "Hits", secured)},
            "/document": {"get": _document(secured)},
            "/v1/embeddings": {
                "post": _post("embeddings", "Encode texts.", "EmbeddingsRequest", "Embeddings", secured)
            },
            "/v1/models": {"get": _get("models", "Names of the models.", secured)},
            "/v1/models/{model}": {"get": _model(served, secured)},
            "/info": {"get": _get("info", "What the index holds and what can be asked of it.", secured)},
            "/healthz": {"get": _get("healthz", "Whether the process answers.", {})},
            "/readyz": {"get": _get("readyz", "Whether searches are answered.", {}, more=("503",))},
        },
        "components": {"schemas": schemas},
    }
    if keys:
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return found


def _post(name: str, summary: str, request: str, answer: str, secured: Mapping[str, Any]) -> dict[str, Any]:
    def content(schema: str) -> dict[str, Any]:
        return {"application/json": {"schema": {"$ref": _REF.format(model=schema)}}}

    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": content(request)},
        "responses": {
            "200": {"description": "The answer.", "content": content(answer)},
            **{
                status: {"description": why, "content": content("Error")}
                for status, why in _REFUSALS.items()
                if (status != "401" or secured) and (status != "404" or name == "embeddings")
            },
        },
        **secured,
    }


def _get(name: str, summary: str, secured: Mapping[str, Any], more: tuple[str, ...] = ()) -> dict[str, Any]:
    codes = ("400", *more, *(("401",) if secured else ()))
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **{code: {"description": _REFUSALS[code], "content": content} for code in codes},
        },
        **secured,
    }


def _document(secured: Mapping[str, Any]) -> dict[str, Any]:
    name = {
        "name": "id",
        "in": "query",
        "required": True,
        "description": "Id of the document, as hits show it.",
        "schema": {"type": "string", "minLength": 1},
    }
    found = _get("document", "One document in full.", secured, more=("404", "429", "504"))
    found["responses"]["200"]["content"] = {
        "application/json": {"schema": {"$ref": _REF.format(model="Document")}}
    }
    return {**found, "parameters": [name]}


def _model(served: list[str], secured: Mapping[str, Any]) -> dict[str, Any]:
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "enum": served}}
    return {**_get("model", "One of the models.", secured, more=("404",)), "parameters": [name]}


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
    own["vector"]["anyOf"][0]["items"] |= {"minimum": -3.4e38, "maximum": 3.4e38}
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
            {"type": "array", "items": value, "minItems": 1, "maxItems": 100},
        ]
        if kind != "boolean":
            bounds = dict.fromkeys(("gte", "gt", "lte", "lt"), value)
            forms.append(
                {"type": "object", "properties": bounds, "additionalProperties": False, "minProperties": 1}
            )
        properties[name] = {"anyOf": forms}
    return {"type": "object", "properties": properties, "additionalProperties": False}
