"""What Prometheus reads at ``/metrics``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from weft.serving.pool import Pool
    from weft.serving.served import Served

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client keeps what several processes count; set by `weft.serving.workers`."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counts of one server; what the indexes count themselves is read on request."""

    def __init__(self, pool: Pool, indexes: Mapping[str, Served]) -> None:
        self.registry = CollectorRegistry()
        self._pool, self._indexes = pool, indexes
        self.requests = Counter(
            "weft_requests", "Requests answered.", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "weft_request_seconds", "Seconds until the answer.", ["route"], buckets=BUCKETS, registry=self.registry
        )
        self.registry.register(self)

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        if MULTIPROCESS not in os.environ:
            return generate_latest(self.registry)
        every = CollectorRegistry()
        MultiProcessCollector(every)  # type: ignore[no-untyped-call]
        every.register(self)
        return generate_latest(every)

    def collect(self) -> Iterable[Metric]:
        """Yield what is counted elsewhere."""
        yield GaugeMetricFamily("weft_waiting_requests", "Requests that wait for a thread.", self._pool.waiting)
        yield CounterMetricFamily("weft_shared_calls", "Calls that answered several searches.", self._pool.batches)
        documents = GaugeMetricFamily("weft_documents", "Documents and passages.", labels=["index"])
        segments = GaugeMetricFamily("weft_segments", "Segments.", labels=["index"])
        waiting = GaugeMetricFamily("weft_waiting_documents", "Documents that wait to be written.", labels=["index"])
        commits = CounterMetricFamily("weft_commits", "Groups of writes committed.", labels=["index"])
        begun = CounterMetricFamily("weft_writes_begun", "Requests whose writing has begun.", labels=["index"])
        hits = CounterMetricFamily("weft_query_cache_hits", "Queries that need not be encoded.", labels=["index"])
        misses = CounterMetricFamily("weft_query_cache_misses", "Queries that were encoded.", labels=["index"])
        for name, served in self._indexes.items():
            found = served.gauges()
            for key, family in (
                *(("documents", documents), ("segments", segments), ("waiting", waiting), ("begun", begun)),
                *(("commits", commits), ("hits", hits), ("misses", misses)),
            ):
                if key in found:
                    family.add_metric([name], found[key])
        yield from (documents, segments, waiting, begun, commits, hits, misses)
        for served in self._indexes.values():
            yield from served.families()
