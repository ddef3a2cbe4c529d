"""Builds the messages that users read in statuses and events; `reasons` has the words that come with them.

Each function says when its message is used. Messages that list numbers of pods change often and are in
`wait_reasons.progress`; validation errors are built where they are found.
"""

from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime

from argosy.kinds.crd_options import APPLY_CRDS_COMMAND
from argosy.kinds.quantity import format_duration
from argosy.kinds.text import join_names, pluralize
from argosy.workload.announcements import NoticeCause
from argosy.workload.index_set import IndexSet
from argosy.workload.model import RestartScope
from argosy.workload.notice import NoticeResponse, OpenNotice, SaveStep
from argosy.workload.observed import ObservedPod
from argosy.workload.record import RestartEntry
from argosy.workload.restarts.causes import CONTAINER, RestartCause, restart_entry, signal_name

Replicas = Mapping[str, IndexSet]
"""Indexes by role."""

_NEVER = datetime.min.replace(tzinfo=UTC)

_VERBS: Mapping[str, str] = {
    RestartCause.NON_ZERO_EXIT: "failed",
    RestartCause.SIGNAL: "was killed",
    RestartCause.OOM_KILLED: "ran out of memory",
    RestartCause.FAILED: "failed",
    RestartCause.COMPLETED: "completed",
    RestartCause.EVICTED: "was evicted",
    RestartCause.PREEMPTED: "was preempted",
    RestartCause.DISRUPTED: "was removed by the cluster",
    RestartCause.DELETED: "was deleted",
    RestartCause.NODE_LOST: "was on an unreachable node",
}
_WITH_EXIT_CODE: Set[str] = frozenset(
    {
        RestartCause.NON_ZERO_EXIT,
        RestartCause.SIGNAL,
        RestartCause.OOM_KILLED,
        RestartCause.FAILED,
        RestartCause.COMPLETED,
    }
)


def replica_name(role: str, index: int) -> str:
    return f"{role}-{index}"


def describe_end(pod: ObservedPod, down: Set[str] = frozenset()) -> str:
    """Return how a pod ended: `worker-2 was killed (SIGKILL, exit 137) on node-3`."""
    return describe_restart(restart_entry(pod, _NEVER, down=down))


def describe_restart(entry: RestartEntry) -> str:
    """Return what was lost, how and where: `worker-0 was evicted from node-1: low memory`."""
    cause, node = entry.cause, entry.node
    subject = replica_name(entry.role, entry.index)
    if cause == RestartCause.BELOW_MIN_REPLICAS:
        return f"{entry.role} had too few running pods for too long"
    if entry.scope == CONTAINER:
        subject = f"a container of {subject}"
    if cause == RestartCause.NODE_LOST and node:
        return f"{subject} is on {node}, which is unreachable"
    verb = _VERBS.get(cause, f"was lost ({cause})")
    where = f" {'from' if cause == RestartCause.EVICTED else 'on'} {node}" if node else ""
    if cause in _WITH_EXIT_CODE:
        return f"{subject} {verb} ({_exit(entry)}){where}"
    return f"{subject} {verb}{where}{f': {entry.detail}' if entry.detail else ''}"


def _exit(entry: RestartEntry) -> str:
    if entry.exit_code is None:
        return entry.detail or "no exit code"
    signal = signal_name(entry.exit_code) if entry.cause == RestartCause.SIGNAL else ""
    return f"{signal}, exit {entry.exit_code}" if signal else f"exit {entry.exit_code}"


# A job waits.


def waiting_for_capacity(pods: int) -> str:
    """The builtin gang scheduler has not admitted the gang (Queued)."""
    return f"waiting for capacity: {pluralize(pods, 'pod')} must fit on ready nodes at the same time"


def waiting_for_admission(queue: str) -> str:
    """The gang is in a queue of its scheduler (Queued)."""
    return f"waiting for admission to queue {queue}"


WAITING_FOR_POD_GROUP = "waiting for the pod group to be recreated with the edited spec"
"""The pod group is immutable and its job was edited before it started (Queued)."""

GANG_SCHEDULING_DISABLED = (
    "gang scheduling is disabled in this installation; set the chart value operator.gang.backend, or remove"
    " spec.gang"
)
"""A gang in an installation without a gang scheduler (GangSchedulerMissing)."""


