"""Computes the resource requests of pods, as integers.

CPU is counted in millicores, every other resource in units, rounded up, so that sums are exact and
comparisons cheap. Init containers and sidecars follow Kubernetes' rules: a sidecar counts from its start on;
an ordinary init container runs alone with the sidecars before it; a pod needs the maximum over time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING
from functools import lru_cache
from typing import Protocol

from argosy.kinds.node_matching import Container, Quantities, Requirements
from argosy.kinds.quantity import parse_quantity

Resources = dict[str, int]
Measure = Callable[[Container], Resources]


class HasRequests(Protocol):
    """The part of a pod spec that determines its resource requests."""

    @property
    def containers(self) -> Sequence[Container]: ...
    @property
    def init_containers(self) -> Sequence[Container]: ...
    @property
    def overhead(self) -> Quantities: ...
    @property
    def resources(self) -> Requirements | None: ...


DEFAULT_CPU_MILLICORES = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
"""Assumed usage of a container without requests when nodes are scored; filtering ignores it."""


def parse_resources(quantities: Quantities) -> Resources:
    return {name: parse_resource(name, str(text)) for name, text in quantities.items()}


@lru_cache(maxsize=4096)
def parse_resource(name: str, text: str) -> int:
    """Return a quantity as an integer: millicores for cpu, units for other resources, rounded up."""
    value = parse_quantity(text) * (1000 if name == "cpu" else 1)
    return int(value.to_integral_value(rounding=ROUND_CEILING))


def pod_requests(spec: HasRequests) -> Resources:
    """Return what must be free on a node for this pod to fit."""
    return _pod_total(spec, container_requests)


def pod_usage(spec: HasRequests) -> Resources:
    """Return the pod's assumed usage for scoring nodes: its requests, with defaults for missing ones."""
    return _pod_total(spec, _usage)


def container_requests(container: Container) -> Resources:
    return _requests(container.resources)


def add(total: Resources, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def subtract(total: Resources, less: Mapping[str, int]) -> None:
    for name, value in less.items():
        total[name] = total.get(name, 0) - value


def insufficient(
    requests: Mapping[str, int], used: Mapping[str, int], allocatable: Mapping[str, int]
) -> list[str]:
    """Return the names of the resources of which less is free than requested."""
    return [
        name
        for name, value in requests.items()
        if value > 0 and value > allocatable.get(name, 0) - used.get(name, 0)
    ]


def _pod_total(spec: HasRequests, of_container: Measure) -> Resources:
    running = _sum(of_container(container) for container in spec.containers)
    sidecars: Resources = {}
    peak: Resources = {}
    for container in spec.init_containers:
        needed = of_container(container)
        if container.restart_policy == "Always":
            add(sidecars, needed)
            needed = sidecars
        else:
            needed = _sum((needed, sidecars))
        peak = _larger(peak, needed)
    add(running, sidecars)
    total = _larger(running, peak)
    if spec.resources is not None:
        total.update(_requests(spec.resources))
    add(total, parse_resources(spec.overhead))
    return total


def _requests(requirements: Requirements) -> Resources:
    """Return the requests; a missing request defaults to the limit, as in the API server."""
    if not requirements.limits:
        return parse_resources(requirements.requests)
    return parse_resources({**requirements.limits, **requirements.requests})


def _usage(container: Container) -> Resources:
    return {"cpu": DEFAULT_CPU_MILLICORES, "memory": DEFAULT_MEMORY_BYTES} | container_requests(container)


def _sum(parts: Iterable[Resources]) -> Resources:
    total: Resources = {}
    for part in parts:
        add(total, part)
    return total


def _larger(left: Resources, right: Resources) -> Resources:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
