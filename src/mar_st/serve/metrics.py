"""Prometheus metrics of the server."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bounds of the buckets of times, in seconds: from a query on a small index to a timeout.
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

#: Bounds of the buckets of batch sizes.
SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

#: Routes whose times are `total`. Health checks and scrapes are faster and come when nobody searches.
TIMED_ROUTES = frozenset({"/search", "/v1/embeddings", "/rerank"})

#: Errors that are listed before they happen: `rate` does not see a counter's first value.
LISTED_ERRORS = ("internal", "overloaded", "timeout")


class Metrics:
    """Metrics of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        seconds: dict[str, Any] = {"buckets": SECONDS_BUCKETS, "registry": registry}
        sizes: dict[str, Any] = {"buckets": SIZE_BUCKETS, "registry": registry}
        plain: dict[str, Any] = {"registry": registry}
        self.seconds = Histogram("mar_stage_seconds", "Latency by stage.", ["stage"], **seconds)
        self.sizes = Histogram("mar_batch_size", "Texts or queries computed together.", ["stage"], **sizes)
        self.requests = Counter("mar_requests", "Requests by route and status.", ["route", "status"], **plain)
        self.errors = Counter("mar_errors", "Requests answered with an error, by kind.", ["kind"], **plain)
        for kind in LISTED_ERRORS:
            self.errors.labels(kind)
        self.reloads = Counter("mar_reloads", "Openings of an index while serving.", ["result"], **plain)
        self.waiting = Gauge("mar_queue_length", "Texts and queries that wait.", ["stage"], **plain)
        self.documents = Gauge("mar_index_documents", "Documents of the index.", **plain)
        self.generation = Gauge("mar_index_generation", "How often the index was opened.", **plain)
        names = ["model", "query_encoder"]
        self.encoder = Gauge("mar_query_encoder", "1 for the query encoder that answers.", names, **plain)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self.requests.labels(route, str(status)).inc()
        if status == 200 and route in TIMED_ROUTES:
            self.seconds.labels("total").observe(seconds)

    def observer(self, stage: str) -> Callable[[str, float], None]:
        """Return the callback to which the `Batcher` of a stage (`encode`, `search`) reports."""
        observe: dict[str, Callable[[float], Any]] = {
            "queue": self.seconds.labels("queue").observe,
            "size": self.sizes.labels(stage).observe,
            "work": self.seconds.labels(stage).observe,
        }
        if stage != "encode":
            del observe["queue"]
        return lambda name, value: observe[name](value) if name in observe else None

    def page(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)
