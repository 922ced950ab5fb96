"""An open index with its encoder, and the queues of both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mar_st.errors import MarError
from mar_st.index.base import LARGEST_VALUE
from mar_st.index.filters import parse_filter
from mar_st.online import DeadlinePassed, MicroBatcher, QueueFull
from mar_st.online.batcher import Closed
from mar_st.online.protocol import encoder_name
from mar_st.online.waiting import is_short
from mar_st.serve.engine.aside import aside
from mar_st.serve.engine.reading import DocumentReader
from mar_st.serve.engine.searching import PendingSearch, SearchStage, deliver, moving
from mar_st.serve.errors import ApiError, bad, too_many

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from mar_st.index import Hits, Searcher
    from mar_st.index.filters import Filter
    from mar_st.online import QueryEncoder
    from mar_st.serve.metrics import Metrics
    from mar_st.serve.settings import ServeSettings

#: Maximum expected wait, as a share of the timeout; a request that would wait longer is refused at once.
MAX_WAIT_SHARE = 0.5


class Encoding:
    """An encoder with its queue.

    Args:
        encoder: The encoder.
        settings: Limits of batches and of the queue.
        metrics: Records times and sizes.
        delivering: See `MicroBatcher`.
    """

    def __init__(
        self,
        encoder: QueryEncoder,
        settings: ServeSettings,
        metrics: Metrics,
        delivering: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.encoder, self.timeout = encoder, settings.timeout
        tell = metrics.observer(lambda: self.batcher.waiting)
        self._per_text = 0.0  # seconds, a moving mean
        self._texts = 1.0

        def observe(name: str, value: float) -> None:
            if name == "batch_size":
                self._texts = max(1.0, value)
            elif name == "encode_seconds":
                self._per_text = moving(self._per_text, value / self._texts)
            tell(name, value)

        self.batcher = MicroBatcher(
            encoder,
            max_batch=settings.max_batch,
            max_tokens=settings.max_batch_tokens,
            window_ms=settings.window_ms,
            max_queue=settings.max_queue,
            observe=observe,
            delivering=delivering,
        )
        #: Tokens of an empty text: the prompt and the special tokens.
        self.overhead = encoder.count_tokens([""])[0]

    def submit(self, texts: Sequence[str], deadline: float, *, after: float = 0.0) -> Future[np.ndarray]:
        """Return the vectors of texts.

        Args:
            texts: The texts.
            deadline: Value of `time.monotonic()` until which the results are useful.
            after: Expected seconds between a vector and its response.

        Raises:
            ApiError: 429: the queue is full, or the response would come too late. 503: the server stops.
        """
        expected = self.expected_wait(short=is_short(texts, self.encoder.max_length)) + after
        if expected > MAX_WAIT_SHARE * self.timeout:
            raise too_many(expected)
        try:
            return self.batcher.submit(texts, deadline=deadline)
        except QueueFull:
            raise too_many(expected) from None
        except Closed:
            raise ApiError(503, "stopping", "The server is stopping.") from None

    def expected_wait(self, *, short: bool) -> float:
        """Return seconds until a new text is encoded, in the queue of short jobs or of the others."""
        waiting = self.batcher.waiting_short if short else self.batcher.waiting
        return waiting * self._per_text

    def surely_fits(self, texts: Sequence[str], most: int) -> bool:
        """Return True if no text can be too long and all together cannot exceed `most` tokens.

        A token covers at least one byte of UTF-8 (unless normalisation lengthens the text), so short texts
        need not be tokenised to be accepted.
        """
        sizes = [self.overhead + len(text.encode()) for text in texts]
        return max(sizes) <= self.encoder.max_length and sum(sizes) <= most

    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text's tokens in another thread, since an encoder may be locked while it computes."""
        return await aside(self.encoder.count_tokens, texts)


