"""What is seen of a job in the API: its pods and other children, the nodes that matter, answers to earlier
actions.

`Observed` is partial and may be old (it comes from caches); policies are written so that an old view can
delay them but not mislead them. The one observation that an old view can fake is absence, so a pod counts as
lost only when `absent` confirms it.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.kinds import labels
from argosy.kinds.kubernetes import ContainerStatus, Pod, PodStatus, Terminated
from argosy.kinds.meta import Condition
from argosy.plan.actions import ActionResult
from argosy.plan.children import KubernetesObject
from argosy.workload.capacity import Capacity
from argosy.workload.model import RolePolicy
from argosy.workload.semantics import Semantics

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint by which an administrator says that a node is off and runs nothing any more."""


class MetadataSubset(Struct, frozen=True):
    """The labels and annotations of an object that a job hands on (`HandedOn`)."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


NO_METADATA = MetadataSubset()


class ObservedPod(Struct, frozen=True):
    """One pod of the job: its place, and what is known of its fate."""

    name: str
    uid: str
    role: str
    index: int
    attempt: int = 1
    replacement: int = 0
    phase: str = "Pending"
    """Kubernetes' pod phase: Pending, Running, Succeeded, Failed, Unknown."""
    terminating: bool = False
    deletion_time: datetime | None = None
    """When its grace period is over."""
    created: datetime | None = None
    node: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    """Of the first container that ended badly, else of the first that ended."""
    container: str = ""
    out_of_memory: bool = False
    """That container was killed for the memory it took."""
    first_exit_code: int | None = None
    """Of the first container that ended, in their order."""
    first_terminated: Terminated | None = None
    """How that container ended."""
    container_restarts: int = 0
    last_exit_code: int | None = None
    """Before its last restart in place: of the container that was restarted last."""
    last_out_of_memory: bool = False
    over_limit: bool = False
    """Evicted by its node for what it did itself: it used more storage than its own limits allow."""
    disrupted: bool = False
    """Ended by the cluster (eviction, preemption, node shutdown), not by its own program."""
    disruption_reason: str = ""
    """The reason of its condition DisruptionTarget."""
    preempted_at: datetime | None = None
    """When a scheduler said that it takes the pod away for others."""
    waits_for_dependency: bool = False
    """Still in the init container that waits for others."""
    waiting_reason: str = ""
    """Why a container cannot start (ImagePullBackOff …), or why the pod cannot be placed (Unschedulable)."""
    waiting_message: str = ""
    metadata: MetadataSubset = NO_METADATA
    resource_version: str = ""
    """The resourceVersion at which it was seen so."""

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


class ObservedGroup(Struct, frozen=True):
    """What a scheduler tells of a gang as a whole."""

    scheduler: str = "volcano"
    queued: bool = False
    """Waits to be let in."""
    scheduled: bool = False
    evicted: bool = False
    reason: str = ""
    message: str = ""
    uid: str = ""
    metadata: MetadataSubset = NO_METADATA


class RecentLoss(Struct, frozen=True):
    """Pods that one place lost in a row, for whatever reason."""

    count: int
    seconds_ago: float
    """Since the last of them."""


