"""Finds places for replicas: nodes of the cluster with enough room, and whether a bought node is ready.

What is free on a node is what it can allocate minus what its pods request. Replicas of one job never share a
node. A replica uses the GPUs of its machine template even if its pod requests none, so those of other jobs
are counted by what their jobs recorded.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from argosy.dialects.spot.job_spec import SpotJob
from argosy.dialects.spot.pods import ClusterPod
from argosy.dialects.spot.replica_job import asks_for
from argosy.kinds.kubernetes import Node
from argosy.kinds.meta import Condition
from argosy.kinds.node_matching import node_matches, untolerated
from argosy.kinds.resources import Resources, add, parse_resources, subtract
from argosy.kinds.spot import INSTANCE_LABEL
from argosy.workload.announcements import NoticeRules, find_announcement
from argosy.workload.capacity import requests
from argosy.workload.quarantine import read_quarantine

GPU = "nvidia.com/gpu"


class Cluster(Struct, frozen=True):
    """What places are chosen from."""

    nodes: tuple[Node, ...]
    pods: tuple[ClusterPod, ...]
    """All pods with a node that have not ended."""
    reserved: Mapping[str, Resources]
    """By node: what replicas of other jobs will use there."""


def fitting_nodes(
    job: SpotJob, gpus: int, cluster: Cluster, taken: Collection[str], rules: NoticeRules, now: datetime
) -> list[str]:
    """Return the nodes with room for one more replica, those with the least to spare first."""
    needed = replica_requests(job, gpus)
    used: dict[str, Resources] = {name: dict(amounts) for name, amounts in cluster.reserved.items()}
    for pod in cluster.pods:
        add(used.setdefault(pod.spec.node_name, {}), requests(pod.spec))
    fitting: list[tuple[int, str]] = []
    for node in cluster.nodes:
        name = node.metadata.name
        if name in taken or not _is_usable(node, job, rules) or is_quarantined(node, job.namespace, now):
            continue
        free = _allocatable(node)
        subtract(free, used.get(name, {}))
        if all(free.get(resource, 0) >= amount for resource, amount in needed.items() if amount > 0):
            fitting.append((free.get(GPU, 0), name))
    return [name for _, name in sorted(fitting)]


def replica_requests(job: SpotJob, gpus: int) -> Resources:
    """Return what a replica uses of its node."""
    needed = dict(requests(job.pod))
    needed[GPU] = max(needed.get(GPU, 0), gpus)
    return needed


def ready_problem(
    job: SpotJob, gpus: int, node: Node | None, pods: Iterable[ClusterPod], now: datetime, grace: float
) -> str:
    """Return what a bought node lacks before a Job may be bound to it; empty if nothing."""
    if node is None:
        return "the VM has not joined the cluster"
    ready = ready_condition(node)
    if ready is None or ready.status != "True":
        return f"node {node.metadata.name} is not Ready"
    if asks_for(job, GPU) and _allocatable(node).get(GPU, 0) < max(gpus, 1):
        return f"node {node.metadata.name} has no allocatable {GPU} yet"
    waiting = [pod.metadata.name for pod in pods if _is_unready_daemon(pod, node.metadata.name)]
    since = ready.last_transition_time
    if waiting and since is not None and now < since + timedelta(seconds=grace):
        return f"pods of node {node.metadata.name} are not ready: {', '.join(sorted(waiting)[:3])}"
    return ""


def ready_condition(node: Node) -> Condition | None:
    """Return the condition Ready of a node."""
    return next((condition for condition in node.status.conditions if condition.type == "Ready"), None)


def is_ready(node: Node | None) -> bool:
    """Return True if the node exists and is Ready."""
    condition = ready_condition(node) if node is not None else None
    return condition is not None and condition.status == "True"


def is_quarantined(node: Node | None, namespace: str, now: datetime) -> bool:
    """Return True if no new pod of the namespace may run on the node, because pods have failed there."""
    quarantine = read_quarantine(node) if node is not None else None
    return quarantine is not None and quarantine.concerns(namespace, now)


def _is_usable(node: Node, job: SpotJob, rules: NoticeRules) -> bool:
    meta, spec = node.metadata, node.spec
    if meta.deletion_timestamp is not None or spec.unschedulable or not is_ready(node):
        return False
    if INSTANCE_LABEL in meta.labels or find_announcement(node, rules) is not None:
        return False  # a bought VM goes with the replica that it was bought for
    if untolerated(spec.taints, job.pod.tolerations, "NoSchedule", "NoExecute"):
        return False
    affinity = job.pod.affinity.node_affinity if job.pod.affinity else None
    return node_matches(job.pod.node_selector, affinity, meta.name, meta.labels)


def _is_unready_daemon(pod: ClusterPod, node: str) -> bool:
    controller = pod.metadata.controller
    if pod.spec.node_name != node or controller is None or controller.kind != "DaemonSet":
        return False
    return not any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def _allocatable(node: Node) -> Resources:
    try:
        return parse_resources(dict(node.status.allocatable))
    except ValueError:
        return {}