class SearchEngine:
    """One generation of the index, with its encoder.

    Requests enter it with `with engine:`. A retired engine is closed once the last request has left.

    Args:
        searcher: The open index.
        encoder: Encodes queries; without it, only vectors can be searched.
        settings: Limits.
        metrics: Records times and sizes.

    Attributes:
        dim: Dimensions of the index.
        fields: Metadata fields and their types.
        hybrid: Whether the index supports BM25.
        rerank: Whether there is a reranker.
        texts: Whether the index stores the texts of documents.
        documents: Number of documents.
        query: Name of the query encoder in its model; `None` if it has no name or there is no encoder.
        effort: Search settings for this encoder.
        reader: Reads documents by id.
        match: Threshold of good matches for this encoder, and the share of false rejects that it was chosen
            for; `None` without a calibration.
    """

    def __init__(
        self, searcher: Searcher, encoder: QueryEncoder | None, settings: ServeSettings, metrics: Metrics
    ) -> None:
        self.searcher, self.settings = searcher, settings
        self.stage = SearchStage(searcher, max_batch=settings.max_batch, metrics=metrics)
        self.encoding = None
        if encoder is not None:
            self.encoding = Encoding(encoder, settings, metrics, self.stage.filling)
        self.dim, self.fields = searcher.index.dim, searcher.index.fields
        self.hybrid, self.rerank = searcher.index.has_words, searcher.reranker is not None
        self.documents, self.texts = len(searcher.index), searcher.index.has_texts
        self.reader = DocumentReader(searcher.index)
        self.query, self.effort = encoder_name(encoder), searcher.effort
        known = searcher.calibrated
        self.match = known and {name: known[name] for name in ("threshold", "false_reject")}
        self._users = 0
        self._retired = False
        self._closed = asyncio.Event()

    def __enter__(self) -> Self:
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._retired and not self._users:
            self._closed.set()

    async def retire(self) -> None:
        """Close it when the last request has left."""
        self._retired = True
        if self._users:
            await self._closed.wait()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Finish accepted work, then end the threads."""
        if self.encoding is not None:
            self.encoding.batcher.close(finish=True)
        self.stage.close()
        self.reader.close()

    def search(self, search: PendingSearch, text: str | None = None) -> asyncio.Future[Hits]:
        """Return the hits for a vector or a text.

        Args:
            search: The search.
            text: Text to encode, if the search has no vector.

        Raises:
            ApiError: 429: too many searches wait. 400: a text is given, but there is no encoder.
        """
        lane = self.stage.lane(search)
        after = lane.expected_wait
        if self._too_late(lane.waiting, after):
            raise too_many(after)
        if search.vector is not None:
            self.stage.put(search)
            return search.answer
        if self.encoding is None:
            raise bad("This server has no query encoder; send 'vector'.", "query")
        encoded = self.encoding.submit([text or ""], search.deadline, after=after)
        # The encoder's thread passes the vector to the search thread without waking the event loop.
        encoded.add_done_callback(lambda future: self._encoded(search, future))
        return search.answer

    def _too_late(self, waiting: int, seconds: float) -> bool:
        return waiting >= self.settings.max_queue or seconds > MAX_WAIT_SHARE * self.settings.timeout

    @property
    def waiting(self) -> int:
        """Return the number of texts and searches in the queues."""
        encoding = self.encoding.batcher.waiting if self.encoding is not None else 0
        return encoding + self.stage.waiting

    def full(self) -> float | None:
        """Return seconds to wait if a small search by a text would be refused now, else `None`."""
        after = self.stage.small.expected_wait
        if self._too_late(self.stage.small.waiting, after):
            return after
        if self.encoding is not None:
            expected = self.encoding.expected_wait(short=True) + after
            if self._too_late(self.encoding.batcher.waiting_short, expected):
                return expected
        return None

    def _encoded(self, search: PendingSearch, future: Future[np.ndarray]) -> None:
        error = future.exception()
        if error is not None:
            if not isinstance(error, DeadlinePassed):  # not an error of the client
                error = RuntimeError(f"The encoder failed ({type(error).__name__}).")
            deliver([(search, error)])
            return
        search.vector = future.result()[0, : self.dim]  # Matryoshka: the encoder may be wider
        self.stage.put(search)

    # -- checks of a request --

    def check_vector(self, vector: Any) -> np.ndarray:
        """Return the vector of a request as float32 `(dim,)`.

        Raises:
            ApiError: 400: not a list of `dim` finite numbers, or values too large to compare.
        """
        dim = self.dim
        if not isinstance(vector, list) or not set(map(type, vector)) <= {float, int}:
            raise bad("'vector' must be a list of numbers.", "vector")
        if len(vector) != dim:
            raise bad(f"'vector' has {len(vector)} numbers; the index has {dim} dimensions.", "vector")
        with np.errstate(over="ignore"):
            array = np.array(vector, dtype=np.float64).astype(np.float32)
        if not (np.abs(array) <= LARGEST_VALUE).all():
            raise bad(f"'vector' holds numbers beyond {LARGEST_VALUE:g}.", "vector")
        return array

    def check_filter(self, where: dict[str, Any] | None) -> Filter | None:
        """Return the filter of a request, with values of the types of the index's fields.

        Raises:
            ApiError: 400: a field does not exist, or a condition is invalid.
        """
        if where is None:
            return None

        try:
            parsed = parse_filter(where)
            return parsed.typed(self.fields) if parsed is not None else None
        except MarError as error:
            raise bad(str(error), "where", code="invalid_filter") from None
