"""Defines `Observed`, the observed state of a job: its pods and other children, nodes, and failed actions.

It comes from caches and may be outdated. Policies are written so that outdated state can delay a decision but
not make it wrong. Only the absence of a pod cannot be trusted, so where that matters a pod counts as lost
only if its replica is in `confirmed_absent`.
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
from argosy.plan.actions import ActionResult, ExecResult
from argosy.plan.children import KubernetesObject
from argosy.workload.capacity import Capacity
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.model import RolePolicy
from argosy.workload.notice import Notice
from argosy.workload.save_acks import read_ack, read_resumed, read_step
from argosy.workload.scale_request import ScaleRequest
from argosy.workload.semantics import Semantics
from argosy.workload.usage_record import PricedNode


class MetadataSubset(Struct, frozen=True):
    """Labels and annotations of an object that a job propagates (`PropagatedMetadata`)."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


NO_METADATA = MetadataSubset()


class ObservedPod(Struct, frozen=True):
    """One pod of the job, as policies see it."""

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
    """When its grace period ends, if it is terminating."""
    created: datetime | None = None
    node: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    """Of the first container with an exit code other than 0, otherwise of the first that ended."""
    container: str = ""
    out_of_memory: bool = False
    """That container was OOM-killed."""
    first_exit_code: int | None = None
    """Of the first ended container, in the order of the spec."""
    first_terminated: Terminated | None = None
    """How that container ended."""
    container_restarts: int = 0
    last_exit_code: int | None = None
    """Exit code of the container that the kubelet restarted last."""
    last_out_of_memory: bool = False
    over_limit: bool = False
    """Evicted because it exceeded its own storage limits, which counts as its failure."""
    disrupted: bool = False
    """Ended by the cluster (eviction, preemption, node shutdown), not by its program."""
    disruption_reason: str = ""
    """Reason of its condition DisruptionTarget."""
    preempted_at: datetime | None = None
    """When a scheduler preempted it."""
    waits_for_dependency: bool = False
    """Its init container still waits for other roles."""
    waiting_reason: str = ""
    """Why a container cannot start (ImagePullBackOff …), or why the pod has no node (Unschedulable)."""
    waiting_message: str = ""
    deletion_cost: int = 0
    """The annotation `controller.kubernetes.io/pod-deletion-cost`: pods with lower costs are removed
    first."""
    hosts_ack: str = ""
    """The annotation `argosy.dev/hosts-ack`: etag of the host files that the pod has written."""
    saved: SavedCheckpoint | None = None
    """The annotation `argosy.dev/checkpoint-ack`: the last checkpoint that the pod has acknowledged."""
    resumed_step: int | None = None
    """The annotation `argosy.dev/checkpoint-resumed`: step of the checkpoint that it has started from."""
    training_step: int | None = None
    """The annotation `argosy.dev/training-step`: the step that its program has reported last."""
    metadata: MetadataSubset = NO_METADATA
    resource_version: str = ""
    """resourceVersion of this observation."""

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


class ObservedGroup(Struct, frozen=True):
    """State of a gang, as its scheduler reports it."""

    scheduler: str = "volcano"
    queued: bool = False
    """Waits for admission."""
    scheduled: bool = False
    evicted: bool = False
    reason: str = ""
    message: str = ""
    uid: str = ""
    metadata: MetadataSubset = NO_METADATA


class RecentLoss(Struct, frozen=True):
    """Consecutive losses of one replica's pods, for whatever reason."""

    count: int
    seconds_ago: float
    """Seconds since the last of them."""