class Observed(Struct, frozen=True, dict=True):
    """Everything a pass looked at."""

    pods: tuple[ObservedPod, ...] = ()
    nodes_down: frozenset[str] = frozenset()
    """Nodes that hold pods of this job and whose condition Ready is Unknown, or that are confirmed to be
    gone."""
    nodes_partly_unknown: frozenset[str] = frozenset()
    """Those of them with any condition of status Unknown."""
    nodes_released: frozenset[str] = frozenset()
    """Nodes that are down and certain to run nothing any more: confirmed to be gone, or marked by an
    administrator with the taint `node.kubernetes.io/out-of-service`."""
    nodes_unconfirmed: Mapping[str, str] = field(default_factory=dict)
    """Nodes for which the API is being asked, as the caches are no proof; nothing is concluded from them.
    With what the API has said so far, empty until that is worth showing."""
    children: tuple[KubernetesObject, ...] = ()
    """Services, service accounts, roles, role bindings and pod groups of the job that are not being
    deleted."""
    group: ObservedGroup | None = None
    gang_scheduler_setting: str = "volcano"
    """Who is to place gangs, as the operator is set up: the name of a back end, `auto` or `none`."""
    available_gang_schedulers: frozenset[str] = frozenset({"volcano"})
    """The back ends under that choice which this cluster serves."""
    capacity: Capacity | None = None
    """What is free in the cluster; looked at only for gangs that nobody else places."""
    confirmed_absent: frozenset[tuple[str, int]] = frozenset()
    """Places (role, index) whose pod the API itself, not a cache, said does not exist (answer to
    ConfirmPod)."""
    recently_deleted: tuple[ObservedPod, ...] = ()
    """Pods that were seen to go and whose places are empty since, as they were last. Where this is lost
    nobody is told who took them."""
    recent_losses: Mapping[tuple[str, int], RecentLoss] = field(default_factory=dict)
    """By (role, index), for places that lost more than one pod in a row. Lost with the operator, which costs
    one more pod without delay."""
    failed_actions: tuple[ActionResult, ...] = ()
    """Actions of earlier passes that were not done and are still in the way."""

    def nodes_to_replace(self, policy: RolePolicy | None, semantics: Semantics) -> frozenset[str]:
        """Return the nodes whose pods are replaced although they have not failed themselves."""
        if policy is None or not policy.node_down_as_failed or not semantics.replace_pods_on_down_nodes:
            return frozenset()
        return self.nodes_down

    def failed_nodes(self, policy: RolePolicy | None, semantics: Semantics) -> frozenset[str]:
        """Return the nodes whose pods count as failed."""
        if policy is None or not policy.node_down_as_failed:
            return frozenset()
        if semantics.unknown_condition_is_node_down:
            return self.nodes_partly_unknown | self.nodes_down
        return self.nodes_down

    @cached_property
    def by_replica(self) -> Mapping[tuple[str, int], tuple[ObservedPod, ...]]:
        """Pods by (role, index); almost always one."""
        places: dict[tuple[str, int], tuple[ObservedPod, ...]] = {}
        for pod in self.pods:
            place = (pod.role, pod.index)
            places[place] = (*places.get(place, ()), pod)
        return places

    @cached_property
    def by_role(self) -> Mapping[str, tuple[ObservedPod, ...]]:
        roles: dict[str, list[ObservedPod]] = {}
        for pod in self.pods:
            roles.setdefault(pod.role, []).append(pod)
        return {name: tuple(pods) for name, pods in roles.items()}


def observe_pod(pod: Pod, keys: Sequence[str] = (), noticed: datetime | None = None) -> ObservedPod | None:
    """The pod as policies see it, with these of its labels and annotations; None if its labels do not say
    which place it has. `noticed` is the time of a preemption that is told without one."""
    meta, status = pod.metadata, pod.status
    try:
        index = int(meta.labels[labels.INDEX])
        attempt = int(meta.labels[labels.ATTEMPT])
        replacement = int(meta.labels[labels.REPLACEMENT])
        role = meta.labels[labels.ROLE]
    except (KeyError, ValueError):
        return None
    name, ended = _exit(status.container_statuses) or _exit(status.init_container_statuses) or ("", None)
    first, last = _first_ended(status.container_statuses), _last_exit(status.container_statuses)
    disruption, over_limit = _disruption(pod), _is_over_limit(status)
    waiting, waiting_message = _waiting(pod)
    preempted = _preempted(pod, noticed)
    return ObservedPod(
        name=meta.name,
        uid=meta.uid,
        role=role,
        index=index,
        attempt=attempt,
        replacement=replacement,
        phase=status.phase or "Pending",
        terminating=meta.deletion_timestamp is not None,
        deletion_time=meta.deletion_timestamp,
        created=meta.creation_timestamp,
        node=pod.spec.node_name,
        reason=status.reason,
        message=status.message,
        exit_code=ended.exit_code if ended else None,
        container=name,
        out_of_memory=ended is not None and ended.reason == _OUT_OF_MEMORY,
        first_exit_code=first.exit_code if first else None,
        first_terminated=first,
        container_restarts=sum(one.restart_count for one in status.container_statuses),
        last_exit_code=last.exit_code if last else None,
        last_out_of_memory=last is not None and last.reason == _OUT_OF_MEMORY,
        over_limit=over_limit,
        disrupted=disruption is not None
        or preempted is not None
        or (status.phase == "Failed" and status.reason in _DISRUPTED and not over_limit),
        disruption_reason=disruption.reason if disruption else "",
        preempted_at=preempted,
        waits_for_dependency=status.phase == "Pending" and _held(status.init_container_statuses),
        waiting_reason=waiting,
        waiting_message=waiting_message,
        metadata=select_metadata(meta.labels, meta.annotations, keys),
        resource_version=meta.resource_version,
    )


