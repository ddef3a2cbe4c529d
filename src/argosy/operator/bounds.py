"""Limits on connections, request sizes and times, so that no client can exhaust the operator.

The endpoint, the probes and the metrics share a process with leader election and the controllers, and every
pod of the cluster may connect. Rejected connections and requests are counted by reason.
"""

import resource
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge

from argosy.engine.logs import Logger
from argosy.wire.connection_limits import ConnectionLimits, RejectReason
from argosy.wire.request_head import RequestLimits

log = Logger(__name__)

KIB: Final = 1024

REQUEST_LIMITS: Final = RequestLimits(
    head_bytes=8 * KIB,
    head_lines=64,
    head_seconds=10.0,
    body_seconds=10.0,
    idle_seconds=30.0,
    read_bytes=16 * KIB,
    unread_bytes=4 * KIB,
    max_pipelined=4,
)
PROBE_CONNECTIONS: Final = ConnectionLimits(total=256, per_address=64)
"""Limits of the address for probes and metrics."""

RESERVED_FILES: Final = 512
"""Open files that are not connections to the endpoint."""

RejectionReason: TypeAlias = (
    RejectReason | Literal["unknown-job", "webhook-busy", "webhook-slow", "too-large"]
)
OnRejected: TypeAlias = Callable[[RejectionReason], None]


class EndpointMetrics:
    """Counts rejected requests and open connections of the endpoint."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rejected = Counter(
            "argosy_endpoint_rejected_total",
            "Connections and requests that the endpoint rejected or gave up, by reason.",
            ["reason"],
            registry=registry,
        )
        self.connections = Gauge(
            "argosy_endpoint_connections", "Connections that the endpoint has open.", registry=registry
        )

    def rejected(self, reason: RejectionReason) -> None:
        self._rejected.labels(reason).inc()


def endpoint_connections(total: int, per_address: int) -> ConnectionLimits:
    """Return the connection limits of the endpoint, lowered if the limit of open files requires it."""
    possible = _raise_open_files(total + RESERVED_FILES) - RESERVED_FILES
    if possible < total:
        log.warning("fewer connections than configured fit the limit of open files", connections=possible)
    return ConnectionLimits(total=max(1, min(total, possible)), per_address=per_address)


def _raise_open_files(wanted: int) -> int:
    """Raise this process's limit of open files to `wanted` or as far as possible, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return raised