class Observed(Struct, frozen=True, dict=True):
    """Everything that a reconcile decides on."""

    pods: tuple[ObservedPod, ...] = ()
    nodes_down: frozenset[str] = frozenset()
    """Nodes with pods of this job whose condition Ready is Unknown, or that are confirmed to be deleted."""
    nodes_partly_unknown: frozenset[str] = frozenset()
    """Nodes with pods of this job of which any condition is Unknown."""
    nodes_released: frozenset[str] = frozenset()
    """Nodes that are down and certainly run no pods: confirmed to be deleted, or tainted by an administrator
    with `node.kubernetes.io/out-of-service`."""
    nodes_unconfirmed: Mapping[str, str] = field(default_factory=dict)
    """Nodes whose state is being requested from the API server, since caches are no proof; nothing is
    concluded about their pods. The value is the error of the request; empty: none to show yet."""
    children: tuple[KubernetesObject, ...] = ()
    """Services, service accounts, roles, role bindings, pod groups and other watched children of the job that
    are not being deleted."""
    group: ObservedGroup | None = None
    gang_scheduler_setting: str = "volcano"
    """The configured gang scheduler: a name, `auto` or `none`."""
    available_gang_schedulers: frozenset[str] = frozenset({"volcano"})
    """Those gang schedulers that the setting allows and the cluster serves."""
    priced_nodes: tuple[PricedNode, ...] = ()
    """The nodes with pods of the job whose price is known."""
    capacity: Capacity | None = None
    """Free capacity of the cluster; only for gangs of the built-in gang scheduler."""
    confirmed_absent: frozenset[tuple[str, int]] = frozenset()
    """Replicas (role, index) whose pod does not exist according to the API server itself (see
    `ConfirmPod`)."""
    recently_deleted: tuple[ObservedPod, ...] = ()
    """The last state of pods whose deletion was observed and that are not replaced yet. If this is lost, the
    cause of the deletion is not reported."""
    recent_losses: Mapping[tuple[str, int], RecentLoss] = field(default_factory=dict)
    """By (role, index), for replicas that lost more than one pod in a row. It is lost if the operator
    restarts; then one more pod is created without a delay."""
    dump_nodes: Mapping[str, str] = field(default_factory=dict)
    """Nodes with pods of this job whose label says that processes can be saved there, and of which users:
    `root`, or empty for all. Only for jobs that choose by it."""
    can_restore: bool = False
    """A node that takes pods, and is not about to end, can restore processes. Only for the same jobs."""
    notices: tuple[Notice, ...] = ()
    """Announced ends of nodes and pods, of nodes without pods of the job only if its Record has the notice.
    """
    exec_results: Mapping[str, ExecResult] = field(default_factory=dict)
    """Answers to `Exec`s of earlier plans, by key, until a plan leaves the key out."""
    scale_requests: tuple[ScaleRequest, ...] = ()
    """Objects that ask for the job to be scaled, have not finished and are not being deleted."""
    in_burst: bool = False
    """Many jobs of the namespace change at the same time: everything takes longer."""
    failed_actions: tuple[ActionResult, ...] = ()
    """Actions of earlier reconciles that were not executed and still block the job."""

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
        """Pods by (role, index); almost always one each."""
        replicas: dict[tuple[str, int], tuple[ObservedPod, ...]] = {}
        for pod in self.pods:
            replica = (pod.role, pod.index)
            replicas[replica] = (*replicas.get(replica, ()), pod)
        return replicas

    @cached_property
    def by_role(self) -> Mapping[str, tuple[ObservedPod, ...]]:
        roles: dict[str, list[ObservedPod]] = {}
        for pod in self.pods:
            roles.setdefault(pod.role, []).append(pod)
        return {name: tuple(pods) for name, pods in roles.items()}


def observe_pod(pod: Pod, keys: Sequence[str] = (), noticed: datetime | None = None) -> ObservedPod | None:
    """Return the pod with the labels and annotations of these keys; None if its labels name no replica.

    `noticed` is the time of a preemption for which the scheduler reports no time.
    """
    meta, status = pod.metadata, pod.status
    replica = _replica_labels(meta.labels)
    if replica is None:
        return None
    name, ended = _exit(status.container_statuses) or _exit(status.init_container_statuses) or ("", None)
    first, last = _first_ended(status.container_statuses), _last_exit(status.container_statuses)
    disruption, over_limit = _disruption(pod), _is_over_limit(status)
    (waiting, waiting_message), preempted = _waiting_reason(pod), _preemption_time(pod, noticed)
    return ObservedPod(
        meta.name,
        meta.uid,
        *replica,
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
        container_restarts=sum(container.restart_count for container in status.container_statuses),
        last_exit_code=last.exit_code if last else None,
        last_out_of_memory=last is not None and last.reason == _OUT_OF_MEMORY,
        over_limit=over_limit,
        disrupted=disruption is not None
        or preempted is not None
        or (status.phase == "Failed" and status.reason in _DISRUPTED and not over_limit),
        disruption_reason=disruption.reason if disruption else "",
        preempted_at=preempted,
        waits_for_dependency=status.phase == "Pending"
        and _waits_for_dependency(status.init_container_statuses),
        waiting_reason=waiting,
        waiting_message=waiting_message,
        deletion_cost=_deletion_cost(meta.annotations),
        hosts_ack=meta.annotations.get(labels.HOSTS_ACK, ""),
        saved=read_ack(meta.annotations.get(labels.CHECKPOINT_ACK, "")),
        resumed_step=read_resumed(meta.annotations.get(labels.CHECKPOINT_RESUMED, "")),
        training_step=read_step(meta.annotations.get(labels.TRAINING_STEP, "")),
        metadata=select_metadata(meta.labels, meta.annotations, keys),
        resource_version=meta.resource_version,
    )


def _replica_labels(values: Mapping[str, str]) -> tuple[str, int, int, int] | None:
    """Return role, index, attempt and replacement; None if a label is missing or not a number."""
    try:
        return (
            values[labels.ROLE],
            int(values[labels.INDEX]),
            int(values[labels.ATTEMPT]),
            int(values[labels.REPLACEMENT]),
        )
    except (KeyError, ValueError):
        return None


