"""Bodies of requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

#: Most hits of a search, most texts of a request (as OpenAI's), and most texts to rerank.
MAX_HITS, MAX_TEXTS, MAX_RERANKED = 1000, 2048, 1000

Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, content: Any) -> Any:
        """Take null as absent, as clients in typed languages send it."""
        if not isinstance(content, dict):
            return content
        return {name: value for name, value in content.items() if value is not None}


class SearchRequest(_Request):
    """A search by a text, by a vector, or by a vector for the dense leg and a text for the others."""

    query: Text | None = Field(None, description="The query.")
    vector: list[float] | None = Field(None, description="Vector of the query in the space of the index.")
    k: int = Field(10, ge=1, le=MAX_HITS, description="Number of hits.")
    where: dict[str, Any] | None = Field(
        None,
        description='Filter on metadata: `{"field": value}`, a list for any of several values, '
        '`{"field": {"gte": ..., "lt": ...}}` for a range; all must hold.',
    )
    hybrid: bool = Field(False, description="BM25 takes part; needs `query`.")
    rerank: int = Field(
        0, ge=0, le=MAX_HITS, description="How many hits a cross-encoder reranks; needs `query`."
    )
    truncate: bool = Field(
        False, description="Cut a query that is too long for the model instead of refusing it."
    )

    @model_validator(mode="after")
    def _complete(self) -> SearchRequest:
        if self.query is None and (self.vector is None or self.hybrid or self.rerank):
            raise ValueError("A search needs 'query' or 'vector'; 'hybrid' and 'rerank' need 'query'.")
        return self


class EmbeddingsRequest(_Request):
    """Texts to be encoded, as OpenAI's clients send them."""

    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)] = Field(
        description="One text or several. Send no token ids: they belong to another tokenizer."
    )
    model: str | None = Field(None, description="Name of the model; see `/v1/models`.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="base64 is of little-endian float32 values."
    )
    dimensions: int | None = Field(
        None, ge=1, description="First dimensions of the vectors (Matryoshka), normalised again."
    )
    truncate: bool = Field(
        False, description="Cut texts that are too long for the model instead of refusing them."
    )
    user: str | None = Field(None, description="Ignored.")


class RerankRequest(_Request):
    """Texts to be scored for a query, as clients of text-embeddings-inference send them."""

    query: Text = Field(description="The query.")
    texts: list[Text] = Field(min_length=1, max_length=MAX_RERANKED, description="The texts.")
    raw_scores: bool = Field(False, description="Scores as the model gives them, not from 0 to 1.")
    return_text: bool = Field(False, description="Repeat the texts in the response.")
    truncate: bool = Field(True, description="Ignored: the model cuts texts that are too long.")
    truncation_direction: str | None = Field(None, description="Ignored.")
