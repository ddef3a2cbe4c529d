"""Plans which pods to delete and which to create so that they match the Record.

Invariant: a pod is created only for a replica without a pod; the old pod must be deleted, not merely
terminating. If all pods of a replica have the same name, the API server enforces this too. A pod with an old
replacement number is stale: it is deleted here, and its successor is created in a later pass.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.clock_skew import deadline
from argosy.workload.current_pods import is_current, stale_pods
from argosy.workload.model import Limits, Phase, RestartPolicy, RestartScope, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import Action, ConfirmPod, CreatePod, DeletePod
from argosy.workload.record import Record

RELEASED_NODE_GRACE_SECONDS = 30.0
"""Seconds after its grace period before a pod on a node that runs nothing any more is deleted by force; until
then it is left to Kubernetes."""


LOSS_DELAY_SECONDS = 1.0
"""Before the second replacement in a row of a pod, whatever took it; the first has no delay, later ones twice
as long each."""
MAX_LOSS_DELAY_SECONDS = 60.0


class PodCreation(Struct, frozen=True):
    """What to create, what to ask about, and what holds creation up."""

    create: tuple[CreatePod, ...] = ()
    confirm: tuple[ConfirmPod, ...] = ()
    blocked_by: tuple[str, ...] = ()
    """Names of old pods that must be gone first."""
    retry_at: datetime | None = None


def stale_deletions(record: Record, observed: Observed) -> Iterator[DeletePod]:
    """Deletes every pod that is of an older attempt, was replaced, is one too many, or is second in its
    place."""
    for pod in stale_pods(record, observed):
        if not pod.terminating:
            yield DeletePod(pod.name, pod.uid, reason=_reason(record, pod))
    for there in observed.by_replica.values():
        if len(there) > 1:
            rivals = [pod for pod in there if is_current(record, pod) and not pod.terminating]
            for pod in sorted(rivals, key=_age)[1:]:
                yield DeletePod(pod.name, pod.uid, reason="another pod has the same index")


def forced_deletions(
    limits: Limits, observed: Observed, now: datetime
) -> tuple[list[DeletePod], datetime | None]:
    """Deletes by force the pods that no node will confirm as gone; and when to look again.

    A node that merely does not answer may still run its pods, and a second pod of a rank may then write the
    same checkpoint. So its pods wait, unless the user has chosen otherwise.
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
            why = "is out of service" if released else "is unreachable (limits.forceDeleteAfter)"
            forced.append(DeletePod(pod.name, pod.uid, grace_period_seconds=0, reason=f"{pod.node} {why}"))
        else:
            times.append(due)
    return forced, min(times, default=None)


def plan_creation(workload: Workload, record: Record, observed: Observed, now: datetime) -> PodCreation:
    """What to create now."""
    if record.retry_at and now < record.retry_at:
        return PodCreation(retry_at=record.retry_at)
    blocked = stale_pods(record, observed)
    anew = workload.rules.restart_scope is RestartScope.JOB or record.attempt_started_at is None
    if anew and any(pod.attempt != record.attempt for pod in blocked):
        return PodCreation(blocked_by=tuple(pod.name for pod in blocked))
    if record.attempt_started_at is None and (held_until := _all_held_until(observed, now)):
        return PodCreation(retry_at=held_until)
    create: list[CreatePod] = []
    confirm: list[ConfirmPod] = []
    stopping: list[str] = []
    retries: list[datetime] = []
    for role in workload.roles.values():
        old = [pod for pod in blocked if pod.role == role.name]
        together = (
            workload.rules.restart_scope is RestartScope.ROLE or record.role(role.name).role_restarts_in_a_row
        )
        if together and old:
            stopping += [pod.name for pod in old]
            continue
        for index in _empty(role, record):
            there = observed.by_replica.get((role.name, index), ())
            if not blocked and len(there) == 1 and not there[0].terminating:
                continue  # as it is for most pods at most times
            if there and not (workload.allows_surge(role) and all(pod.terminating for pod in there)):
                stopping += [pod.name for pod in there if pod.terminating or not is_current(record, pod)]
            elif _delayed(role, index, record, now):
                retries += [time for time in (record.role(role.name).retry_at,) if time]
            elif held_until := _held_until(observed, (role.name, index), now):
                retries.append(held_until)
            elif _needs_confirmation(workload, role, index, record):
                confirm.append(ConfirmPod(role.name, index, *_version(record, role.name, index)))
            else:
                create.append(CreatePod(role.name, index, *_version(record, role.name, index)))
    if workload.gang and record.attempt_started_at is None and stopping:
        create = []
    return PodCreation(tuple(create), tuple(confirm), tuple(stopping), min(retries, default=None))


