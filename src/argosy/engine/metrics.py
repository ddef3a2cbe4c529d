"""Prometheus metrics of the engine. Every label has a handful of values; none ever names an object.

One `Metrics` belongs to one registry and is handed to the parts that count; a part that gets none counts into
a registry that nobody reads.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = Counter(
            "argosy_requests_total",
            "Requests to the API server by verb and class of answer.",
            ["verb", "code"],
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "argosy_request_seconds",
            "Time to an answer of the API server.",
            ["verb"],
            buckets=DURATIONS,
            registry=self.registry,
        )
        self.writes_in_flight = Gauge(
            "argosy_writes_in_flight", "Writes sent and not yet answered.", registry=self.registry
        )
        self.watch_restarts = Counter(
            "argosy_watch_restarts_total",
            "Times a watch was begun again, by kind and cause.",
            ["kind", "cause"],
            registry=self.registry,
        )
        self.watch_events = Counter(
            "argosy_watch_events_total", "Events taken from watches.", ["kind"], registry=self.registry
        )
        self.undecodable = Counter(
            "argosy_undecodable_objects_total",
            "Objects passed over because they do not fit their type.",
            ["kind"],
            registry=self.registry,
        )
        self.queue_depth = Gauge(
            "argosy_queue_depth",
            "Keys ready and waiting for a worker.",
            ["controller"],
            registry=self.registry,
        )
        self.passes = Counter(
            "argosy_passes_total",
            "Reconcile passes by outcome.",
            ["controller", "outcome"],
            registry=self.registry,
        )
        self.pass_seconds = Histogram(
            "argosy_pass_seconds",
            "Duration of a reconcile pass.",
            ["controller"],
            buckets=DURATIONS,
            registry=self.registry,
        )
        self.leader = Gauge("argosy_leader", "1 while this process holds the lease.", registry=self.registry)
        self.events_dropped = Counter(
            "argosy_events_dropped_total",
            "Kubernetes Events that could not be written.",
            registry=self.registry,
        )
