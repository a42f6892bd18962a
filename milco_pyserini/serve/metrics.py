"""Counters and times of milco serve in the text format of Prometheus."""

from typing import TYPE_CHECKING

from fastapi.responses import Response

from milco_pyserini.errors import UnknownDocument

if TYPE_CHECKING:
    from milco_pyserini.serve.service import SearchService

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BATCHES = (1, 2, 4, 8, 16, 32)


class Metrics:
    """The metrics of one service; without the package prometheus_client, none.

    Args:
        service: reports its index, its pending requests and the sizes of its batches.
    """

    def __init__(self, service: "SearchService") -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
        except ImportError:
            self._registry = None
            return
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter("milco_requests", "Requests", ("path", "status"), registry=registry)
        self._seconds = Histogram(
            "milco_seconds", "Seconds of a request", ("path",), registry=registry, buckets=_BUCKETS
        )
        batches = Histogram("milco_batch_queries", "Queries encoded together", registry=registry, buckets=_BATCHES)
        service.batches = batches.observe
        Gauge("milco_pending_requests", "Requests in progress", registry=registry).set_function(lambda: service.pending)
        documents = Gauge("milco_documents", "Documents of the index", registry=registry)
        documents.set_function(lambda: service.about.documents)
        self._index = Info(
            "milco_index", "The index, and its generation, which every update changes", registry=registry
        )
        self._service = service

    def observe(self, path: str, status: int, seconds: float) -> None:
        """Count a request. path: that of its route, not of the request, whose number has no bound."""
        if self._registry is not None:
            self._requests.labels(path, status).inc()
            self._seconds.labels(path).observe(seconds)

    def response(self) -> Response:
        """Return the page. Raises UnknownDocument without the package."""
        if self._registry is None:
            raise UnknownDocument("metrics need the package prometheus_client: pip install '.[serve]'")
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        about = self._service.about
        self._index.info({"name": about.name, "generation": about.generation, "encoder": about.encoder})
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
