"""Handlers of `/search` and `/v1/embeddings`."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import orjson

from mar_st.errors import MarError
from mar_st.online import DeadlinePassed
from mar_st.serve.api.http import HttpResponse, ReceivedRequest, as_json
from mar_st.serve.api.lengths import check_characters, check_lengths, counted_part
from mar_st.serve.api.models import NO_DOCUMENTS, requested_side
from mar_st.serve.api.requests import EmbeddingsRequest, SearchRequest, read
from mar_st.serve.engine.aside import aside
from mar_st.serve.engine.searching import SMALL_HITS, SMALL_VALUES, PendingSearch, on_loop
from mar_st.serve.errors import ApiError, bad, late

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mar_st.index import Hit
    from mar_st.index.results import Match
    from mar_st.serve.api.models import InputType
    from mar_st.serve.engine.generations import Generations
    from mar_st.serve.engine.search_engine import Encoding, SearchEngine
    from mar_st.serve.settings import ServeSettings

#: Logger of query texts; used only with `--log-queries`.
QUERY_LOG = logging.getLogger("mar_st.serve.queries")

#: An answer with more numbers than this is written in a thread.
MAX_INLINE_NUMBERS = 8192

Result = TypeVar("Result")


class Handlers:
    """Answers requests with the current engine.

    Args:
        generations: Holds the engine.
        documents: Encodes documents; `None` if nothing does.
        settings: Limits.
    """

    def __init__(self, generations: Generations, documents: Encoding | None, settings: ServeSettings) -> None:
        self.generations, self.documents, self.settings = generations, documents, settings

    # -- search --

    async def search(self, request: ReceivedRequest) -> HttpResponse:
        """Search the index."""
        body = read(SearchRequest, request.json())
        with self.generations.current as engine:
            self._check(engine, body)
            pending, encoded, truncated = await self._prepared(engine, body, request)
            if self.settings.log_queries and body.query is not None:
                QUERY_LOG.info("%s", orjson.dumps({"query": body.query, "k": body.k}).decode())
            try:
                hits = await engine.search(pending, encoded)
            except DeadlinePassed:
                raise late(self.settings.timeout) from None
            except MarError as error:
                raise bad(str(error)) from None
            # The threshold does not apply to vectors from other encoders.
            match = engine.searcher.match(hits) if body.vector is None else None
        encoded_query = body.query is not None and body.vector is None
        return HttpResponse(
            await aside_if(
                len(hits) > SMALL_HITS,
                _search_answer,
                hits,
                match,
                request.started,
                pending,
                truncated if encoded_query else None,
            )
        )

    async def document(self, request: ReceivedRequest) -> HttpResponse:
        """Return one document as stored in the index."""
        name = request.parameter("id")
        with self.generations.current as engine:
            try:
                stored = await engine.reader.read(name)
            except MarError as error:
                raise bad(str(error)) from None
        if stored is None:
            raise ApiError(404, "no_such_document", "The index has no document with this id.", param="id")
        return HttpResponse(as_json(stored._asdict()))

    def _check(self, engine: SearchEngine, body: SearchRequest) -> None:
        """Refuse requests that this index does not support."""
        most = self.settings.max_k
        for name, value in (("k", body.k), ("rerank", body.rerank or 0)):
            if value > most:
                raise bad(f"{name!r} must be at most {most}.", name)
        if body.query is None:
            if body.vector is None:
                raise bad("A search needs 'query' or 'vector'.", "query")
            if body.hybrid or body.rerank:
                raise bad("'hybrid' and 'rerank' work on texts; send 'query' too.", "query")
        if body.hybrid and not engine.hybrid:
            raise bad("This index has no BM25, so 'hybrid' is not possible.", "hybrid", code="no_bm25")
        if body.rerank and not engine.rerank:
            raise bad("This server has no reranker; start it with --reranker.", "rerank", code="no_reranker")

    async def _prepared(
        self, engine: SearchEngine, body: SearchRequest, request: ReceivedRequest
    ) -> tuple[PendingSearch, str | None, bool]:
        """Return the search, the text to encode for it, and whether the text was cut."""
        vector = None if body.vector is None else engine.check_vector(body.vector)
        text, encoded, truncated = await self._text(engine, body)
        answer = asyncio.get_running_loop().create_future()
        where = await aside_if(_many_values(body.where), engine.check_filter, body.where)
        pending = PendingSearch(
            text, body.k, where, body.hybrid, body.rerank or 0, request.deadline, answer, vector
        )
        return pending, encoded, truncated

    async def _text(self, engine: SearchEngine, body: SearchRequest) -> tuple[str | None, str | None, bool]:
        """Return the query for BM25 and reranking, the query for the encoder, and whether it was cut."""
        text = body.query
        if text is None:
            return None, None, False
        if engine.encoding is None:
            text, truncated = check_characters(text, truncate=body.truncate, field="query")
            return text, text, truncated
        checked = await check_lengths(
            engine.encoding, [text], self.settings.max_tokens, truncate=body.truncate, field="query"
        )
        text = checked.texts[0]
        counted = await counted_part(engine.encoding.encoder, text) if checked.cut else text
        return counted, text, checked.cut

    # -- embeddings --

    async def embeddings(self, request: ReceivedRequest) -> HttpResponse:
        """Encode texts as OpenAI's endpoint does."""
        body = read(EmbeddingsRequest, request.json())
        texts = [body.input] if isinstance(body.input, str) else body.input
        if len(texts) > self.settings.max_texts:
            raise bad(
                f"'input' may have at most {self.settings.max_texts} texts.", "input", code="too_many_texts"
            )
        with self.generations.current as engine:
            name = self.settings.model_name or ""
            side = requested_side(body, name)
            encoding = self._encoding(engine, side, "input_type" if body.model in (None, name) else "model")
            dim = encoding.encoder.dim
            if body.dimensions is not None and body.dimensions > dim:
                raise bad(f"'dimensions' must be at most {dim}.", "dimensions")
            checked = await check_lengths(
                encoding, texts, self.settings.max_tokens, truncate=body.truncate, field="input"
            )
            if self.settings.log_queries and side == "query":
                QUERY_LOG.info("%s", orjson.dumps({"input": texts}).decode())
            vectors, counts = await self._encode(encoding, checked.texts, checked.counts, request.deadline)
        if body.dimensions is not None and body.dimensions < dim:
            vectors = first_dimensions(vectors, body.dimensions, normalised=encoding.encoder.normalised)
        used = sum(min(count, encoding.encoder.max_length) for count in counts)
        model, form = body.model or name, body.encoding_format
        return HttpResponse(
            await aside_if(vectors.size > MAX_INLINE_NUMBERS, _embeddings_answer, vectors, form, model, used)
        )

    def _encoding(self, engine: SearchEngine, side: InputType, field: str) -> Encoding:
        if side == "document":
            if self.documents is None:
                raise bad(NO_DOCUMENTS, field, code="no_document_encoder")
            return self.documents
        if engine.encoding is None:
            raise bad("This server has no query encoder.", field, code="no_query_encoder")
        return engine.encoding

    async def _encode(
        self, encoding: Encoding, texts: Sequence[str], counts: list[int] | None, deadline: float
    ) -> tuple[np.ndarray, list[int]]:
        """Return vectors and token counts; unknown counts are computed at the same time."""
        future = on_loop(encoding.submit(texts, deadline))
        try:
            if counts is not None:
                return await future, counts
            vectors, counted = await asyncio.gather(future, encoding.count(texts))
            return vectors, counted
        except DeadlinePassed:
            raise late(self.settings.timeout) from None


