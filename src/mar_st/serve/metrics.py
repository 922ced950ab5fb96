"""Prometheus metrics of the server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from collections.abc import Callable

    from mar_st.serve.errors import ApiError

#: Bounds of the buckets of times, in seconds: from a query on a small index to a timeout.
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

#: Bounds of the buckets of batch sizes.
SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

#: Environment variable of prometheus_client: folder in which several workers store their metrics.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """Metrics of a server with one or several workers.

    If `PROMETHEUS_MULTIPROC_DIR` is set before the first import of prometheus_client, the metrics are stored
    in files there, and every worker shows the sums over all workers. Otherwise they cover this process only.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        common: dict[str, Any] = {"registry": self.registry}
        stage = Histogram(
            "mar_stage_seconds", "Latency by stage.", ["stage"], buckets=SECONDS_BUCKETS, **common
        )
        self.queue = stage.labels("queue")
        self.encode = stage.labels("encode")
        self.search = stage.labels("search")
        self.total = stage.labels("total")
        sizes = Histogram(
            "mar_batch_size", "Texts or queries computed together.", ["stage"], buckets=SIZE_BUCKETS, **common
        )
        self.encode_size = sizes.labels("encode")
        self.search_size = sizes.labels("search")
        self.requests = Counter(
            "mar_requests", "Requests by route and status.", ["route", "status"], **common
        )
        self.errors = Counter(
            "mar_errors", "Requests that were answered with an error, by kind.", ["kind"], **common
        )
        self.dropped = Counter(
            "mar_connections_closed", "Connections closed by the server, by reason.", ["reason"], **common
        )
        self.reloads = Counter("mar_reloads", "Openings of an index while serving.", ["result"], **common)
        live: dict[str, Any] = {"multiprocess_mode": "livesum", **common}
        self.waiting = Gauge("mar_queue_length", "Texts and queries that wait.", ["stage"], **live)
        self.documents = Gauge(
            "mar_index_documents", "Documents of the index.", multiprocess_mode="livemax", **common
        )
        self.generation = Gauge(
            "mar_index_generation", "How often the index was opened.", multiprocess_mode="livemin", **common
        )
        self.encoder = Gauge(
            "mar_query_encoder",
            "1 for the query encoder that answers.",
            ["model", "query_encoder"],
            multiprocess_mode="livemax",
            **common,
        )
        self._answering: Gauge | None = None
        self._results: dict[tuple[str, int], Counter] = {}

    def answers(self, model: str, query: str | None) -> None:
        """Note which query encoder answers from now on.

        Args:
            model: Name of the model.
            query: Name of the query encoder in it, if it has one.
        """
        if self._answering is not None:
            self._answering.set(0)
        self._answering = self.encoder.labels(model, query or "")
        self._answering.set(1)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        counter = self._results.get((route, status))
        if counter is None:
            counter = self._results[route, status] = self.requests.labels(route, str(status))
        counter.inc()
        if status == 200:
            self.total.observe(seconds)

    def refused(self, route: str, error: ApiError) -> None:
        """Count an error that was answered before the application saw the request."""
        self.errors.labels(error.code).inc()
        self.answered(route, error.status, 0.0)

    def observer(self, waiting: Callable[[], int]) -> Callable[[str, float], None]:
        """Return the callback to which a `MicroBatcher` reports its measurements.

        Args:
            waiting: Returns the number of texts in the queue.
        """
        observe = {
            "queue_seconds": self.queue.observe,
            "encode_seconds": self.encode.observe,
            "batch_size": self.encode_size.observe,
        }
        gauge = self.waiting.labels("encode")

        def tell(name: str, value: float) -> None:
            if name in observe:
                observe[name](value)
            if name == "batch_size":
                gauge.set(waiting())

        return tell

    def page(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        folder = os.environ.get(FOLDER_VARIABLE)
        if folder:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        return generate_latest(self.registry) + generate_latest(_process())


def _process() -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