def gang_scheduler_missing(crd: str, hint: str, builtin: str) -> str:
    """The gang scheduler of the job is not installed (GangSchedulerMissing)."""
    return (
        f"the cluster does not serve {crd}, which gang scheduling needs: {hint}, or set the chart value"
        f" operator.gang.backend to another scheduler ({builtin} needs none)"
    )


def held_after_preemption(pod: str) -> str:
    """A pod of a gang was preempted less than a minute ago (Preempted)."""
    return f"{pod} was preempted; waiting to see whether the whole gang is preempted"


def backing_off(until: datetime) -> str:
    """A pod failed repeatedly (BackOff)."""
    return f"backing off until {until:%H:%M:%S} UTC"


def waiting_for_minimum(role: str, pods: int) -> str:
    """An elastic role has too few running pods (BelowMinReplicas)."""
    return f"waiting for {role}: at least {pluralize(pods, 'pod')} must be running"


def waiting_for_replicas(role: str, size: int, replicas: int) -> str:
    """An elastic role runs with fewer pods than it shall have (BelowReplicas)."""
    return f"{role} runs with {size} of {pluralize(replicas, 'pod')}, and grows when there is capacity"


def waiting_for_role(waiting: str, role: str, phase: str) -> str:
    """All pods that are not running wait for another role (WaitingForRole)."""
    return f"{waiting} is waiting for {role} to be {phase}"


def waiting_for_termination(pods: Sequence[str]) -> str:
    """Old pods must be deleted before new ones are created (PodsTerminating)."""
    return f"waiting for {join_names(pods)} to terminate"


def waiting_for_node(pods: Sequence[str], node: str, taint: str) -> str:
    """Old pods are on a node that is unreachable and may still run them (NodeUnreachable)."""
    return (
        f"{waiting_for_termination(pods)} on {node}, which is unreachable; if the node is certainly off, run:"
        f" kubectl taint nodes {node} {taint}=nodeshutdown:NoExecute"
    )


def unconfirmed_nodes(nodes: Sequence[str], error: str) -> str:
    """The API server does not say whether nodes exist (NodeUnconfirmed)."""
    return f"cannot confirm the state of {join_names(nodes)} ({error}); the pods there are kept"


SUSPENDED = "suspended by spec.suspend"
"""The job is suspended (Suspended)."""
WAITING_FOR_RESUME = "waiting until spec.suspend is false"
"""The job is suspended, as a wait reason (Suspended)."""
RESUMED = "resumed by spec.suspend"
"""The job is no longer suspended (Resumed)."""


def suspending(pods: int) -> str:
    """The job is being suspended (event Suspended)."""
    return f"{SUSPENDED}; deleting {pluralize(pods, 'pod')}" if pods else SUSPENDED


def resized(sizes: Sequence[tuple[str, int, int]], attempt: int | None) -> str:
    """Roles have new sizes (event Resized), for which a new attempt starts if the framework needs it."""
    changes = join_names([f"{role} from {old} to {new} pods" for role, old, new in sizes])
    restart = f"; starting attempt {attempt} with the new size" if attempt else ""
    return f"resized {changes}{restart}"


_ENDS: Mapping[str, str] = {
    NoticeCause.OUT_OF_SERVICE: "is out of service",
    NoticeCause.PREEMPTED: "is being preempted",
    NoticeCause.SHUTDOWN: "is shutting down",
    NoticeCause.EVICTED: "is being evicted",
    NoticeCause.MAINTENANCE: "is going into maintenance",
    NoticeCause.DRAINED: "is being drained",
    NoticeCause.CANDIDATE: "may be removed",
}


def announced_end(what: str, cause: str, source: str) -> str:
    """What was announced: `node-3 is being preempted (spot-itn)`."""
    return f"{what} {_ENDS.get(cause, f'will end ({cause})')}{f' ({source})' if source else ''}"


def open_notice(notice: OpenNotice) -> str:
    """The same with its deadline, unless it is a hint."""
    what = notice.node
    if notice.pod:
        names = join_names(noticed_replicas(notice))
        what = f"{names} on {notice.node}" if notice.node else names
    end = announced_end(what, notice.cause, notice.source)
    return end if notice.response == NoticeResponse.NONE else f"{end} by {notice.deadline:%H:%M:%S} UTC"