def unconfirmed_before_success(
    workload: Workload, record: Record, observed: Observed
) -> tuple[ConfirmPod, ...]:
    """Pods to ask about before a job that starts anew as a whole is believed to have succeeded.

    A program may end well because it lost a peer: mpirun of Open MPI 5 does when a worker's pod is deleted by
    force. Then the pod was gone before, so whoever sees the success can know of the loss.
    """
    if workload.rules.restart_scope is not RestartScope.JOB:
        return ()
    return tuple(
        ConfirmPod(role.name, index, *_version(record, role.name, index))
        for role in workload.roles.values()
        if role.restart is not RestartPolicy.NEVER
        for index in _empty(role, record)
        if (role.name, index) not in observed.by_replica
        and _needs_confirmation(workload, role, index, record)
    )


def with_planned_pods(observed: Observed, actions: Iterable[Action]) -> Observed:
    """The view as it will be once the pods of a plan are made: what is told before it is done then needs no
    second telling. After a refusal nothing is expected, but only what is there is told."""
    if observed.failed_actions:
        return observed
    asked = tuple(
        ObservedPod("", "", one.role, one.index, one.attempt, one.replacement)
        for one in actions
        if isinstance(one, CreatePod)
    )
    return replace(observed, pods=observed.pods + asked) if asked else observed


def loss_delay(count: int) -> float:
    """Seconds from the loss of that many pods in a row until the place is filled again."""
    if count <= 1:
        return 0.0
    return min(MAX_LOSS_DELAY_SECONDS, LOSS_DELAY_SECONDS * 2.0 ** min(count - 2, 30))


def _held_until(observed: Observed, place: tuple[str, int], now: datetime) -> datetime | None:
    """When the place may be filled, if not now."""
    loss = observed.recent_losses.get(place)
    left = loss_delay(loss.count) - loss.seconds_ago if loss else 0.0
    return now + timedelta(seconds=left) if left > 0 else None


def _all_held_until(observed: Observed, now: datetime) -> datetime | None:
    """When an attempt may begin, if not now: its pods are created together."""
    times = (_held_until(observed, place, now) for place in observed.recent_losses)
    return max((time for time in times if time), default=None)


def _empty(role: Role, record: Record) -> Iterator[int]:
    last = record.role(role.name)
    if last.phase is Phase.SUCCEEDED:
        return
    yield from (
        index
        for index in range(last.size)
        if index not in last.succeeded_indexes and index not in last.lost_indexes
    )


def _needs_confirmation(workload: Workload, role: Role, index: int, record: Record) -> bool:
    """A pod that was there and whose loss is more than a gap to fill must be known to be gone, not just
    unseen."""
    last = record.role(role.name)
    if index >= last.created_below or last.phase in (Phase.PENDING, Phase.STARTING):
        return False
    return role.restart is RestartPolicy.NEVER or workload.rules.restart_scope is not RestartScope.POD


def _delayed(role: Role, index: int, record: Record, now: datetime) -> bool:
    last = record.role(role.name)
    again = last.replacements.get(index, 0) > 1 or last.role_restarts_in_a_row
    return bool(last.retry_at and now < last.retry_at and again)


def _version(record: Record, role: str, index: int) -> tuple[int, int]:
    return record.attempt, record.replacement(role, index)


def _age(pod: ObservedPod) -> tuple[bool, float, str]:
    """The oldest pod of a place comes first; one whose time is not known comes last."""
    return pod.created is None, pod.created.timestamp() if pod.created else 0.0, pod.uid


def _reason(record: Record, pod: ObservedPod) -> str:
    if pod.attempt != record.attempt:
        return f"attempt {record.attempt} replaces attempt {pod.attempt}"
    if pod.index >= record.role(pod.role).size:
        return "the role was scaled down"
    return "the pod is being replaced"
