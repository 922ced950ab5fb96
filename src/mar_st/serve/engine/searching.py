"""Two search threads, which answer several callers with one call of the index."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.online import DeadlinePassed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from concurrent.futures import Future

    from mar_st.index import Hits, Searcher
    from mar_st.index.filters import Filter
    from mar_st.serve.metrics import Metrics

_LOG = logging.getLogger(__name__)

#: Maximum hits of a small search, see `SearchStage`.
SMALL_HITS = 100

#: Maximum conditions in the filter of a small search.
SMALL_CONDITIONS = 8

#: Maximum values in the filter of a small search, over all its conditions.
SMALL_VALUES = 100

#: Maximum characters of the query of a small hybrid search; BM25 takes longer for longer queries.
SMALL_CHARACTERS = 256


@dataclass(slots=True, eq=False)
class PendingSearch:
    """Search of one request.

    Attributes:
        text: The query, cut to the encoder's maximum length; needed for hybrid search and reranking.
        k: Number of hits.
        where: Filter.
        hybrid: Whether to use BM25, too.
        rerank: Number of hits to rerank; 0 for none.
        deadline: Value of `time.monotonic()` until which the caller waits.
        answer: Receives the hits, on its own event loop.
        vector: float32 `(dim,)`; set later for a text.
        encoded: When the vector was ready.
        searched: When the hits were ready.
        key: Searches with the same key are run together.
        large: Whether the search takes long, see `SearchStage`.
    """

    text: str | None
    k: int
    where: Filter | None
    hybrid: bool
    rerank: int
    deadline: float
    answer: asyncio.Future[Hits]
    vector: np.ndarray | None = None
    encoded: float = 0.0
    searched: float = 0.0
    key: Hashable = field(init=False)
    large: bool = field(init=False)

    def __post_init__(self) -> None:
        self.key = (self.k, self.where, self.hybrid, self.rerank, self.text is None)
        self.large = (
            self.k > SMALL_HITS
            or self.rerank > 0
            or large_filter(self.where)
            or (self.hybrid and len(self.text or "") > SMALL_CHARACTERS)
        )


def large_filter(where: Filter | None) -> bool:
    """Return True if a filter takes longer to apply than a small search may."""
    if where is None:
        return False
    values = sum(len(condition.any_of or ()) for condition in where.conditions)
    return len(where.conditions) > SMALL_CONDITIONS or values > SMALL_VALUES


class SearchStage:
    """Two threads that search for all waiting callers, one of them for searches that take long.

    A caller who asks for ten hits does not wait for one who asks for a thousand.

    Args:
        searcher: The open index.
        max_batch: Maximum queries per call.
        metrics: Records times and sizes.

    Attributes:
        small: Searches for few hits.
        large: Searches for many hits, with many conditions or words, or with a reranker.
        filling: Lock held while several searches are queued, so that none starts before all are queued: an
            exact search for one query reads as many vectors as one for many.
    """

    def __init__(self, searcher: Searcher, *, max_batch: int, metrics: Metrics) -> None:
        self.filling = threading.Lock()
        shared = (searcher, max_batch, metrics, self.filling, lambda: self.waiting)
        self.small, self.large = Lane("search", *shared), Lane("search-large", *shared)

    @property
    def waiting(self) -> int:
        """Return the number of searches that wait."""
        return self.small.waiting + self.large.waiting

    def lane(self, search: PendingSearch) -> Lane:
        """Return the queue of a search."""
        return self.large if search.large else self.small

    def put(self, search: PendingSearch) -> None:
        """Queue a search whose vector is ready."""
        self.lane(search).put(search)

    def close(self) -> None:
        """Finish waiting searches, then end the threads."""
        for lane in (self.small, self.large):
            lane.put(None)
        for lane in (self.small, self.large):
            lane.join()


class Lane:
    """A thread that searches for all its waiting callers; searches with the same options share a call.

    Hits go back to an event loop in one call per batch: waking a loop costs more than a small search.

    Args:
        name: Name of the thread.
        searcher: The open index.
        max_batch: Maximum queries per call.
        metrics: Records times and sizes.
        filling: See `SearchStage`.
        waiting: Returns the number of waiting searches in all lanes.
    """

    def __init__(
        self,
        name: str,
        searcher: Searcher,
        max_batch: int,
        metrics: Metrics,
        filling: threading.Lock,
        waiting: Callable[[], int],
    ) -> None:
        self.searcher, self.max_batch, self.metrics = searcher, max_batch, metrics
        self._filling, self._all = filling, waiting
        self._queue: SimpleQueue[PendingSearch | None] = SimpleQueue()
        self._per_query = 0.0  # seconds, a moving mean
        self._gauge = metrics.waiting.labels("search")
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Return the number of searches that wait here."""
        return self._queue.qsize()

    @property
    def expected_wait(self) -> float:
        """Return seconds until a new search is begun."""
        return self.waiting * self._per_query

    def put(self, search: PendingSearch | None) -> None:
        """Queue a search; `None` ends the thread after all earlier ones."""
        if search is not None:
            search.encoded = time.monotonic()
        self._queue.put(search)

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def _work(self) -> None:
        last = False
        while not last:
            batch = [self._queue.get()]
            with self._filling, suppress(Empty):
                while len(batch) < self.max_batch:
                    batch.append(self._queue.get_nowait())
            last = None in batch
            searches = [search for search in batch if search is not None]
            if searches:
                started = time.monotonic()
                results = self._results(searches, started)
                seconds = searches[0].searched - started
                self._per_query = moving(self._per_query, seconds / len(searches))
                # Count before delivering: a caller may read the counters as soon as it has an answer.
                self.metrics.search.observe(seconds)
                self.metrics.search_size.observe(len(searches))
                deliver(results)
                self._gauge.set(self._all())

    def _results(self, searches: list[PendingSearch], started: float) -> list[tuple[PendingSearch, Any]]:
        """Return the hits or the exception of each search."""
        groups: dict[Hashable, list[PendingSearch]] = {}
        results: list[tuple[PendingSearch, Any]] = []
        for search in searches:
            if search.deadline < started:
                results.append((search, DeadlinePassed("The deadline passed while the search waited.")))
            elif not search.answer.cancelled():
                groups.setdefault(search.key, []).append(search)
        for group in groups.values():
            results += self._search(group)
        done = time.monotonic()
        for search in searches:
            search.searched = done
        return results

    def _search(self, group: list[PendingSearch]) -> list[tuple[PendingSearch, Any]]:
        first = group[0]
        try:
            texts = None if first.text is None else [search.text or "" for search in group]
            vectors = np.stack([search.vector for search in group if search.vector is not None])
            hits = self.searcher.search_vectors(
                vectors,
                texts,
                k=first.k,
                where=first.where,
                hybrid=first.hybrid,
                rerank=first.rerank,
                deadline=max(search.deadline for search in group),
            )
            return list(zip(group, hits, strict=True))
        except DeadlinePassed as error:  # all callers have given up
            return [(search, error) for search in group]
        except Exception as error:
            if len(group) > 1:  # one caller's query must not fail the others'
                return [result for search in group for result in self._search([search])]
            return [(first, error)]