def notice(answered: OpenNotice, leaving: Replicas, added: Replicas) -> str:
    """The end of a node or pod was announced, and the job has answered it (event DisruptionNotice)."""
    affected = {role: IndexSet.decode(indexes) for role, indexes in answered.replicas.items()}
    end = open_notice(answered)
    if answered.response == NoticeResponse.NONE:
        return f"{end}, with {join_names(noticed_replicas(answered))} on it"
    parts = [end]
    if leaving:
        created = f", creating {names}" if (names := join_names(_names(added))) else ""
        parts.append(f"removing {join_names(_names(leaving))}{created}")
    left = {role: indexes for role, indexes in affected.items() if role not in leaving}
    if answered.step == SaveStep.SAVING:
        parts.append(f"saving a checkpoint before {join_names(_names(affected))} is replaced")
    elif left and answered.step == SaveStep.SIGNALLED:
        parts.append(f"sending SIGTERM to {join_names(_names(left))} before it is replaced")
    elif left:
        parts.append(f"{join_names(_names(left))} will be replaced when lost")
    return "; ".join(parts)


def noticed_replicas(notice: OpenNotice) -> list[str]:
    """The names of the replicas that a notice concerns."""
    return _names({role: IndexSet.decode(indexes) for role, indexes in notice.replicas.items()})


def _names(replicas: Replicas) -> list[str]:
    return [replica_name(role, index) for role, indexes in replicas.items() for index in indexes]


def fixed_size(framework: str, role: str) -> str:
    """An elastic role lacks pods, and its framework needs all of them (part of the progress)."""
    return f"{framework} cannot run with fewer pods of {role}; set replicas to a number that fits"


CAPACITY_RETURNED = "there is capacity for more"
"""Why an elastic role has grown (event Resized)."""


def members_missing(replicas: Sequence[str], *, unplaced: bool) -> str:
    """Why an elastic role has shrunk (event Resized)."""
    were = "was" if len(replicas) == 1 else "were"
    return f"{join_names(replicas)} {'cannot be scheduled' if unplaced else f'{were} lost'}"


def incompatible_crd(crd: str, problem: str) -> str:
    """The CRD has no status subresource (StatusUpdateFailed), or drops the Record (IncompatibleCRD)."""
    return (
        f"the CustomResourceDefinition {crd} {problem}, so nothing can be done safely; upgrade it:"
        f" {APPLY_CRDS_COMMAND}"
    )


def unsupported_record(problem: str) -> str:
    """A later version of the operator wrote the Record (UnsupportedRecordVersion)."""
    return (
        f"status.argosy was written by a later version of the operator and cannot be read ({problem});"
        " upgrade this operator"
    )


def feature_disabled(feature: str, value: str) -> str:
    """A job needs a feature that the installation does not have (PodForbidden and the like)."""
    return (
        f"{feature} are disabled in this installation; an administrator can enable them with the chart value"
        f" features.{value}=true"
    )


def restarting(
    entry: RestartEntry, scope: RestartScope, lost: int, next_attempt: int, container_restarts: int
) -> str:
    """Pods are being replaced because of this loss and others at the same time (Restarting)."""
    others = f" (and {pluralize(lost - 1, 'other pod')})" if lost > 1 else ""
    action = {
        RestartScope.POD: "replacing it" if lost == 1 else "replacing them",
        RestartScope.ROLE: f"restarting all pods of {entry.role}",
        RestartScope.JOB: f"starting attempt {next_attempt}",
    }[scope]
    after = f" after {pluralize(container_restarts, 'container restart')}" if container_restarts else ""
    return f"{describe_restart(entry)}{others}; {action}{after}"


def restarts_used(used: int, limit: int | None) -> str:
    """Follows the message of a restart that counts (Restarting)."""
    return f"{used} of {limit} restarts used" if limit is not None else f"{used} restarts used"


# A job, or one of its roles, has failed.


def too_many_restarts(last: RestartEntry | None, needed: int, limit: int) -> str:
    """Container restarts or failed pods that are kept exceed the limit (RestartsExhausted)."""
    cause = f"{describe_restart(last)}; " if last else ""
    return f"{cause}restart limit exceeded: {needed} needed, {limit} allowed (limits.restarts)"