async def aside_if(large: bool, make: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of a function; a long one runs in a thread, so that other requests do not wait."""
    return await aside(make, *arguments) if large else make(*arguments)


def _many_values(where: dict[str, Any] | None) -> bool:
    """Return True if reading a filter would delay other requests too long."""
    return (
        sum(len(value) if isinstance(value, list) else 1 for value in (where or {}).values()) > SMALL_VALUES
    )


def _search_answer(
    hits: Sequence[Hit], match: Match | None, started: float, pending: PendingSearch, truncated: bool | None
) -> bytes:
    """Return the answer to a search."""
    now = time.monotonic()
    answer: dict[str, Any] = {
        "hits": [hit.to_json() for hit in hits],
        "match": match,
        "timing": {
            "encode_ms": _ms(pending.encoded - started),
            "search_ms": _ms(pending.searched - pending.encoded),
            "total_ms": _ms(now - started),
        },
    }
    if truncated is not None:
        answer["truncated"] = truncated
    return as_json(answer)


def _embeddings_answer(vectors: np.ndarray, form: str, model: str, used: int) -> bytes:
    """Return the answer to a request for embeddings."""
    # One call of orjson per row: orjson holds the interpreter lock, so other threads wait for each call.
    data = b",".join(
        as_json({"object": "embedding", "index": index, "embedding": row})
        for index, row in enumerate(_rows(vectors, form))
    )
    usage = as_json({"prompt_tokens": used, "total_tokens": used})
    return b'{"object":"list","data":[%s],"model":%s,"usage":%s}' % (data, as_json(model), usage)


def first_dimensions(vectors: np.ndarray, dim: int, *, normalised: bool) -> np.ndarray:
    """Return the first `dim` dimensions of vectors `(n, full)`, normalised again if they were."""
    short = vectors[:, :dim].copy()
    if normalised:
        short /= np.maximum(np.linalg.norm(short, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return short


def _rows(vectors: np.ndarray, form: str) -> list[Any]:
    if form == "base64":
        little = np.ascontiguousarray(vectors, dtype="<f4")
        return [base64.b64encode(row).decode("ascii") for row in little]
    return list(np.ascontiguousarray(vectors, dtype=np.float32))


def _ms(seconds: float) -> float:
    return round(1000 * max(0.0, seconds), 3)
