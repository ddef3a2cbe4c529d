"""Prometheus metrics of the engine, named after those of client-go and controller-runtime.

Every label has a handful of values, and none of them is the name of an object. One `Metrics` belongs to one
registry and is passed to the parts that count. Without a registry nothing is counted and `prometheus_client`
is not imported: its import takes longer than a short command runs.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class Metric(Protocol):
    """A counter, a gauge or a histogram: the methods of `prometheus_client` that the engine calls."""

    def labels(self, *values: str) -> "Metric": ...
    def inc(self, amount: float = 1, /) -> None: ...
    def dec(self, amount: float = 1, /) -> None: ...
    def set(self, value: float, /) -> None: ...
    def set_function(self, function: Callable[[], float], /) -> None: ...
    def observe(self, amount: float, /) -> None: ...


class Metrics:
    """All metrics of the engine, in one registry."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        self._registry = registry
        self._define_api_metrics()
        self._define_cache_metrics()
        self._define_controller_metrics()
        self.is_leader = self._gauge("argosy_is_leader", "1 while this process holds the lease.")
        self.events_dropped = self._counter(
            "argosy_events_dropped_total", "Kubernetes Events that could not be written."
        )
        self.exec_total = self._counter(
            "argosy_exec_total", "Commands that the operator ran in containers, by result.", ["result"]
        )
        self.exec_in_progress = self._gauge(
            "argosy_exec_in_progress", "Commands that the operator runs in containers now."
        )
        self.calls_total = self._counter(
            "argosy_calls_total", "Calls outside of Kubernetes, by driver and result.", ["driver", "result"]
        )
        self.calls_in_progress = self._gauge(
            "argosy_calls_in_progress", "Calls outside of Kubernetes that have not been answered yet."
        )
        self.views = self._gauge("argosy_views", "Views outside of Kubernetes that are fetched regularly.")
        self.view_fetches = self._counter(
            "argosy_view_fetches_total", "Fetches of views, by driver and result.", ["driver", "result"]
        )
        self.event_loop_tasks = self._gauge("argosy_event_loop_tasks", "Tasks of the event loop.")

    def _define_api_metrics(self) -> None:
        self.api_requests = self._counter(
            "argosy_api_requests_total",
            "Requests to the API server by HTTP method (WATCH for streams) and status code (error if no"
            " response was received).",
            ["method", "code"],
        )
        self.api_request_duration = self._histogram(
            "argosy_api_request_duration_seconds", "Time until the response was complete.", ["method"]
        )
        self.writes_in_flight = self._gauge(
            "argosy_writes_in_flight", "Writes whose response has not been received yet."
        )

    def _define_cache_metrics(self) -> None:
        self.watch_restarts = self._counter(
            "argosy_watch_restarts_total", "Watches that were started again, by reason.", ["kind", "reason"]
        )
        self.watch_events = self._counter(
            "argosy_watch_events_total", "Events received from watches.", ["kind"]
        )
        self.undecodable = self._counter(
            "argosy_undecodable_objects_total",
            "Objects skipped because a field has a value of the wrong type.",
            ["kind"],
        )
        self.cache_objects = self._gauge("argosy_cache_objects", "Objects in a cache.", ["kind"])
        self.cache_synced = self._gauge(
            "argosy_cache_synced", "1 once a cache holds the first complete list.", ["kind"]
        )
        self.cache_seconds_since_event = self._gauge(
            "argosy_cache_seconds_since_event",
            "Time since a cache's watch received an event or bookmark; servers send a bookmark every minute.",
            ["kind"],
        )

    def _define_controller_metrics(self) -> None:
        self.workqueue_depth = self._gauge(
            "argosy_workqueue_depth", "Keys ready and waiting for a worker.", ["controller"]
        )
        self.workqueue_oldest_item = self._gauge(
            "argosy_workqueue_oldest_item_seconds",
            "How long the oldest ready key has waited.",
            ["controller"],
        )
        self.workqueue_wait_duration = self._histogram(
            "argosy_workqueue_wait_duration_seconds",
            "How long keys were ready before a worker took them.",
            ["controller"],
        )
        self.longest_running_reconcile = self._gauge(
            "argosy_longest_running_reconcile_seconds",
            "How long the oldest running reconcile has taken so far.",
            ["controller"],
        )
        self.reconcile_total = self._counter(
            "argosy_reconcile_total", "Reconciles by result.", ["controller", "result"]
        )
        self.reconcile_duration = self._histogram(
            "argosy_reconcile_duration_seconds", "Duration of a reconcile.", ["controller"]
        )

    @property
    def registry(self) -> "CollectorRegistry":
        assert self._registry is not None, "these metrics have no registry"
        return self._registry

    def _counter(self, name: str, description: str, labels: Sequence[str] = ()) -> Metric:
        if self._registry is None:
            return _NO_METRIC
        from prometheus_client import Counter

        return _as_metric(Counter(name, description, labels, registry=self._registry))

    def _gauge(self, name: str, description: str, labels: Sequence[str] = ()) -> Metric:
        if self._registry is None:
            return _NO_METRIC
        from prometheus_client import Gauge

        return _as_metric(Gauge(name, description, labels, registry=self._registry))

    def _histogram(self, name: str, description: str, labels: Sequence[str]) -> Metric:
        if self._registry is None:
            return _NO_METRIC
        from prometheus_client import Histogram

        return _as_metric(
            Histogram(name, description, labels, buckets=DURATION_BUCKETS, registry=self._registry)
        )


class _NoMetric:
    """Ignores what it is given."""

    def labels(self, *values: str) -> "_NoMetric":
        return self

    def inc(self, amount: float = 1, /) -> None: ...
    def dec(self, amount: float = 1, /) -> None: ...
    def set(self, value: float, /) -> None: ...
    def set_function(self, function: Callable[[], float], /) -> None: ...
    def observe(self, amount: float, /) -> None: ...


_NO_METRIC = _NoMetric()


def _as_metric(metric: object) -> Metric:
    """Return a Prometheus metric under the engine's type.

    Prometheus' Counter, Gauge and Histogram have only some of `Metric`'s methods each.
    """
    return cast("Metric", metric)