def budget_exhausted(role: str, limit: int) -> str:
    """Lost pods of a role are not replaced any more (ReplacementLimitReached)."""
    times = pluralize(limit, "time")
    return f"pods of role {role} were replaced {times} in a row; lost pods are not replaced any more"


NO_HOST_LEFT = "no other replica was in the host list in time"
REPLICAS_CHANGED = "the number of replicas was changed"
SCALER_DELETED = "the object that asked for it was deleted"
JOB_FINISHED_WHILE_SCALING = "job finished"
JOB_RESTARTED_WHILE_SCALING = "job restarted"
JOB_SUSPENDED_WHILE_SCALING = "job suspended"


def host_list_not_written(launcher: str, count: int) -> str:
    """Neither the sidecar nor a command has written the files of the launcher."""
    hosts = pluralize(count, "host")
    return f"the list of {hosts} was not written into pod {launcher} in time; trying again"


def scale_retried(problem: str, seconds: float) -> str:
    """The declared number of replicas could not be reached (message of the operation)."""
    return f"{problem}; tried again in {seconds:g} s"


def scale_out_timeout(waiting: Sequence[str]) -> str:
    """New pods did not all run in time, or could not be attached."""
    return f"execution timeout: {join_names(waiting, 10)} not running"


def script_failed(path: str, problem: str) -> str:
    """A script that updates the hosts failed in the launcher."""
    return f"script {path} failed: {problem}"


def no_restarts_left(entry: RestartEntry, limit: int, *, used: int, needed: int) -> str:
    """A lost pod needs more restarts than the limit leaves (RestartsExhausted)."""
    if not limit:
        return f"{describe_restart(entry)}; no restarts are allowed (limits.restarts is 0)"
    counts = f"{used} of {pluralize(limit, 'restart')} used, {needed} more needed"
    return f"{describe_restart(entry)}; restart limit reached: {counts} (limits.restarts)"


GANG_EVICTED = "the scheduler evicted the pod group"
"""The whole gang was evicted (Preempted)."""


def gang_timeout(pods: int, seconds: float) -> str:
    """The gang was not scheduled in time (GangTimeout)."""
    limit = f"{format_duration(seconds)} (gang.timeout)"
    return f"{pluralize(pods, 'pod')} could not be scheduled together within {limit}"


def below_minimum(role: str, pods: int, seconds: float) -> str:
    """An elastic role had too few running pods for too long (BelowMinReplicas)."""
    limit = f"{format_duration(seconds)} (limits.belowMinTimeout)"
    return f"{role} had fewer than {pods} running pods for {limit}"


def deadline_exceeded(seconds: float) -> str:
    """The job was active for too long (DeadlineExceeded)."""
    return f"still active after {format_duration(seconds)} (limits.activeDeadline)"


def start_timeout(seconds: float) -> str:
    """Not all roles were running in time (StartTimeout)."""
    return f"not all roles were running after {format_duration(seconds)} (limits.startTimeout)"


def missing_pods(pods: Sequence[str], *, preempted: bool) -> str:
    """Pods of a role without restarts do not exist any more (PodMissing, Preempted)."""
    was, is_ = ("were", "are") if len(pods) > 1 else ("was", "is")
    return f"{join_names(pods)} {was} {'preempted' if preempted else 'deleted'} and {is_} not replaced"


# Why an object is deleted, in events of the deletion.

JOB_FINISHED = "the job has finished"
JOB_SUSPENDED = "the job is suspended"
SPEC_INVALID = "the spec is invalid"
SCALED_DOWN = "the role was scaled down"
REPLACED = "the pod is being replaced"
DUPLICATE = "another pod has the same index"


def new_attempt(attempt: int, old: int) -> str:
    """A pod of an earlier attempt is deleted."""
    return f"attempt {attempt} replaces attempt {old}"


def force_deleted(node: str, *, out_of_service: bool) -> str:
    """A terminating pod on a node that is down is force-deleted."""
    return (
        f"{node} is out of service" if out_of_service else f"{node} is unreachable (limits.forceDeleteAfter)"
    )


def ttl_expired(phase: str) -> str:
    """A finished job is deleted."""
    return f"its time to live after it {phase.lower()} has expired"
