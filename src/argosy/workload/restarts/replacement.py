"""Records restarts: the replacement numbers and attempts by which pods are replaced, and the backoff."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.workload.index_set import EMPTY, IndexSet, next_indexes
from argosy.workload.model import Limits, Phase, ReplacementBudget, RestartScope, Workload
from argosy.workload.record import Record, RoleRecord
from argosy.workload.restarts import escalation
from argosy.workload.restarts.causes import RestartCause
from argosy.workload.restarts.losses import LostPod, widest, widest_scope


def with_replacements(workload: Workload, record: Record, losses: list[LostPod], now: datetime) -> Record:
    """Return the record that replaces the lost pods, in the widest scope that one of them needs."""
    if widest_scope(losses) is RestartScope.JOB:
        return _with_restarted_job(workload.limits, record, losses, now)
    limits = workload.limits
    restarted = sorted({loss.role for loss in losses if loss.scope is RestartScope.ROLE})
    for name in restarted:
        loss = widest([loss for loss in losses if loss.role == name])
        escalated = workload.restart_scope(workload.roles[name], loss.index) is not RestartScope.ROLE
        role = _with_restarted_role(record.role(name), loss, limits, now, escalated=escalated)
        record = record.with_role(name, role)
    single = [loss for loss in losses if loss.role not in restarted]
    renewed = {loss.role for loss in single if workload.roles[loss.role].replacement.next_index}
    for name in sorted(renewed):
        lost, budget = [loss for loss in single if loss.role == name], workload.roles[name].replacement.budget
        record = record.with_role(name, _with_next_indexes(record.role(name), lost, budget, now))
    for loss in single:
        if loss.role not in renewed:
            role = _with_next_replacements(record.role(loss.role), (loss.index,), loss, limits, now)
            if limits.escalation.pod is not None and not loss.disrupted:
                role = replace(role, failure_streaks={**role.failure_streaks, loss.index: loss.failures})
            record = record.with_role(loss.role, role)
    return _with_counts(record, losses)


def with_next_attempt(record: Record) -> Record:
    """Return the record of a job of which all pods are replaced; totals are kept.

    An order to save a checkpoint was for the old pods.
    """
    roles = {name: role.for_next_attempt() for name, role in record.roles.items()}
    answered = max(record.answered_epoch, record.order.epoch if record.order else 0)
    record = replace(record, attempt=record.attempt + 1, roles=roles, attempt_started_at=None, notices=())
    return replace(record, answered_epoch=answered, scale_in=None)


def with_replaced_in_place(record: Record, name: str, indexes: IndexSet) -> Record:
    """Return the record in which the pods of these replicas are replaced on purpose, by others of their
    indexes."""
    if not indexes:
        return record
    role = record.role(name)
    replaced = {index: role.replacements.get(index, 0) + 1 for index in indexes}
    in_place = {index: count for index, count in role.container_restarts.items() if index not in replaced}
    role = replace(
        role,
        replacements={**role.replacements, **replaced},
        created=role.created - indexes,
        container_restarts=in_place,
        container_restarts_counted=sum(in_place.values()),
        succeeded_indexes={index: 1 for index in role.succeeded_indexes if index not in replaced},
        disruptions=role.disruptions + len(replaced),
    )
    return replace(record.with_role(name, role), disruptions=record.disruptions + len(replaced))


def backoff_delay(limits: Limits | ReplacementBudget, times: int) -> float:
    """Return the seconds before the `times`-th replacement in a row: none, then doubling."""
    if times <= 1:
        return 0.0
    return min(limits.backoff_max, limits.backoff * 2.0 ** min(times - 2, 30))


def _with_restarted_job(limits: Limits, record: Record, losses: list[LostPod], now: datetime) -> Record:
    failed = not all(loss.disrupted for loss in losses)
    streak = record.consecutive_failures
    if failed:
        started = record.attempt_started_at
        stable = started is not None and (now - started).total_seconds() > limits.backoff_reset
        streak = 1 if stable else streak + 1
    record = replace(_with_counts(with_next_attempt(record), losses), consecutive_failures=streak)
    return replace(record, retry_at=_retry_at(now, backoff_delay(limits, streak) if failed else 0.0))


def _with_restarted_role(
    role: RoleRecord, loss: LostPod, limits: Limits, now: datetime, *, escalated: bool
) -> RoleRecord:
    after = _with_next_replacements(role, list(role.members), loss, limits, now)
    if escalated:
        after = escalation.count_role_restart(after, limits, now)
        after = replace(after, retry_at=_retry_at(now, backoff_delay(limits, after.role_restarts_in_a_row)))
    return replace(after, phase=Phase.PENDING, phase_since=now, created=EMPTY, lost_indexes={})


def _with_next_replacements(
    role: RoleRecord, indexes: Sequence[int], loss: LostPod, limits: Limits, now: datetime
) -> RoleRecord:
    replaced = {**role.replacements, **{index: role.replacements.get(index, 0) + 1 for index in indexes}}
    again = not loss.disrupted and (loss.age_seconds is None or loss.age_seconds <= limits.backoff_reset)
    retry_at = _retry_at(now, backoff_delay(limits, replaced[loss.index]) if again else 0.0)
    gone = set(indexes)
    in_place = {index: count for index, count in role.container_restarts.items() if index not in gone}
    return replace(
        role,
        replacements=replaced,
        retry_at=max((time for time in (role.retry_at, retry_at) if time), default=None),
        container_restarts=in_place,
        container_restarts_counted=sum(in_place.values()),
        succeeded_indexes={index: 1 for index in role.succeeded_indexes if index not in gone},
        preempted_indexes={index: 1 for index in role.preempted_indexes if index not in gone},
    )


def _with_next_indexes(
    role: RoleRecord, losses: list[LostPod], budget: ReplacementBudget | None, now: datetime
) -> RoleRecord:
    """Return the role with other indexes in place of the lost ones, which are not used again."""
    in_a_row, retry_at = role.replacements_in_a_row, role.retry_at
    for loss in losses:
        if budget and not loss.disrupted:
            stable = loss.age_seconds is not None and loss.age_seconds > budget.reset
            in_a_row = 1 if stable else in_a_row + 1
            retry_at = _retry_at(now, backoff_delay(budget, in_a_row))
    lost = IndexSet.of(loss.index for loss in losses)
    members = (role.members - lost) | next_indexes(role.wanted, role.retired, len(lost))
    return replace(
        role.with_members(members),
        retired=role.retired | lost,
        replacements_in_a_row=in_a_row,
        budget_exhausted=role.budget_exhausted and in_a_row > 1,
        retry_at=retry_at,
    )


def _with_counts(record: Record, losses: list[LostPod]) -> Record:
    for loss in losses:
        role = record.role(loss.role)
        if loss.uses_restart:
            record = record.with_role(loss.role, replace(role, restarts=role.restarts + 1))
        elif loss.disrupted and loss.entry.cause != RestartCause.DELETED:
            record = record.with_role(loss.role, replace(role, disruptions=role.disruptions + 1))
    return record


def _retry_at(now: datetime, seconds: float) -> datetime | None:
    return now + timedelta(seconds=seconds) if seconds else None
