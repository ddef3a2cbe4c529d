"""Updates the Record with what is observed, before anything is decided.

The Record is written before pods are created, so pods are never ahead of it. A pod whose labels have a higher
attempt or replacement number means that the Record was lost or restored from an older state; then the labels
are used. So no harm is done if a status is deleted.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec.structs import replace

from argosy.plan.actions import Apply, Exec
from argosy.workload.clock_skew import shift_to_clock
from argosy.workload.current_pods import current_pods
from argosy.workload.elastic import adapts_to_capacity
from argosy.workload.index_set import EMPTY, IndexSet, free_indexes
from argosy.workload.model import Phase, RestartPolicy, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import Action, CreatePod, Plan
from argosy.workload.record import Record, RoleRecord
from argosy.workload.restarts.causes import container_restart_entry
from argosy.workload.restarts.losses import should_replace
from argosy.workload.usage_record import Usage


def sync_record(workload: Workload, record: Record | None, observed: Observed, now: datetime) -> Record:
    """Return the record with all facts that follow from the observed pods."""
    if record is None or record.phase_since is None:
        record = replace(record or Record(), phase_since=now)
    record = shift_to_clock(record, now)
    if record.finished_at:
        return record
    record = replace(record, generation=max(record.generation, workload.generation))
    record = _restore_from_labels(record, observed, workload.limits.restarts)
    roles = {name: _sync_role(workload, role, record, observed, now) for name, role in workload.roles.items()}
    return _count_container_restarts(record, replace(record, roles=roles), observed, now)


def without_shown_operations(record: Record, observed: Observed) -> Record:
    """Return the record without finished operations whose requests are gone or show the result."""
    open_requests = {request.id for request in observed.scale_requests}
    kept = tuple(
        operation
        for operation in record.operations
        if not operation.finished or operation.id in open_requests
    )
    return record if len(kept) == len(record.operations) else replace(record, operations=kept)


def with_shown_operations_kept(before: Record | None, after: Record) -> Record:
    """Return the record of before if only finished operations are gone: the next write leaves them out."""
    if before is None or not set(after.operations) < set(before.operations):
        return after
    return before if replace(after, operations=before.operations) == before else after


def is_recoverable_from_pods(
    workload: Workload, before: Record | None, plan: Plan, observed: Observed
) -> bool:
    """Return True if the plan's Record could be rebuilt from pod labels, so that writing it may be deferred.

    That is so while pods are only created, for the first time, after a disruption or because they are added,
    and start: nothing is counted then, and the pods show how far the job is. Only the cause of a disruption
    would be lost. A role that is never restarted is an exception: once it is Running, only the Record shows
    whether a missing pod was lost or has not been created yet.
    """
    if any(_must_be_recorded(role, before, plan.record) for role in workload.roles.values()):
        return False
    if observed.failed_actions or not all(map(_is_deferrable, plan.actions)):
        return False
    if before is None:
        return _first(plan.record) and not plan.record.gang_scheduler
    if _is_only_reported(before):
        return _first(plan.record) and not plan.record.gang_scheduler
    if before.first_running_at is None and before.attempt == 1:
        return _before_it_ran(plan.record) == _before_it_ran(before)
    return _without_messages(plan.record) == _without_messages(before)


def _must_be_recorded(role: Role, before: Record | None, after: Record) -> bool:
    """Return True for a role without restarts whose pods have just come up."""
    if role.restart is not RestartPolicy.NEVER:
        return False
    was = before.role(role.name).phase if before else Phase.PENDING
    return was in _NOT_RUNNING_YET and after.role(role.name).phase not in _NOT_RUNNING_YET


_NOT_RUNNING_YET = (Phase.PENDING, Phase.STARTING)


def _is_deferrable(action: Action) -> bool:
    """Return True if the Record may be written after the action."""
    if isinstance(action, Apply):
        return not action.child.generator
    return isinstance(action, CreatePod) or (isinstance(action, Exec) and action.read_only)


def _is_only_reported(record: Record) -> bool:
    """Return True for a job that was reported as Pending and of which no pod was created yet."""
    return record.phase is Phase.PENDING and record.started_at is None and _first(record)


def _first(record: Record) -> bool:
    """Return True if at most the first pods are being created, and nothing else has ever happened."""
    started = record.phase in _NOT_RUNNING_YET and record.attempt == 1
    return started and not record.history and not any(role.replacements for role in record.roles.values())


def _without_messages(record: Record) -> Record:
    history = tuple(entry for entry in record.history if entry.reason != Phase.RUNNING)
    empty = {"reason": "", "message": "", "waiting": None, "restart_history": (), "history": history}
    # Of pods that are being added nothing is decided by whether they were seen.
    roles = {name: replace(role, created=role.created - role.joining) for name, role in record.roles.items()}
    initial = replace(record, phase=Phase.PENDING, phase_since=None, roles=roles, usage=Usage())
    return replace(initial, **empty)


def _before_it_ran(record: Record) -> Record:
    """Return the record without what changes while pods start."""
    initial = {"phase": Phase.PENDING, "phase_since": None, "reason": "", "message": ""}
    roles = {name: replace(role, created=EMPTY, **initial) for name, role in record.roles.items()}
    return replace(_without_messages(record), first_running_at=None, roles=roles)


def _restore_from_labels(record: Record, observed: Observed, limit: int | None) -> Record:
    """Restore attempt, replacement numbers and restarts from the labels of pods.

    Restarts are an estimate, since evictions and resumptions have the same labels. An estimate must not fail
    the job, so it stays within the limit.
    """
    highest = max((pod.attempt for pod in observed.pods), default=0)
    if highest > record.attempt:
        fresh = {name: role.for_next_attempt() for name, role in record.roles.items()}
        restarts = _within(limit, record.restarts, highest - 1)
        record = replace(record, attempt=highest, roles=fresh, restarts=restarts)
    ahead = [
        pod
        for pod in observed.pods
        if pod.replacement
        and pod.attempt == record.attempt
        and pod.replacement > record.replacement(pod.role, pod.index)
    ]
    for pod in ahead:
        role = record.role(pod.role)
        gained = pod.replacement - role.replacements.get(pod.index, 0)
        role = replace(
            role,
            replacements={**role.replacements, pod.index: pod.replacement},
            restarts=role.restarts + gained,
        )
        restarts = _within(limit, record.restarts, record.restarts + gained)
        record = replace(record.with_role(pod.role, role), restarts=restarts)
    if record.started_at is None and record.phase is not Phase.SUSPENDED:
        created = [pod.created for pod in observed.pods if pod.created and pod.attempt == record.attempt]
        if created:
            record = replace(record, started_at=min(created), attempt_started_at=min(created))
    return record


def _within(limit: int | None, recorded: int, estimated: int) -> int:
    return max(recorded, estimated if limit is None else min(limit, estimated))


def _sync_role(
    workload: Workload, role: Role, record: Record, observed: Observed, now: datetime
) -> RoleRecord:
    last = record.role(role.name)
    if last.phase_since is None:
        last = replace(last, phase_since=now)
    if not last.declared:
        last = _first_members(workload, role, last, record, observed)
    pods = current_pods(record.with_role(role.name, last), role.name, observed)
    succeeded = _succeeded_indexes(workload, role, last, pods, observed)
    known = last.created.lookup
    new = [index for index in (*(pod.index for pod in pods), *succeeded) if index not in known]
    created = last.created | IndexSet.of(new) if new else last.created
    lost = _lost_indexes(role, last, succeeded, observed)
    kept = [
        pod
        for pod in pods
        if pod.phase == "Failed"
        and not pod.terminating
        and (pod.index in last.joining or not should_replace(role, pod, workload.semantics))
    ]
    preempted = {pod.index: 1 for pod in pods if pod.preempted_at}
    failed = {pod.index: 1 for pod in kept}
    return replace(
        last,
        retired=_retired_indexes(role, last, succeeded, lost, failed),
        succeeded_indexes=succeeded,
        created=created & last.wanted,
        container_restarts=_in_place(last, pods),
        lost_indexes=lost,
        failed_indexes=failed,
        preempted_indexes={**last.preempted_indexes, **preempted} if preempted else last.preempted_indexes,
        template_hash=role.template_hash,
    )


def _first_members(
    workload: Workload, role: Role, last: RoleRecord, record: Record, observed: Observed
) -> RoleRecord:
    """Return the role with its members, of which nothing is recorded yet.

    If the indexes of its pods may have gaps and the Record was lost, the pods show which indexes are in use
    and which have ended. More pods than the spec has replicas are kept only where requests may have added
    them.
    """
    moves, adapts = role.replacement.next_index, adapts_to_capacity(workload, role)
    pods = observed.by_role.get(role.name, ()) if moves or adapts else ()
    current = [pod for pod in pods if pod.attempt == record.attempt]
    if not current:
        return replace(last, members=IndexSet.first(role.replicas), declared=role.replicas)
    members = IndexSet.of(pod.index for pod in current if not (pod.terminating or (moves and pod.ended)))
    if adapts:
        coordinator = IndexSet.first(1) if workload.is_coordinator(role.name, 0) else EMPTY
        members = (members | coordinator).lowest(role.replicas)
    retired = IndexSet.of(pod.index for pod in current) - members if moves else EMPTY
    missing = max(role.replicas - len(members), 0)
    members |= free_indexes(members | retired, missing)
    declared = role.replicas if workload.rules.host_list else len(members)
    return replace(last, members=members, retired=retired, declared=declared)


def _succeeded_indexes(
    workload: Workload, role: Role, last: RoleRecord, pods: Iterable[ObservedPod], observed: Observed
) -> Mapping[int, int]:
    if role.restart is RestartPolicy.ALWAYS:
        return last.succeeded_indexes
    succeeded = [pod for pod in pods if pod.phase == "Succeeded"]
    if not workload.semantics.forget_deleted_successes:
        return {**last.succeeded_indexes, **{pod.index: 1 for pod in succeeded}}
    down = observed.failed_nodes(role.policy, workload.semantics)
    return {pod.index: 1 for pod in succeeded if not pod.terminating and pod.node not in down}


def _lost_indexes(
    role: Role, last: RoleRecord, done: Mapping[int, int], observed: Observed
) -> Mapping[int, int]:
    policy = role.replacement
    replaced = policy.refill_deleted or (role.restart is not RestartPolicy.NEVER and policy.deleted)
    if replaced or last.phase in _NOT_RUNNING_YET:
        return last.lost_indexes
    lost = [
        index
        for name, index in observed.confirmed_absent
        if name == role.name
        and index in last.created
        and index not in done
        and not observed.by_replica.get((name, index))
    ]
    return {**last.lost_indexes, **dict.fromkeys(lost, 1)} if lost else last.lost_indexes


def _retired_indexes(role: Role, last: RoleRecord, *without_pod: Mapping[int, int]) -> IndexSet:
    """Return the indexes that are not used again, with the members whose pods have ended or are gone."""
    if not role.replacement.next_index:
        return last.retired
    gone = IndexSet.of(index for indexes in without_pod for index in indexes)
    return last.retired | (gone & last.members) if gone else last.retired


def _in_place(last: RoleRecord, pods: Iterable[ObservedPod]) -> dict[int, int]:
    counts = {pod.index: pod.container_restarts for pod in pods if pod.container_restarts}
    return {
        **last.container_restarts,
        **{index: max(n, last.container_restarts.get(index, 0)) for index, n in counts.items()},
    }


def _count_container_restarts(before: Record, record: Record, observed: Observed, now: datetime) -> Record:
    """Count new container restarts as failures."""
    for name, role in record.roles.items():
        total = sum(role.container_restarts.values())
        new = total - role.container_restarts_counted
        if new > 0:
            counted = before.role(name).container_restarts
            entries = [
                container_restart_entry(pod, now)
                for pod in current_pods(record, name, observed)
                if role.container_restarts.get(pod.index, 0) > counted.get(pod.index, 0)
            ]
            role = replace(role, container_restarts_counted=total, restarts=role.restarts + new)
            record = replace(record.with_role(name, role), restarts=record.restarts + new)
            record = record.with_restarts(*entries)
    return record
