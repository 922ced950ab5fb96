"""Request models; they validate requests and generate the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from mar_st.serve.errors import ApiError, bad

Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


def _whole(value: Any) -> Any:
    """Return `16.0` as 16: JSON has only numbers, and for JSON Schema both are integers."""
    return int(value) if type(value) is float and value.is_integer() else value


Positive = Annotated[int, Field(ge=1), BeforeValidator(_whole)]

_CONFIG = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class EmbeddingsRequest(BaseModel):
    """Texts to be encoded, as OpenAI's clients send them."""

    model_config = _CONFIG

    input: Annotated[
        Text | Annotated[list[Text], Field(min_length=1)],
        Field(description="One text or several. Send no token ids: they belong to another tokenizer."),
    ]
    model: Annotated[
        str | None,
        Field(description="Name of the model; see `/v1/models`. `NAME-document` encodes documents."),
    ] = None
    input_type: Annotated[
        Literal["query", "document"],
        Field(description="`document` needs a server that was started with a document encoder."),
    ] = "query"
    encoding_format: Annotated[
        Literal["float", "base64"], Field(description="base64 is of little-endian float32 values.")
    ] = "float"
    dimensions: Annotated[
        Positive | None,
        Field(description="First dimensions of the vectors (Matryoshka), normalised again."),
    ] = None
    truncate: Annotated[
        bool, Field(description="Cut texts that are too long for the model instead of refusing them.")
    ] = False
    user: Annotated[str | None, Field(description="Ignored.")] = None


class SearchRequest(BaseModel):
    """A search by a text, by a vector, or by a vector for the dense leg and a text for the others."""

    model_config = _CONFIG

    query: Annotated[Text | None, Field(description="The query.")] = None
    vector: Annotated[
        # Its numbers are checked by NumPy, all at once.
        Any,
        WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]}),
        Field(description="Vector of the query in the space of the index."),
    ] = None
    k: Annotated[Positive, Field(description="Number of hits.")] = 10
    where: Annotated[
        Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] | None,
        Field(
            description='Filter on metadata: `{"field": value}`, a list for any of several values, '
            '`{"field": {"gte": ..., "lt": ...}}` for a range; all must hold.'
        ),
    ] = None
    hybrid: Annotated[bool, Field(description="BM25 takes part; needs `query`.")] = False
    rerank: Annotated[
        Positive | None, Field(description="How many hits a cross-encoder reranks; needs `query`.")
    ] = None
    truncate: Annotated[
        bool, Field(description="Cut a query that is too long for the model instead of refusing it.")
    ] = False


Model = TypeVar("Model", bound=BaseModel)


def read(model: type[Model], content: dict[str, Any]) -> Model:
    """Validate JSON content and return it as a request.

    Raises:
        ApiError: 400; the message names the field and the expected value, never the value received.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _explain(model, content, error) from None


def _explain(model: type[BaseModel], content: dict[str, Any], error: ValidationError) -> ApiError:
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    field = str(first["loc"][0]) if first["loc"] else None
    if first["type"] == "extra_forbidden":
        # The name came from the caller, so only known names are repeated.
        return bad(f"There is an unknown field. Fields are {', '.join(model.model_fields)}.")
    if field == "input":
        return _explain_input(content.get("input"))
    if first["type"] == "missing":
        return bad(f"The field {field!r} is missing.", field)
    if first["type"] == "string_pattern_mismatch":
        return bad(f"{field!r} must not be blank.", field)
    return bad(f"{field!r} is not as expected: {first['msg']}.", field)


def _explain_input(value: Any) -> ApiError:
    flat = value[0] if isinstance(value, list) and value and isinstance(value[0], list) else value
    if isinstance(flat, list) and flat and all(type(item) is int for item in flat):
        return bad(
            "'input' holds token ids, which belong to another tokenizer. Send texts (in LangChain: "
            "check_embedding_ctx_length=False).",
            "input",
            code="token_ids",
        )
    if isinstance(value, list) and not value:
        return bad("'input' is an empty list; send at least one text.", "input")
    if value is None:
        return bad("The field 'input' is missing.", "input")
    return bad("'input' must be a text that is not blank, or a list of such texts.", "input")
