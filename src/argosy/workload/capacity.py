"""Checks whether enough pods of a gang fit on ready nodes at once, for the built-in gang scheduler.

Free capacity is what ready nodes can allocate minus what their pods request. Pods without a node are counted
first, including those of gangs admitted a moment ago, so two gangs are never admitted for the same capacity.
Node selectors, required node affinity and taints are respected; affinity between pods is not.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct, field

from argosy.kinds.kubernetes import Taint
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
    """A ready node with what is free on it."""

    name: str
    free: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class PodBatch(Struct, frozen=True):
    """Some pods that need the same."""

    requirements: PodRequirements
    count: int


class Capacity(Struct, frozen=True):
    nodes: tuple[FreeNode, ...] = ()
    pending: tuple[PodBatch, ...] = ()
    """Pods that were made, or are being made, and have no node yet."""


def fits(workload: Workload, room: Capacity) -> bool:
    """Whether as many of the job's pods as its gang needs fit all at once."""
    assert workload.gang
    asked = sorted(pod_batches(workload), key=lambda one: _size(one.requirements), reverse=True)
    return any(_placed(order, room) >= workload.gang.min_available for order in (asked, asked[::-1]))


def pod_batches(workload: Workload) -> list[PodBatch]:
    return [PodBatch(pod_requirements(role.template), role.replicas) for role in workload.roles.values()]


def pod_requirements(template: Json) -> PodRequirements:
    """What pods made from the template need. One that cannot be read asks for nothing: the API server will
    tell what is wrong with it."""
    try:
        return msgspec.convert(template.get("spec") or {}, PodRequirements)
    except msgspec.ValidationError:
        return PodRequirements()


def requests(needs: PodRequirements) -> dict[str, int]:
    """What must be free on a node, the pod's place among its pods included."""
    try:
        return {PODS: 1, **pod_requests(needs)}
    except ValueError:
        return {PODS: 1}


def _size(needs: PodRequirements) -> tuple[int, int, int]:
    """Orders pods by what is scarcest: devices, then processors, then memory."""
    asked = requests(needs)
    devices = sum(amount for name, amount in asked.items() if "/" in name)
    return devices, asked.get("cpu", 0), asked.get("memory", 0)


def _placed(asked: Iterable[PodBatch], room: Capacity) -> int:
    """How many of the pods find a node, after those ahead of them."""
    free = {node.name: dict(node.free) for node in room.nodes}
    for one in room.pending:
        _place(one, room.nodes, free)
    return sum(_place(one, room.nodes, free) for one in asked)


def _place(alike: PodBatch, nodes: Iterable[FreeNode], free: dict[str, dict[str, int]]) -> int:
    """Puts as many as there is room for onto the fullest nodes first, and tells how many."""
    asked = {name: amount for name, amount in requests(alike.requirements).items() if amount > 0}
    open_to = [free[node.name] for node in nodes if _accepts(node, alike.requirements)]
    left = alike.count
    for there in sorted(open_to, key=lambda one: _takes(one, asked)):
        taken = min(left, _takes(there, asked))
        for name, amount in asked.items():
            there[name] = there.get(name, 0) - taken * amount
        left -= taken
    return alike.count - left


def _takes(free: Mapping[str, int], asked: Mapping[str, int]) -> int:
    return max(0, min(free.get(name, 0) // amount for name, amount in asked.items()))


def _accepts(node: FreeNode, needs: PodRequirements) -> bool:
    taints = (*node.taints, _UNSCHEDULABLE) if node.unschedulable else node.taints
    if untolerated(taints, needs.tolerations, "NoSchedule", "NoExecute"):
        return False
    affinity = needs.affinity.node_affinity if needs.affinity else None
    return node_matches(needs.node_selector, affinity, node.name, node.labels)