def select_metadata(
    labels: Mapping[str, str], annotations: Mapping[str, str], keys: Sequence[str]
) -> MetadataSubset:
    subset = MetadataSubset(
        {key: labels[key] for key in keys if key in labels},
        {key: annotations[key] for key in keys if key in annotations},
    )
    return subset if subset.labels or subset.annotations else NO_METADATA


def is_equivalent_pod(pod: ObservedPod, other: ObservedPod) -> bool:
    """Return True if nothing is decided differently for both.

    A newly assigned node alone changes nothing, nor does the step of a pod that continues to train.
    """
    ends = other.terminating or other.ended
    return (
        replace(
            pod,
            node=other.node,
            resource_version=other.resource_version,
            training_step=pod.training_step if ends else other.training_step,
        )
        == other
    )


_DISRUPTED = frozenset(
    {"Evicted", "Preempting", "NodeLost", "NodeShutdown", "Terminated", "Shutdown", "NodeAffinity"}
)

_OVER_LIMIT = (
    re.compile(r"Usage of EmptyDir volume .* exceeds the limit "),
    re.compile(r"Container .* exceeded its local ephemeral storage limit "),
    re.compile(r"Pod ephemeral local storage usage exceeds the total limit of containers "),
)
"""Start of the kubelet's message when it evicts a pod that exceeded its own limits (pkg/kubelet/eviction). If
the node lacks a resource, the message starts with "The node was low on resource"."""

_OUT_OF_MEMORY = "OOMKilled"

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,9})")

_SAME_WAIT = {"ErrImagePull": "ImagePullBackOff"}
"""The kubelet alternates between these two; in a status they are the same."""


_TARGETS = ("DisruptionTarget", "TerminationTarget")
_PREEMPTED = {
    ("Ready", "False"): ("Preempted", "Evict"),
    ("DisruptionTarget", "True"): ("PreemptionByScheduler",),
}
"""Conditions (type, status) and reasons with which Volcano and Kubernetes mark a preempted pod."""


def _deletion_cost(annotations: Mapping[str, str]) -> int:
    """Return the cost; 0 if there is none or, as in Kubernetes, if it is no 32-bit integer."""
    text = annotations.get(labels.POD_DELETION_COST, "")
    if not _INTEGER.fullmatch(text):
        return 0
    cost = int(text)
    return cost if -(2**31) <= cost < 2**31 else 0


def _disruption(pod: Pod) -> Condition | None:
    """Return the condition with which Kubernetes or Kueue marks a disrupted pod."""
    disruptions = (
        condition
        for condition in pod.status.conditions
        if condition.type in _TARGETS and condition.status == "True"
    )
    return next(disruptions, None)


def _is_over_limit(status: PodStatus) -> bool:
    if status.phase != "Failed" or status.reason != "Evicted":
        return False
    return any(pattern.match(status.message) for pattern in _OVER_LIMIT)


def _preemption_time(pod: Pod, noticed: datetime | None) -> datetime | None:
    preemptions = (
        condition
        for condition in pod.status.conditions
        if condition.reason in _PREEMPTED.get((condition.type, condition.status), ())
    )
    return next((condition.last_transition_time or noticed for condition in preemptions), None)


def _exit(statuses: list[ContainerStatus]) -> tuple[str, Terminated] | None:
    ended = [(status.name, status.state.terminated) for status in statuses if status.state.terminated]
    failed = ((name, terminated) for name, terminated in ended if terminated.exit_code != 0)
    return next(failed, ended[0] if ended else None)


def _last_exit(statuses: list[ContainerStatus]) -> Terminated | None:
    """Return how the container ended that the kubelet restarted last."""
    ended = [status.last_state.terminated for status in statuses if status.last_state.terminated]
    return max(ended, key=lambda end: end.finished_at.timestamp() if end.finished_at else 0.0, default=None)


def _first_ended(statuses: list[ContainerStatus]) -> Terminated | None:
    return next((status.state.terminated for status in statuses if status.state.terminated), None)


def _waits_for_dependency(statuses: list[ContainerStatus]) -> bool:
    names = (labels.HELPER_CONTAINER, labels.INITIALIZER_CONTAINER)
    helpers = (status for status in statuses if status.name in names)
    return any(helper.state.terminated is None and not helper.ready for helper in helpers)


def _waiting_reason(pod: Pod) -> tuple[str, str]:
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = container.state.waiting
        if waiting and waiting.reason not in ("", "PodInitializing", "ContainerCreating"):
            return _SAME_WAIT.get(waiting.reason, waiting.reason), waiting.message
    if pod.status.phase in ("", "Pending") and not pod.spec.node_name:
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                return condition.reason or "Unschedulable", condition.message
    return "", ""
