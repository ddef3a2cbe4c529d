"""Resizes roles, and tracks elastic roles with too few running pods.

Growing adds the lowest free indexes, shrinking removes the highest, so ranks stay contiguous; of an elastic
role it removes those whose loss costs least. If a framework cannot change its size while it runs, a new size
restarts the job without using a restart. Before that, and before replicas leave a role that is resized while
it runs, a checkpoint is saved if the job keeps any. A role that was Running and has fewer pods than its
minimum waits for more, for a limited time.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice

from msgspec.structs import replace

from argosy.kinds.elastic_spec import ElasticSpec
from argosy.kinds.quantity import parse_duration
from argosy.workload import messages, reasons
from argosy.workload.clock_skew import deadline
from argosy.workload.current_pods import current_pods
from argosy.workload.index_set import EMPTY, IndexSet, free_indexes
from argosy.workload.model import (
    Elastic,
    Phase,
    Problem,
    ResizeMode,
    RestartPolicy,
    RestartScope,
    Role,
    Workload,
)
from argosy.workload.observed import Observed
from argosy.workload.phases import PhaseResult, count_pods
from argosy.workload.record import Record, RoleRecord
from argosy.workload.recoveries import with_planned
from argosy.workload.restarts.replacement import with_next_attempt
from argosy.workload.saves import has_begun, order_id, save_first, with_stops_done
from argosy.workload.scale_in_saves import save_before_leaving, with_scale_in_done
from argosy.workload.victims import choose_victims

_ORDER_PREFIX = "resize/"


def bounds(spec: ElasticSpec) -> Elastic:
    """Return the allowed sizes of a role as the model has them."""
    stabilization = parse_duration(spec.stabilization_window)
    return Elastic(spec.min, spec.max, spec.multiple_of, stabilization=stabilization)


def problems(path: str, replicas: int, elastic: Elastic | None) -> list[Problem]:
    """Return what is wrong with the number of replicas and its bounds, as the CRD's rules word it."""
    if elastic is None:
        return []
    problems: list[Problem] = []
    if elastic.min > elastic.max:
        problems.append(Problem(f"{path}.elastic", f"min {elastic.min} is greater than max {elastic.max}"))
    for name, number in (("min", elastic.min), ("max", elastic.max)):
        if number % elastic.multiple_of:
            problems.append(Problem(f"{path}.elastic", _not_multiple(name, number, elastic.multiple_of)))
    if not problems and not elastic.min <= replicas <= elastic.max:
        message = f"{replicas} is not between elastic.min {elastic.min} and elastic.max {elastic.max}"
        problems.append(Problem(f"{path}.replicas", message))
    elif not problems and replicas % elastic.multiple_of:
        problems.append(Problem(f"{path}.replicas", _not_multiple("replicas", replicas, elastic.multiple_of)))
    return problems


