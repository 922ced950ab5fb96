"""The models that callers name: the query side, and the document side under a second name.

Clients of OpenAI's endpoint send the name of a model and texts. They cannot say if the texts are queries or
documents, so the name of the model says it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mar_st.serve.errors import ApiError, bad

if TYPE_CHECKING:
    from mar_st.serve.api.requests import EmbeddingsRequest

InputType: TypeAlias = Literal["query", "document"]

#: Suffix of the model's name for documents.
DOCUMENT_SUFFIX = "-document"

#: Message of a server that encodes no documents.
NO_DOCUMENTS = (
    "This server encodes queries only: documents are encoded offline (mar encode). Start it with "
    "--document-encoder to encode them here."
)


def served_models(name: str, *, queries: bool, documents: bool) -> list[str]:
    """Return the names of the models that answer.

    Args:
        name: Name of the model.
        queries: Whether queries are encoded.
        documents: Whether documents are encoded.
    """
    return [name] * queries + [name + DOCUMENT_SUFFIX] * documents


def requested_side(request: EmbeddingsRequest, name: str) -> InputType:
    """Return the role of the texts of a request, by its model or its `input_type`.

    Args:
        request: The request.
        name: Name of the model.

    Raises:
        ApiError: 404: the request names another model. 400: the document model with `input_type: query`.
    """
    if request.model == name + DOCUMENT_SUFFIX:
        if request.input_type == "query" and "input_type" in request.model_fields_set:
            raise bad(
                f"{name + DOCUMENT_SUFFIX!r} encodes documents. Send queries to {name!r}.", "input_type"
            )
        return "document"
    if request.model is not None and request.model != name:
        raise unknown_model(name)
    return request.input_type


def model_entry(model: str, query: str | None) -> dict[str, Any]:
    """Return the entry of a model in `/v1/models`.

    Args:
        model: Name of the model.
        query: Name of the query encoder in use, if it has one; `None` for a document model.
    """
    entry = {"id": model, "object": "model", "created": 0, "owned_by": "medteb"}
    return entry if query is None else {**entry, "query_encoder": query}


def unknown_model(name: str) -> ApiError:
    """Return the 404 of an unknown model."""
    return ApiError(
        404,
        "model_not_found",
        f"This server has the model {name!r} for queries, and {name + DOCUMENT_SUFFIX!r} if it encodes "
        "documents.",
        param="model",
    )
