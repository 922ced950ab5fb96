"""Response models, which generate the OpenAPI document.

Responses are written without them, which is faster.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

Count = Annotated[int, Field(ge=0)]


class LegResult(BaseModel):
    """Rank and score of a hit in one leg of a hybrid search."""

    rank: int
    score: float


class SearchHit(BaseModel):
    """One document of a search response."""

    id: str
    score: float
    rank: Annotated[int, Field(ge=1)]
    title: str
    snippet: str
    metadata: dict[str, Any]
    legs: Annotated[
        dict[str, LegResult],
        Field(description="The legs that found it (`dense`, `bm25`, `rerank`), with rank and score there."),
    ]


class SearchTiming(BaseModel):
    """Milliseconds. `encode_ms` includes the time in the queue."""

    encode_ms: float
    search_ms: float
    total_ms: float


class SearchResponse(BaseModel):
    """Response of `/search`."""

    hits: list[SearchHit]
    match: Annotated[
        Literal["good", "doubtful"] | None,
        Field(
            description="Whether the nearest document is near enough to be an answer; null if the query "
            "encoder was not calibrated, or the request holds a vector."
        ),
    ]
    timing: SearchTiming
    truncated: Annotated[
        bool, Field(description="Whether the query was cut to the model's maximum length.")
    ] = False


class EmbeddingItem(BaseModel):
    """The embedding of one text."""

    object: Literal["embedding"]
    index: Count
    embedding: Annotated[
        list[float] | Annotated[str, Field(json_schema_extra={"format": "byte"})],
        Field(description="Numbers, or little-endian float32 values in base64."),
    ]


class TokenUsage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: Count
    total_tokens: Count


class EmbeddingsResponse(BaseModel):
    """Response of `/v1/embeddings`."""

    object: Literal["list"]
    data: list[EmbeddingItem]
    model: str
    usage: TokenUsage


class DocumentResponse(BaseModel):
    """Response of `/document`."""

    model_config = ConfigDict(extra="forbid")

    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class StatusResponse(BaseModel):
    """Response of `/healthz` and `/readyz`."""

    status: Literal["ok", "ready", "stopping"]


class ModelEntry(BaseModel):
    """One of the models that answer."""

    id: str
    object: Literal["model"]
    created: Literal[0]
    owned_by: str
    query_encoder: Annotated[
        str, Field(description="Name of the query encoder; only models of queries have it.")
    ] = ""


class ModelsResponse(BaseModel):
    """Response of `/v1/models`."""

    object: Literal["list"]
    data: list[ModelEntry]


class GoodMatch(BaseModel):
    """Criterion by which a search response calls its match good."""

    threshold: Annotated[
        float, Field(description="Similarity from which the nearest document is a good match.")
    ]
    false_reject: Annotated[
        float, Field(description="Share of answerable queries that fell below it in the calibration.")
    ]


class InfoResponse(BaseModel):
    """Response of `/info`."""

    model: str
    query_encoder: str | None
    effort: dict[str, Any] | None
    match: GoodMatch | None
    documents: Count
    dim: Annotated[int, Field(ge=1)]
    fields: Annotated[
        dict[str, Literal["string", "integer", "number", "boolean"]],
        Field(description="Metadata fields and their types."),
    ]
    hybrid: Annotated[bool, Field(description="Whether the index has BM25.")]
    rerank: Annotated[bool, Field(description="Whether there is a reranker.")]
    texts: Annotated[bool, Field(description="Whether the index has the texts of its documents.")]
    input_types: list[Literal["query", "document"]]
    max_k: Annotated[int, Field(ge=1)]
    max_texts: Annotated[int, Field(ge=1)]
    generation: Annotated[int, Field(description="Rises when the index is opened again.")]


class ErrorDetails(BaseModel):
    """An error, in the form that OpenAI's clients read."""

    model_config = ConfigDict(extra="forbid")

    message: str
    type: str
    param: str | None
    code: str


class ErrorResponse(BaseModel):
    """Response to a request that was refused or failed."""

    model_config = ConfigDict(extra="forbid")

    error: ErrorDetails


def response_schemas(ref_template: str) -> dict[str, Any]:
    """Return the JSON Schemas of all responses, by name.

    Args:
        ref_template: Template of references between schemas, with `{model}` for the name.
    """
    models: tuple[type[BaseModel], ...] = (
        SearchResponse,
        EmbeddingsResponse,
        DocumentResponse,
        ModelsResponse,
        InfoResponse,
        StatusResponse,
        ErrorResponse,
    )
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=ref_template)
    definitions: dict[str, Any] = schemas["$defs"]
    return definitions
