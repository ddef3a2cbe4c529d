"""Plans which pods to delete and which to create so that they match the Record.

Invariant: a replica never has two pods that are not terminating. A pod with an old replacement number is
stale: it is deleted here, and its successor is created by a later reconcile, once the old pod is gone or,
with `semantics.surge`, while it still terminates. If all pods of a replica have the same name, the API
server enforces the invariant too.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import messages
from argosy.workload.clock_skew import deadline
from argosy.workload.current_pods import is_current, stale_pods
from argosy.workload.dependencies import is_creation_held
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.launchers import is_launcher_held
from argosy.workload.model import Limits, Phase, RestartPolicy, RestartScope, Role, Workload
from argosy.workload.notice_response import deletion_grace
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import Action, ConfirmPod, CreatePod, DeletePod
from argosy.workload.record import Record
from argosy.workload.scale_request import hidden_indexes

RELEASED_NODE_GRACE_SECONDS = 30.0
"""Seconds after its grace period when a pod on a node that is out of service is force-deleted; until then
Kubernetes may do it."""


LOSS_DELAY_SECONDS = 1.0
"""Delay before the second consecutive replacement of a lost pod, whatever the cause. The first replacement is
immediate; the delay doubles with each later one."""
MAX_LOSS_DELAY_SECONDS = 60.0


class PodCreation(Struct, frozen=True):
    """Pods to create, pods to confirm first, and what delays creation."""

    create: tuple[CreatePod, ...] = ()
    confirm: tuple[ConfirmPod, ...] = ()
    blocked_by: tuple[str, ...] = ()
    """Names of old pods that must terminate first."""
    retry_at: datetime | None = None


def stale_deletions(
    workload: Workload, record: Record, observed: Observed, now: datetime
) -> Iterator[DeletePod]:
    """Delete pods of earlier attempts, replaced pods, pods beyond the size of their role, and all but the
    oldest pod of a replica."""
    for pod in stale_pods(record, observed):
        if not pod.terminating:
            grace = deletion_grace(workload, record, pod, now)
            yield DeletePod(pod.name, pod.uid, grace, reason=_deletion_reason(record, pod))
    for pods in observed.by_replica.values():
        if len(pods) > 1:
            duplicates = [pod for pod in pods if is_current(record, pod) and not pod.terminating]
            for pod in sorted(duplicates, key=_age)[1:]:
                yield DeletePod(pod.name, pod.uid, reason=messages.DUPLICATE)


def forced_deletions(
    limits: Limits, observed: Observed, now: datetime
) -> tuple[list[DeletePod], datetime | None]:
    """Return force deletions of terminating pods on nodes that are down, and when the next one is due.

    An unreachable node may still run its pods, and a second pod of a rank could write to the same checkpoint.
    So its pods are only force-deleted if the user allows it (limits.forceDeleteAfter).
    """
    forced: list[DeletePod] = []
    times: list[datetime] = []
    for pod in observed.pods:
        if not (pod.terminating and pod.node in observed.nodes_down):
            continue
        released = pod.node in observed.nodes_released
        wait = RELEASED_NODE_GRACE_SECONDS if released else limits.force_delete_after
        if wait is None:
            continue
        due = deadline(pod.deletion_time or now, wait)
        if due is None:
            continue
        if now >= due:
            reason = messages.force_deleted(pod.node, out_of_service=released)
            forced.append(DeletePod(pod.name, pod.uid, grace_period_seconds=0, reason=reason))
        else:
            times.append(due)
    return forced, min(times, default=None)


def plan_creation(workload: Workload, record: Record, observed: Observed, now: datetime) -> PodCreation:
    """Return the pods to create now, and what delays the others."""
    if record.retry_at and now < record.retry_at:
        return PodCreation(retry_at=record.retry_at)
    blocked = stale_pods(record, observed)
    whole_job = record.attempt_started_at is None or any(
        workload.restart_scope(role) is RestartScope.JOB for role in workload.roles.values()
    )
    if whole_job and any(pod.attempt != record.attempt for pod in blocked):
        return PodCreation(blocked_by=tuple(pod.name for pod in blocked))
    if record.attempt_started_at is None and (held_until := _all_held_until(observed, now)):
        return PodCreation(retry_at=held_until)
    create: list[CreatePod] = []
    confirm: list[ConfirmPod] = []
    terminating: list[str] = []
    retries: list[datetime] = []
    hidden = hidden_indexes(record.operation, observed.scale_requests)
    for role in workload.roles.values():
        if is_creation_held(role, record) or is_launcher_held(workload, record, observed, role.name):
            continue
        old = [pod for pod in blocked if pod.role == role.name]
        if old and _starts_as_a_whole(workload, role, record):
            terminating += [pod.name for pod in old]
            continue
        for index in _unfinished_indexes(role, record, hidden):
            existing = observed.by_replica.get((role.name, index), ())
            if not blocked and len(existing) == 1 and not existing[0].terminating:
                continue  # the usual case, checked first
            if existing and not (workload.allows_surge(role) and all(pod.terminating for pod in existing)):
                blocking = [pod for pod in existing if pod.terminating or not is_current(record, pod)]
                terminating += [pod.name for pod in blocking]
            elif _in_backoff(role, index, record, now):
                retries += [time for time in (record.role(role.name).retry_at,) if time]
            elif held_until := _held_until(observed, (role.name, index), now):
                retries.append(held_until)
            elif _needs_confirmation(workload, role, index, record):
                confirm.append(ConfirmPod(role.name, index, *_version(record, role.name, index)))
            else:
                added_by = record.added_by(role.name, index)
                create.append(CreatePod(role.name, index, *_version(record, role.name, index), added_by))
    if workload.gang and record.attempt_started_at is None and terminating:
        create = []
    return PodCreation(tuple(create), tuple(confirm), tuple(terminating), min(retries, default=None))


def _starts_as_a_whole(workload: Workload, role: Role, record: Record) -> bool:
    """Return True if no pod of the role is created before all old ones are gone."""
    last = record.role(role.name)
    if workload.restart_scope(role) is RestartScope.ROLE or last.role_restarts_in_a_row:
        return True
    # The role may have been restarted with its coordinator, whose old peers must not meet the new one.
    return role.name in workload.rules.coordinators and last.phase in (Phase.PENDING, Phase.STARTING)


def confirmations_before_success(
    workload: Workload, record: Record, observed: Observed
) -> tuple[ConfirmPod, ...]:
    """Return the pods to confirm before a job that restarts as a whole counts as succeeded.

    A program may exit with 0 because it lost a peer: mpirun of Open MPI 5 does so if a worker's pod is
    force-deleted. The pod was deleted before that exit, so a GET after it shows the loss.
    """
    return tuple(
        ConfirmPod(role.name, index, *_version(record, role.name, index))
        for role in workload.roles.values()
        if workload.restart_scope(role) is RestartScope.JOB and role.restart is not RestartPolicy.NEVER
        for index in _unfinished_indexes(role, record)
        if (role.name, index) not in observed.by_replica
        and _needs_confirmation(workload, role, index, record)
    )


def with_planned_pods(observed: Observed, actions: Iterable[Action]) -> Observed:
    """Return the state after the pods of a plan are created, so that one status write covers both.

    After a failed action nothing is assumed, and the status shows existing pods only.
    """
    if observed.failed_actions:
        return observed
    planned = tuple(
        ObservedPod("", "", action.role, action.index, action.attempt, action.replacement)
        for action in actions
        if isinstance(action, CreatePod)
    )
    return replace(observed, pods=observed.pods + planned) if planned else observed


def loss_delay(count: int) -> float:
    """Return the seconds after that many consecutive losses until the pod is replaced."""
    if count <= 1:
        return 0.0
    return min(MAX_LOSS_DELAY_SECONDS, LOSS_DELAY_SECONDS * 2.0 ** min(count - 2, 30))


def _held_until(observed: Observed, replica: tuple[str, int], now: datetime) -> datetime | None:
    """Return when the replica's pod may be created; None: now."""
    loss = observed.recent_losses.get(replica)
    left = loss_delay(loss.count) - loss.seconds_ago if loss else 0.0
    return now + timedelta(seconds=left) if left > 0 else None


