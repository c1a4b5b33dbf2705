"""What this process has answered, counted for Prometheus by route, never by path."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import Scope

__all__ = ["Traffic"]

_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Traffic:
    """Counts answers; each application has its own, and nothing is shared within the process.

    What names a series is the route as it was declared, so that no caller can make new ones.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "autocode_jobs_http_requests",
            "Requests that this process answered.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "autocode_jobs_http_request_seconds",
            "From a request to the end of its answer; what `Prefer: wait` held is among it.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one answer.

        Args:
            scope: the request's, after the application has dealt with it.
            status: of the answer.
            seconds: how long it took.
        """
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)