def select_metadata(
    labels: Mapping[str, str], annotations: Mapping[str, str], keys: Sequence[str]
) -> MetadataSubset:
    found = MetadataSubset(
        {key: labels[key] for key in keys if key in labels},
        {key: annotations[key] for key in keys if key in annotations},
    )
    return found if found.labels or found.annotations else NO_METADATA


def is_equivalent_pod(one: ObservedPod, other: ObservedPod) -> bool:
    """Whether policies see no difference. Being placed is none: nothing is decided by it, and every pod does
    it once."""
    return replace(one, node=other.node, resource_version=other.resource_version) == other


_DISRUPTED = frozenset(
    {"Evicted", "Preempting", "NodeLost", "NodeShutdown", "Terminated", "Shutdown", "NodeAffinity"}
)

_OVER_LIMIT = (
    re.compile(r"Usage of EmptyDir volume .* exceeds the limit "),
    re.compile(r"Container .* exceeded its local ephemeral storage limit "),
    re.compile(r"Pod ephemeral local storage usage exceeds the total limit of containers "),
)
"""How the kubelet's message begins when it evicts a pod for the pod's own limits (pkg/kubelet/eviction). For
what the node lacks it begins with "The node was low on resource"."""

_OUT_OF_MEMORY = "OOMKilled"

_SAME_WAIT = {"ErrImagePull": "ImagePullBackOff"}
"""A node goes back and forth between these; to a reader, and to the status, they are one wait."""


_TARGETS = ("DisruptionTarget", "TerminationTarget")
_PREEMPTED = {
    ("Ready", "False"): ("Preempted", "Evict"),
    ("DisruptionTarget", "True"): ("PreemptionByScheduler",),
}
"""Conditions by which schedulers tell it, with their reasons: Volcano's, and Kubernetes' own."""


def _disruption(pod: Pod) -> Condition | None:
    """The condition with which Kubernetes, or Kueue, marks a pod that it takes away."""
    return next((one for one in pod.status.conditions if one.type in _TARGETS and one.status == "True"), None)


def _is_over_limit(status: PodStatus) -> bool:
    if status.phase != "Failed" or status.reason != "Evicted":
        return False
    return any(pattern.match(status.message) for pattern in _OVER_LIMIT)


def _preempted(pod: Pod, noticed: datetime | None) -> datetime | None:
    told = (one for one in pod.status.conditions if one.reason in _PREEMPTED.get((one.type, one.status), ()))
    return next((one.last_transition_time or noticed for one in told), None)


def _exit(statuses: list[ContainerStatus]) -> tuple[str, Terminated] | None:
    ended = [(one.name, one.state.terminated) for one in statuses if one.state.terminated]
    return next((one for one in ended if one[1].exit_code != 0), ended[0] if ended else None)


def _last_exit(statuses: list[ContainerStatus]) -> Terminated | None:
    """How the container ended that was restarted in its place last."""
    ended = [one.last_state.terminated for one in statuses if one.last_state.terminated]
    return max(ended, key=lambda one: one.finished_at.timestamp() if one.finished_at else 0.0, default=None)


def _first_ended(statuses: list[ContainerStatus]) -> Terminated | None:
    return next((one.state.terminated for one in statuses if one.state.terminated), None)


def _held(statuses: list[ContainerStatus]) -> bool:
    ours = (one for one in statuses if one.name in (labels.HELPER_CONTAINER, labels.INITIALIZER_CONTAINER))
    return any(one.state.terminated is None and not one.ready for one in ours)


def _waiting(pod: Pod) -> tuple[str, str]:
    for one in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if one.state.waiting and one.state.waiting.reason not in ("", "PodInitializing", "ContainerCreating"):
            reason = one.state.waiting.reason
            return _SAME_WAIT.get(reason, reason), one.state.waiting.message
    if pod.status.phase in ("", "Pending") and not pod.spec.node_name:
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                return condition.reason or "Unschedulable", condition.message
    return "", ""