def _all_held_until(observed: Observed, now: datetime) -> datetime | None:
    """Return when an attempt, whose pods are created together, may start; None: now."""
    times = (_held_until(observed, replica, now) for replica in observed.recent_losses)
    return max((time for time in times if time), default=None)


def _unfinished_indexes(role: Role, record: Record, hidden: IndexSet = EMPTY) -> Iterator[int]:
    last = record.role(role.name)
    if last.phase is Phase.SUCCEEDED:
        return
    yield from (
        index
        for index in last.wanted - last.retired - record.leaving(role.name) - (hidden & last.joining)
        if index not in last.succeeded_indexes and index not in last.lost_indexes
    )


def _needs_confirmation(workload: Workload, role: Role, index: int, record: Record) -> bool:
    """Return True if the pod existed and its loss has consequences, so that it must be confirmed by a GET."""
    last = record.role(role.name)
    if index not in last.created or index in last.joining or last.phase in (Phase.PENDING, Phase.STARTING):
        return False
    if role.replacement.refill_deleted:
        return False
    refilled = role.replacement.deleted and not role.replacement.next_index
    return (
        role.restart is RestartPolicy.NEVER
        or not refilled
        or workload.restart_scope(role, index) is not RestartScope.POD
    )


def _in_backoff(role: Role, index: int, record: Record, now: datetime) -> bool:
    last = record.role(role.name)
    if index in last.joining:
        return False
    again = last.replacements.get(index, 0) > 1 or last.role_restarts_in_a_row or role.replacement.next_index
    return bool(last.retry_at and now < last.retry_at and again)


def _version(record: Record, role: str, index: int) -> tuple[int, int]:
    return record.attempt, record.replacement(role, index)


def _age(pod: ObservedPod) -> tuple[bool, float, str]:
    """Sort the oldest pod first, and a pod without a creation time last."""
    return pod.created is None, pod.created.timestamp() if pod.created else 0.0, pod.uid


def _deletion_reason(record: Record, pod: ObservedPod) -> str:
    if pod.attempt != record.attempt:
        return messages.new_attempt(record.attempt, pod.attempt)
    if pod.index not in record.role(pod.role).wanted:
        return messages.SCALED_DOWN
    return messages.REPLACED