def resize(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record:
    """Return the record with the sizes of the spec."""
    changed = [
        role
        for role in workload.roles.values()
        if record.role(role.name).declared not in (0, role.replicas)
        and not _is_scaled_by_operations(workload, role, record)
    ]
    restarts = workload.rules.resize is ResizeMode.RESTART
    begun = restarts and has_begun(record, _ORDER_PREFIX)
    if not changed and not begun and record.scale_in is None:
        return record
    started = record.attempt_started_at is not None
    if begun or (changed and started and restarts):
        return _restart_resized(workload, record, observed, changed, now)
    leaving = {role.name: _leaving(workload, role, record, observed) for role in changed}
    if saving := save_before_leaving(workload, record, observed, leaving, now):
        return _without_joining(saving, leaving)
    resized = record
    for role in changed:
        resized = resized.with_role(role.name, _resize(workload, role, record, leaving[role.name]))
    resized = with_scale_in_done(record, resized, now)
    return _with_resized(record, resized, changed, now) if changed and started else resized


def _restart_resized(
    workload: Workload, record: Record, observed: Observed, changed: Sequence[Role], now: datetime
) -> Record:
    """Return the record of a job that restarts with other sizes, once it has saved a checkpoint.

    With the same sizes, if others were withdrawn after its pods had been asked to stop.
    """
    identity = order_id(record, _ORDER_PREFIX, workload.generation)
    if saving := save_first(workload, record, observed, now, identity, reasons.RESIZED):
        return saving
    what = (identity, reasons.RESIZED, "Resize", "spec.roles")
    record = with_stops_done(with_planned(workload.checkpoint, record, *what, now))
    resized = with_next_attempt(record)
    for role in changed:
        resized = resized.with_role(role.name, _resize_role(resized.role(role.name), role.replicas))
    return _with_resized(record, resized, changed, now)


def _with_resized(before: Record, record: Record, changed: Sequence[Role], now: datetime) -> Record:
    """Return the record with a line of history about other sizes."""
    sizes = [(role.name, before.role(role.name).size, role.replicas) for role in changed]
    message = messages.resized(sizes, record.attempt if record.attempt != before.attempt else None)
    return record.with_history(now, reasons.RESIZED, message)


def _without_joining(record: Record, leaving: Mapping[str, IndexSet]) -> Record:
    """Return the record in which roles that get smaller add no replicas meanwhile."""
    for name, indexes in leaving.items():
        if indexes and record.role(name).joining:
            record = record.with_role(name, replace(record.role(name), joining=EMPTY))
    return record


def _is_scaled_by_operations(workload: Workload, role: Role, record: Record) -> bool:
    """Return True if the replicas of a started role join and leave a host list (`scaling`)."""
    host_list = workload.rules.host_list
    if host_list is None or role.name != host_list.role:
        return False
    return record.role(role.name).phase not in _NOT_RUNNING_YET


_NOT_RUNNING_YET = (Phase.PENDING, Phase.STARTING)


def adapts_to_capacity(workload: Workload, role: Role) -> bool:
    """Return True if single replicas of the role may come and go while it runs, within its bounds.

    Roles with a host list are left out: their replicas come and go by scale operations.
    """
    host_list, policy = workload.rules.host_list, role.replacement
    return (
        role.elastic is not None
        and workload.rules.resize is ResizeMode.LIVE
        and workload.restart_scope(role) is RestartScope.POD
        and role.restart is not RestartPolicy.NEVER
        and policy.deleted
        and not policy.next_index
        and (host_list is None or host_list.role != role.name)
    )


def waits_to_join(workload: Workload, role: Role) -> bool:
    """Return True if pods of the role start their containers only once their replica is a member.

    So replicas that together make an allowed size start together, and none is seen by the framework before.
    """
    return role.elastic is not None and role.elastic.multiple_of > 1 and adapts_to_capacity(workload, role)


def can_spare(workload: Workload, name: str, record: Record, observed: Observed, indexes: IndexSet) -> bool:
    """Return True if a running role has an allowed size without these replicas."""
    role, last = workload.roles[name], record.role(name)
    if role.elastic is None or not adapts_to_capacity(workload, role):
        return False
    if last.phase is not Phase.RUNNING or last.succeeded_indexes:
        return False  # not before it runs, nor when it is about to end
    if any(workload.is_coordinator(name, index) for index in indexes):
        return False
    running = running_indexes(workload, role, record, observed)
    return role.elastic.allows(len(running - indexes)) and role.elastic.allows(len(last.members - indexes))


def running_indexes(workload: Workload, role: Role, record: Record, observed: Observed) -> IndexSet:
    """Return the members whose pods run, on nodes that are not down."""
    down = observed.nodes_down | observed.failed_nodes(role.policy, workload.semantics)
    members = record.role(role.name).members
    return IndexSet.of(
        pod.index
        for pod in current_pods(record, role.name, observed)
        if pod.phase == "Running" and not pod.terminating and pod.node not in down and pod.index in members
    )


def spare_indexes(role: Role, last: RoleRecord, observed: Observed, count: int) -> IndexSet:
    """Return up to `count` of the lowest indexes below the role's maximum that have no pod and no use."""
    highest = role.elastic.max if role.elastic else role.replicas
    taken = last.wanted | last.retired
    free = (
        index
        for index in range(highest)
        if index not in taken.lookup and (role.name, index) not in observed.by_replica
    )
    return IndexSet.of(islice(free, count))


def track_below_min(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record:
    """Return the record with the time since when an elastic role has had too few running pods."""
    for role in workload.roles.values():
        last = record.role(role.name)
        since = last.below_min_since or now if _is_below_min(workload, role, last, record, observed) else None
        if since != last.below_min_since:
            record = record.with_role(role.name, replace(last, below_min_since=since))
    return record


def below_min_limit(workload: Workload, record: Record, now: datetime) -> PhaseResult | datetime | None:
    """Return the failure of a job that was below its minimum for too long, or when that will be."""
    timeout = workload.limits.below_min_timeout
    times: list[datetime | None] = []
    for name, role in workload.roles.items():
        since = record.role(name).below_min_since
        if since is None or timeout is None:
            continue
        if (now - since).total_seconds() >= timeout:
            message = messages.below_minimum(name, role.min_running, timeout)
            return PhaseResult(Phase.FAILED, reasons.BELOW_MIN_REPLICAS, message)
        times.append(deadline(since, timeout))
    return min((time for time in times if time), default=None)


def _is_below_min(
    workload: Workload, role: Role, last: RoleRecord, record: Record, observed: Observed
) -> bool:
    if role.elastic is None or last.phase is not Phase.RUNNING:
        return False
    counts = count_pods(workload, role, record, observed)
    done = counts.succeeded if role.policy is None or role.policy.ends else 0
    return counts.active + done < role.elastic.min


def _leaving(workload: Workload, role: Role, record: Record, observed: Observed) -> IndexSet:
    """Return the replicas that leave a role which has more of them than declared."""
    last = record.role(role.name)
    if last.size <= role.replicas:
        return EMPTY
    if adapts_to_capacity(workload, role) and last.phase is Phase.RUNNING:
        names = (role.name, record, observed)
        return choose_victims(workload, *names, last.members, last.size - role.replicas)
    return last.members - last.members.lowest(role.replicas)


def _resize(workload: Workload, role: Role, record: Record, leaving: IndexSet) -> RoleRecord:
    """Return a role with the size of the spec.

    If an elastic role runs with fewer members than declared, it does not get more: there is no capacity for
    them yet.
    """
    last, size = record.role(role.name), role.replicas
    adapts = adapts_to_capacity(workload, role) and last.phase is Phase.RUNNING
    if leaving and adapts:
        return replace(last.with_members(last.members - leaving), declared=size, joining=EMPTY)
    if adapts and last.size < last.declared:
        return replace(last, declared=size, joining=last.joining.lowest(max(size - last.size, 0)))
    return _resize_role(last, size)


def _resize_role(last: RoleRecord, size: int) -> RoleRecord:
    missing = size - last.size
    members = (
        last.members | free_indexes(last.members | last.retired, missing)
        if missing > 0
        else last.members.lowest(size)
    )
    return replace(last.with_members(members), declared=size)


def _not_multiple(name: str, number: int, step: int) -> str:
    lower = number // step * step
    choice = f"{lower} or {lower + step}" if lower else f"{step}"
    return f"{name} {number} is not a multiple of {step}; write {choice}"
