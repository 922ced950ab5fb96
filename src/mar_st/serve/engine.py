"""The open index with its encoder, their queues, and the change to the next index."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mar_st.errors import MarError
from mar_st.index.filters import parse_filter
from mar_st.index.searcher import Hit, Searcher
from mar_st.online.batcher import Batcher, MicroBatcher
from mar_st.online.protocol import QueryEncoder, encoder_name
from mar_st.serve.guard import Keys, bad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.serve import ServeSettings
    from mar_st.serve.metrics import Metrics
    from mar_st.serve.schemas import RerankRequest, SearchRequest

_LOG = logging.getLogger(__name__)

#: Hits of a search that others may wait for; larger ones, and reranked ones, have a thread of their own.
SMALL_HITS = 100

#: Maximum characters per token. Longer texts are cut or refused before their tokens are counted.
CHARACTERS_PER_TOKEN = 16

#: Texts of ASCII, Chinese characters and their punctuation, which no tokenizer normalises to more characters.
#: Each has at most three bytes, and so tokens.
_PLAIN = re.compile(r"[\x20-\x7e\u3000-\u303f\u4e00-\u9fff\uff01-\uff5e]*")
_PLAIN_TOKENS = 3

#: Maximum tokens of the texts of a request (as OpenAI's), and texts of it that wait for the encoder at once.
MAX_TOKENS, TEXTS_PER_PART = 300_000, 256

#: Maximum waiting texts, and waiting searches; callers beyond it get status 429.
MAX_QUEUE = 1024

#: Number of documents whose titles are examples of questions on the page.
EXAMPLES = 3

_WARMUP_TEXT = "预热的一句话而已"


class Search(NamedTuple):
    """A search whose vector is ready."""

    request: SearchRequest
    vector: np.ndarray
    deadline: float


class Engine:
    """One generation of the index, with its encoder and reranker, and their queues.

    Args:
        searcher: The open index.
        metrics: Records times and sizes.
    """

    def __init__(self, searcher: Searcher, metrics: Metrics) -> None:
        self.searcher, self.index, self.encoder = searcher, searcher.index, searcher.encoder
        self.query = encoder_name(self.encoder)
        vector = np.full((1, self.index.dim), self.index.dim**-0.5, dtype=np.float32)
        rerank = 1 if searcher.reranker is not None else None
        (hits,) = searcher.search_vectors(
            vector, [_WARMUP_TEXT], 10 * EXAMPLES, hybrid=self.index.has_words, rerank=rerank
        )
        #: Titles of documents, as examples of what can be asked.
        self.examples = list({hit.title: None for hit in hits if 2 <= len(hit.title) <= 30})[:EXAMPLES]
        limits: dict[str, Any] = {"max_queue": MAX_QUEUE, "observe": metrics.observer("search")}
        self._small, self._large = Batcher(self._search, **limits), Batcher(self._search, **limits)
        metrics.waiting.labels("search").set_function(lambda: self._small.waiting + self._large.waiting)
        self._queues: list[Batcher[Any, Any]] = [self._small, self._large]
        if searcher.reranker is not None:
            score: Any = searcher.reranker.score
            self._pairs: Batcher[Any, Any] = Batcher(score, max_queue=MAX_QUEUE)
            self._queues.append(self._pairs)
        if self.encoder is not None:
            observe = metrics.observer("encode")
            self._texts = MicroBatcher(self.encoder, max_queue=MAX_QUEUE, observe=observe)
            metrics.waiting.labels("encode").set_function(lambda: self._texts.waiting)
            self._queues.append(self._texts)
            #: Tokens of an empty text: the prompt and the special tokens.
            self._overhead = self.encoder.count_tokens([""])[0]
            for size in (1, 4, 16):  # first callers do not wait for the runtime
                self.encoder.encode([_WARMUP_TEXT] * size)

    def needed(self, field: str) -> QueryEncoder:
        """Return the encoder.

        Raises:
            ApiError: 400: there is none.
        """
        if self.encoder is None:
            raise bad("This server has no query encoder; send 'vector'.", field, "no_query_encoder")
        return self.encoder

    async def encode(self, texts: Sequence[str], deadline: float) -> np.ndarray:
        """Return the vectors of texts, float32 `(len(texts), dim)`; others take turns with many texts."""
        parts = [
            await asyncio.wrap_future(
                self._texts.submit(texts[start : start + TEXTS_PER_PART], deadline=deadline)
            )
            for start in range(0, len(texts), TEXTS_PER_PART)
        ]
        return np.concatenate(parts)

    async def checked(
        self, texts: Sequence[str], field: str, *, truncate: bool, count: bool = True
    ) -> tuple[list[str], int, bool]:
        """Refuse texts that are too long, or cut them.

        Args:
            texts: The texts.
            field: Field of the request, for errors.
            truncate: Cut texts instead of refusing them.
            count: Count the tokens also of texts that surely fit.

        Returns:
            The texts; the number of tokens that the encoder takes of them; whether a text is cut.

        Raises:
            ApiError: 400: there is no encoder, a text is longer than the model's limit and may not be cut, or
                all together have too many tokens.
        """
        encoder = self.needed(field)
        limit = encoder.max_length
        if not count and all(self._surely_fits(text, limit) for text in texts):
            return list(texts), 0, False
        characters = CHARACTERS_PER_TOKEN * limit
        left = getattr(encoder, "truncation", None) == "left"
        parts = [text[-characters:] if left else text[:characters] for text in texts]
        counts: list[int] = []
        cut = parts != list(texts)
        if truncate or not cut:
            counts = await asyncio.to_thread(encoder.count_tokens, parts)
            cut = cut or max(counts) > limit
        if cut and not truncate:
            raise bad(
                f"{field!r} has a text that is longer than the {limit} tokens of the model. Shorten it, or "
                'send "truncate": true.',
                field,
                "text_too_long",
            )
        used = sum(min(count, limit) for count in counts)
        if used > MAX_TOKENS:
            raise bad(f"{field!r} may have {MAX_TOKENS} tokens in all.", field, "too_many_tokens")
        return parts, used, cut

    def _surely_fits(self, text: str, limit: int) -> bool:
        """Return True for a short plain text, whose tokens need not be counted."""
        # Some tokenizers put a space before a text.
        most = self._overhead + _PLAIN_TOKENS * (len(text) + 1)
        return most <= limit and _PLAIN.fullmatch(text) is not None

    async def search(self, request: SearchRequest, deadline: float) -> tuple[list[Hit], float]:
        """Return the hits of a request, and when its vector was ready.

        Texts are encoded, and vectors searched, together with those of others who ask the same way.

        Raises:
            ApiError: The request has a text, but the server has no query encoder.
        """
        large = request.k > SMALL_HITS or request.rerank
        batcher = self._large if large else self._small
        key = (request.k, parse_filter(request.where), request.hybrid, request.rerank, request.query is None)
        if request.vector is not None:
            vector = self.index.checked(np.array([request.vector]))[0]
        else:
            self.needed("query")
            encoded = await self.encode([request.query or ""], deadline)
            vector = encoded[0, : self.index.dim]  # Matryoshka: the encoder may be wider
        ready = time.monotonic()
        searched = batcher.submit([Search(request, vector, deadline)], deadline=deadline, key=key)
        (hits,) = await asyncio.wrap_future(searched)
        return hits, ready

    def _search(self, batch: list[Search]) -> list[list[Hit]]:
        first = batch[0].request
        texts = None if first.query is None else [search.request.query or "" for search in batch]
        return self.searcher.search_vectors(
            np.stack([search.vector for search in batch]),
            texts,
            first.k,
            where=first.where,
            hybrid=first.hybrid,
            rerank=first.rerank,
            deadline=max(search.deadline for search in batch),
        )

    async def scores(self, request: RerankRequest, deadline: float) -> np.ndarray:
        """Return the scores of texts for a query, `(len(texts),)` float32.

        Raises:
            ApiError: There is no reranker.
        """
        if self.searcher.reranker is None:
            raise bad("This server has no reranker; start it with --reranker.", "query", "no_reranker")
        pairs = [(request.query, text) for text in request.texts]
        future = self._pairs.submit(pairs, deadline=deadline)
        scores: np.ndarray = np.array(await asyncio.wrap_future(future), dtype=np.float32)
        model = self.searcher.reranker.open()
        if not request.raw_scores and type(getattr(model, "activation_fn", None)).__name__ == "Identity":
            scores = 1 / (1 + np.exp(-scores))
        return scores

    def close(self) -> None:
        """Finish the work that waits, and end its threads."""
        for queue in self._queues:
            queue.close()


class Generations:
    """The engine that answers, and the change to the next one.

    Args:
        settings: Sources and limits.
        keys: Read again by a reload.
        metrics: Counts reloads.
        searcher: An open searcher to use in place of the settings' index.

    Raises:
        MarError: The index or the encoder cannot be opened, or they do not match.
    """

    def __init__(
        self, settings: ServeSettings, keys: Keys, metrics: Metrics, searcher: Searcher | None = None
    ) -> None:
        self.settings, self.keys, self.metrics = settings, keys, metrics
        self.number = 0
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._searcher = searcher
        self._use(self._open())

    def _use(self, engine: Engine) -> None:
        self.engine = engine
        self.number += 1
        self.metrics.generation.set(self.number)
        self.metrics.documents.set(len(engine.index))
        _LOG.info("index %d: %d documents", self.number, len(engine.index))

    def _open(self) -> Engine:
        settings = self.settings
        searcher = self._searcher or Searcher.open(
            str(settings.index), settings.encoder, query=settings.query_encoder, reranker=settings.reranker
        )
        return Engine(searcher, self.metrics)

    async def reload(self) -> None:
        """Read the keys, open index, encoder and reranker again, and switch to them.

        Requests in progress keep the old ones.

        Raises:
            MarError: The keys cannot be read or the index cannot be opened; the old ones stay in use.
        """
        async with self._changing:
            try:
                self.keys.read()
                engine = await asyncio.to_thread(self._open)
            except (MarError, OSError):
                self.metrics.reloads.labels("failed").inc()
                raise
            old = self.engine
            self._use(engine)
            self.metrics.reloads.labels("ok").inc()
        self.start(self._retire(old))

    async def reload_logged(self) -> None:
        """Reload, and log an error."""
        try:
            await self.reload()
        except (MarError, OSError) as error:
            _LOG.error("the index was not reopened, the old one still answers: %s", error)

    async def _retire(self, engine: Engine) -> None:
        """Close an engine after the time in which its last request is answered."""
        await asyncio.sleep(self.settings.timeout)
        await asyncio.to_thread(engine.close)

    def start(self, work: Any) -> None:
        """Run a coroutine in the background until `stop`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """End background work."""
        for task in list(self._tasks):
            task.cancel()
