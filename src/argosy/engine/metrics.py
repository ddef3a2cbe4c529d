"""Prometheus metrics of the engine. Every label has a handful of values; none ever names an object.

One `Metrics` belongs to one registry and is handed to the parts that count. A part that gets none counts
nothing, and then nothing of Prometheus is loaded: it takes longer than a short command does altogether.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metric(Protocol):
    """A counter, a gauge or a histogram, as far as the engine needs it."""

    def labels(self, *values: str) -> "Metric": ...
    def inc(self, amount: float = 1, /) -> None: ...
    def dec(self, amount: float = 1, /) -> None: ...
    def set(self, value: float, /) -> None: ...
    def set_function(self, function: Callable[[], float], /) -> None: ...
    def observe(self, amount: float, /) -> None: ...


class Metrics:
    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        self._registry = registry
        self.requests = self._counter(
            "argosy_requests_total",
            "Requests to the API server by HTTP method (WATCH for streams) and status; none: no answer.",
            ["verb", "code"],
        )
        self.request_seconds = self._histogram(
            "argosy_request_seconds", "Time to an answer of the API server.", ["verb"]
        )
        self.writes_in_flight = self._gauge("argosy_writes_in_flight", "Writes sent and not yet answered.")
        self.watch_restarts = self._counter(
            "argosy_watch_restarts_total",
            "Times a watch was begun again, by kind and cause.",
            ["kind", "cause"],
        )
        self.watch_events = self._counter("argosy_watch_events_total", "Events taken from watches.", ["kind"])
        self.undecodable = self._counter(
            "argosy_undecodable_objects_total",
            "Objects passed over because they do not fit their type.",
            ["kind"],
        )
        self.cache_objects = self._gauge("argosy_cache_objects", "Objects in a cache.", ["kind"])
        self.cache_synced = self._gauge(
            "argosy_cache_synced", "1 once a cache has had its first complete picture.", ["kind"]
        )
        self.cache_stale_seconds = self._gauge(
            "argosy_cache_stale_seconds",
            "Time since a cache's watch brought anything; servers send something every minute.",
            ["kind"],
        )
        self.queue_depth = self._gauge(
            "argosy_queue_depth", "Keys ready and waiting for a worker.", ["controller"]
        )
        self.queue_age_seconds = self._gauge(
            "argosy_queue_age_seconds", "How long the key that waits longest has been ready.", ["controller"]
        )
        self.queue_seconds = self._histogram(
            "argosy_queue_seconds", "How long keys were ready before a worker took them.", ["controller"]
        )
        self.longest_running_seconds = self._gauge(
            "argosy_longest_running_reconcile_seconds",
            "How long the oldest reconcile under way has taken so far.",
            ["controller"],
        )
        self.passes = self._counter(
            "argosy_passes_total", "Reconcile passes by outcome.", ["controller", "outcome"]
        )
        self.pass_seconds = self._histogram(
            "argosy_pass_seconds", "Duration of a reconcile pass.", ["controller"]
        )
        self.leader = self._gauge("argosy_leader", "1 while this process holds the lease.")
        self.events_dropped = self._counter(
            "argosy_events_dropped_total", "Kubernetes Events that could not be written."
        )

        self.tasks = self._gauge("argosy_tasks", "Tasks of the event loop.")

    @property
    def registry(self) -> "CollectorRegistry":
        assert self._registry is not None, "these metrics are not counted"
        return self._registry

    def _counter(self, name: str, told: str, labels: Sequence[str] = ()) -> Metric:
        if self._registry is None:
            return _NOTHING
        from prometheus_client import Counter

        return _counted(Counter(name, told, labels, registry=self._registry))

    def _gauge(self, name: str, told: str, labels: Sequence[str] = ()) -> Metric:
        if self._registry is None:
            return _NOTHING
        from prometheus_client import Gauge

        return _counted(Gauge(name, told, labels, registry=self._registry))

    def _histogram(self, name: str, told: str, labels: Sequence[str]) -> Metric:
        if self._registry is None:
            return _NOTHING
        from prometheus_client import Histogram

        return _counted(Histogram(name, told, labels, buckets=DURATIONS, registry=self._registry))


class _Nothing:
    """Is counted nowhere."""

    def labels(self, *values: str) -> "_Nothing":
        return self

    def inc(self, amount: float = 1, /) -> None: ...
    def dec(self, amount: float = 1, /) -> None: ...
    def set(self, value: float, /) -> None: ...
    def set_function(self, function: Callable[[], float], /) -> None: ...
    def observe(self, amount: float, /) -> None: ...


_NOTHING = _Nothing()


def _counted(number: object) -> Metric:
    """Prometheus has a class for each sort, with the methods that this sort has; who counts knows which."""
    return cast("Metric", number)
