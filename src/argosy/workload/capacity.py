"""Checks whether enough pods of a gang fit on ready nodes at once, for the built-in gang scheduler.

Free capacity is what ready nodes can allocate minus what their pods request. Pods without a node are counted
first, including those of gangs admitted a moment ago, so two gangs are never admitted for the same capacity.
Node selectors, required node affinity and taints are respected; affinity between pods is not.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation

import msgspec
from msgspec import Struct, field

from argosy.kinds.kubernetes import Node, Taint
from argosy.kinds.labels import HOURLY_PRICE
from argosy.kinds.node_matching import (
    Container,
    NodeAffinity,
    Quantities,
    Requirements,
    Toleration,
    node_matches,
    untolerated,
)
from argosy.kinds.resources import pod_requests
from argosy.workload.model import Json, Workload

PODS = "pods"
MAX_HOURLY_PRICE = 1e6
"""No node costs more; a larger number, or infinity, is a mistake."""
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class Affinity(Struct, rename="camel", gc=False):
    node_affinity: NodeAffinity | None = None


class PodRequirements(Struct, rename="camel", gc=False):
    """The part of a pod's spec that says how much it needs and which nodes it accepts."""

    node_name: str = ""
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] = field(default_factory=list)
    overhead: Quantities = field(default_factory=dict)
    resources: Requirements | None = None
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: list[Toleration] = field(default_factory=list)


class FreeNode(Struct, frozen=True):
    """A ready node with its free resources."""

    name: str
    free: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class PodBatch(Struct, frozen=True):
    """A number of pods with the same requirements."""

    requirements: PodRequirements
    count: int


class Capacity(Struct, frozen=True):
    nodes: tuple[FreeNode, ...] = ()
    pending: tuple[PodBatch, ...] = ()
    """Pods without a node, including those that are being created."""


def fits(workload: Workload, capacity: Capacity) -> bool:
    """Return True if the minimum number of the gang's pods fits at the same time.

    Both orders, the largest and the smallest pods first, are tried, since either may fit more pods.
    """
    assert workload.gang
    batches = sorted(pod_batches(workload), key=lambda batch: _size(batch.requirements), reverse=True)
    return any(
        _count_placed(order, capacity) >= workload.gang.min_available for order in (batches, batches[::-1])
    )


def pod_batches(workload: Workload) -> list[PodBatch]:
    return [PodBatch(pod_requirements(role.template), role.replicas) for role in workload.roles.values()]


def pod_requirements(template: Json) -> PodRequirements:
    """Return the requirements of a template's pods; none if it is invalid, which the API server will
    report."""
    try:
        return msgspec.convert(template.get("spec") or {}, PodRequirements)
    except msgspec.ValidationError:
        return PodRequirements()


def requests(needs: PodRequirements) -> dict[str, int]:
    """Return the resources that a node must have free, including one of its number of pods."""
    try:
        return {PODS: 1, **pod_requests(needs)}
    except ValueError:
        return {PODS: 1}


def read_hourly_price(node: Node) -> float:
    """Return what a node costs per hour; 0 if that is not known, or is not a price."""
    return float(parse_hourly_price(node.metadata.annotations.get(HOURLY_PRICE, "")) or 0)


def parse_hourly_price(text: str) -> Decimal | None:
    """Return a price per hour; None if the text is none, or is out of all bounds."""
    try:
        price = Decimal(text)
        return price if 0 <= price < MAX_HOURLY_PRICE else None
    except InvalidOperation:  # also of a comparison with NaN
        return None


def _size(needs: PodRequirements) -> tuple[int, int, int]:
    """Return a sort key by the scarcest resources: devices, then CPU, then memory."""
    requested = requests(needs)
    devices = sum(amount for name, amount in requested.items() if "/" in name)
    return devices, requested.get("cpu", 0), requested.get("memory", 0)


def _count_placed(batches: Iterable[PodBatch], capacity: Capacity) -> int:
    """Return how many pods of the batches fit on nodes after the pending pods."""
    free = {node.name: dict(node.free) for node in capacity.nodes}
    for batch in capacity.pending:
        _place(batch, capacity.nodes, free)
    return sum(_place(batch, capacity.nodes, free) for batch in batches)


def _place(batch: PodBatch, nodes: Iterable[FreeNode], free: dict[str, dict[str, int]]) -> int:
    """Place as many pods as fit, on the fullest nodes first; return their number."""
    requested = {name: amount for name, amount in requests(batch.requirements).items() if amount > 0}
    eligible = [free[node.name] for node in nodes if _accepts(node, batch.requirements)]
    remaining = batch.count
    for node in sorted(eligible, key=lambda node: _fitting(node, requested)):
        placed = min(remaining, _fitting(node, requested))
        for name, amount in requested.items():
            node[name] = node.get(name, 0) - placed * amount
        remaining -= placed
    return batch.count - remaining


def _fitting(free: Mapping[str, int], requested: Mapping[str, int]) -> int:
    """Return how many pods with these requests fit into the free resources."""
    return max(0, min(free.get(name, 0) // amount for name, amount in requested.items()))


def _accepts(node: FreeNode, needs: PodRequirements) -> bool:
    taints = (*node.taints, _UNSCHEDULABLE) if node.unschedulable else node.taints
    if untolerated(taints, needs.tolerations, "NoSchedule", "NoExecute"):
        return False
    affinity = needs.affinity.node_affinity if needs.affinity else None
    return node_matches(needs.node_selector, affinity, node.name, node.labels)
