"""Decides which restarts a job needs, and whether its limit allows them."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import messages, reasons
from argosy.workload.model import Phase, RestartScope, Workload
from argosy.workload.observed import Observed
from argosy.workload.phases import PhaseResult
from argosy.workload.record import Record, RestartEntry
from argosy.workload.restarts.budgets import has_budget, within_budgets
from argosy.workload.restarts.causes import RestartCause
from argosy.workload.restarts.disruptions import new_disruptions
from argosy.workload.restarts.losses import (
    LostPod,
    count_unreplaced_failures,
    find_lost_pods,
    root_cause,
    widest,
    widest_scope,
)
from argosy.workload.restarts.replacement import with_replacements


class RestartPlan(Struct, frozen=True):
    record: Record
    result: PhaseResult | None = None
    """Set if the job fails because it may not restart."""
    causes: tuple[str, ...] = ()
    """One for every restart: of a pod, or of all pods at once."""


def plan_restarts(workload: Workload, record: Record, observed: Observed, now: datetime) -> RestartPlan:
    """Return the record that replaces lost pods, or the result of the job if its limit is reached."""
    limit = workload.limits.restarts
    kept = 0
    if workload.semantics.count_unreplaced_failures:
        kept = count_unreplaced_failures(workload, record, observed)
    if limit is not None and record.restarts + kept > limit:
        last = record.restart_history[-1] if record.restart_history and not kept else None
        message = messages.too_many_restarts(last, record.restarts + kept, limit)
        return RestartPlan(record, PhaseResult(Phase.FAILED, reasons.RESTARTS_EXHAUSTED, message))
    losses = find_lost_pods(workload, record, observed, now)
    losses, record = within_budgets(workload, record, losses, now)
    disrupted = new_disruptions(workload, record, observed, now)
    record = record.with_restarts(*disrupted)
    if not losses:
        return RestartPlan(record, causes=tuple(entry.cause for entry in disrupted))
    counted = [loss for loss in losses if loss.uses_restart and not has_budget(workload, loss)]
    used = _restarts_used(workload, counted)
    if limit is not None and counted and record.restarts + used + kept > limit:
        cause = root_cause(counted).entry
        message = messages.no_restarts_left(cause, limit, used=record.restarts + kept, needed=used)
        return RestartPlan(record, PhaseResult(Phase.FAILED, reasons.RESTARTS_EXHAUSTED, message))
    record, restarts = with_losses(workload, record, losses, used, now)
    return RestartPlan(record, causes=tuple(entry.cause for entry in (*disrupted, *restarts)))


def restart_below_min(workload: Workload, record: Record, now: datetime) -> RestartPlan | None:
    """Return the record that restarts a job which had too few running pods for too long.

    None if that fails the job, or if no restart is left.
    """
    limit = workload.limits.restarts
    if limit is not None and record.restarts >= limit:
        return None
    for name, role in workload.roles.items():
        if role.elastic is None or not role.elastic.restart_below_min:
            continue
        last = record.role(name)
        if last.below_min_since is not None:
            cause = RestartCause.BELOW_MIN_REPLICAS
            entry = RestartEntry(now, name, max(last.members.highest, 0), cause, "", record.attempt)
            loss = LostPod(entry, uses_restart=True, scope=RestartScope.JOB)
            record, restarts = with_losses(workload, record, [loss], 1, now)
            return RestartPlan(record, causes=tuple(entry.cause for entry in restarts))
    return None


def with_losses(
    workload: Workload, record: Record, losses: list[LostPod], used: int, now: datetime
) -> tuple[Record, list[RestartEntry]]:
    """Return the record that replaces lost pods, which uses so many restarts, and what its history shows."""
    disruptions = record.disruptions + sum(loss.disrupted for loss in losses)
    record = replace(record, restarts=record.restarts + used, disruptions=disruptions)
    message = _message(workload, losses, record)
    restarts = list(record.unrecorded(_restart_entries(losses)))
    record = (
        with_replacements(workload, record, losses, now)
        .with_history(now, reasons.RESTARTING, message)
        .with_restarts(*restarts)
    )
    since = record.phase_since if record.phase is Phase.RESTARTING else now
    record = replace(
        record, phase=Phase.RESTARTING, phase_since=since, reason=reasons.RESTARTING, message=message
    )
    return record, restarts


def _restarts_used(workload: Workload, counted: list[LostPod]) -> int:
    """Return the restarts that these failures use: one each, or one for all that are restarted together."""
    scopes = [workload.restart_scope(workload.roles[loss.role], loss.index) for loss in counted]
    return len(counted) if all(scope is RestartScope.POD for scope in scopes) else min(1, len(counted))


def _restart_entries(losses: list[LostPod]) -> list[RestartEntry]:
    """Return one entry for each pod, or one for all that are restarted together."""
    if widest_scope(losses) is RestartScope.POD:
        return [replace(loss.entry, scope=RestartScope.POD) for loss in losses]
    first = widest(losses)
    return [replace(first.entry, scope=first.scope, also_lost=len(losses) - 1)]


def _message(workload: Workload, losses: list[LostPod], record: Record) -> str:
    first = widest(losses)
    message = messages.restarting(
        first.entry, first.scope, len(losses), record.attempt + 1, first.container_restarts
    )
    if all(loss.disrupted or has_budget(workload, loss) for loss in losses):
        return message
    return f"{message}, {messages.restarts_used(record.restarts, workload.limits.restarts)}"