def moving(mean: float, value: float) -> float:
    """Return the moving mean after a value; the first value is returned unchanged."""
    return 0.8 * mean + 0.2 * value if mean else value


def on_loop(future: Future[Any]) -> asyncio.Future[Any]:
    """Wrap a `concurrent.futures` future for the running event loop.

    Unlike `asyncio.wrap_future`, cancelling the wrapper does not cancel the work: a caller gives up only when
    the deadline has passed, and then the work is dropped anyway.
    """
    loop = asyncio.get_running_loop()
    answer = loop.create_future()

    def settle(done: Future[Any]) -> None:
        if answer.done():
            return
        error = done.exception()
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(done.result())

    def tell(done: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, done)

    future.add_done_callback(tell)
    return answer


def deliver(results: list[tuple[PendingSearch, Any]]) -> None:
    """Pass results to the event loops that wait for them."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[PendingSearch, Any]]] = {}
    for search, result in results:
        loops.setdefault(search.answer.get_loop(), []).append((search, result))
    for loop, own in loops.items():
        try:
            loop.call_soon_threadsafe(_settle, own)
        except RuntimeError:
            _LOG.info("%d answers came after their event loop was closed", len(own))


def _settle(results: list[tuple[PendingSearch, Any]]) -> None:
    for search, result in results:
        if search.answer.done():
            continue
        if isinstance(result, BaseException):
            search.answer.set_exception(result)
        else:
            search.answer.set_result(result)
