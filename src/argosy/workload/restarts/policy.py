"""Decides which restarts a job needs, and whether its limit allows them."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.messages import pluralize
from argosy.workload import messages, reasons
from argosy.workload.model import Phase, RestartScope, Workload
from argosy.workload.observed import Observed
from argosy.workload.phases import PhaseResult
from argosy.workload.record import Record, RestartEntry
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
        return RestartPlan(record, _restarts_exceeded(record, kept, limit))
    losses = find_lost_pods(workload, record, observed, now)
    disrupted = new_disruptions(workload, record, observed, now)
    record = record.with_restarts(*disrupted)
    if not losses:
        return RestartPlan(record, causes=tuple(entry.cause for entry in disrupted))
    counted = [loss for loss in losses if loss.uses_restart]
    used = len(counted) if workload.rules.restart_scope is RestartScope.POD else min(1, len(counted))
    if limit is not None and counted and record.restarts + used + kept > limit:
        cause = messages.describe_restart(root_cause(counted).entry)
        return RestartPlan(record, _no_restarts_left(cause, limit, used=record.restarts + kept, needed=used))
    disruptions = record.disruptions + sum(loss.disrupted for loss in losses)
    record = replace(record, restarts=record.restarts + used, disruptions=disruptions)
    message = _message(losses, record, limit)
    restarts = _restart_entries(losses)
    record = (
        with_replacements(workload, record, losses, now)
        .with_history(now, reasons.RESTARTING, message)
        .with_restarts(*restarts)
    )
    since = record.phase_since if record.phase is Phase.RESTARTING else now
    record = replace(
        record, phase=Phase.RESTARTING, phase_since=since, reason=reasons.RESTARTING, message=message
    )
    return RestartPlan(record, causes=tuple(entry.cause for entry in (*disrupted, *restarts)))


def _restart_entries(losses: list[LostPod]) -> list[RestartEntry]:
    """Return one entry for each pod, or one for all that are restarted together."""
    if widest_scope(losses) is RestartScope.POD:
        return [replace(loss.entry, scope=RestartScope.POD) for loss in losses]
    first = widest(losses)
    return [replace(first.entry, scope=first.scope, also_lost=len(losses) - 1)]


def _message(losses: list[LostPod], record: Record, limit: int | None) -> str:
    first = widest(losses)
    others = f" (and {pluralize(len(losses) - 1, 'other pod')})" if len(losses) > 1 else ""
    often = (
        f" after {pluralize(first.container_restarts, 'restart')} in its place"
        if first.container_restarts
        else ""
    )
    doing = {
        RestartScope.POD: "replacing it" if len(losses) == 1 else "replacing them",
        RestartScope.ROLE: f"restarting all pods of {first.role}",
        RestartScope.JOB: f"starting attempt {record.attempt + 1}",
    }[first.scope]
    message = f"{messages.describe_restart(first.entry)}{others}; {doing}{often}"
    if all(loss.disrupted for loss in losses):
        return message
    used = f"{record.restarts} of {limit}" if limit is not None else f"{record.restarts}"
    return f"{message}, {used} restarts used"


def _restarts_exceeded(record: Record, kept: int, limit: int) -> PhaseResult:
    """Return the result of a job that used too many restarts by container restarts or unreplaced failures."""
    last = (
        f"{messages.describe_restart(record.restart_history[-1])}; "
        if record.restart_history and not kept
        else ""
    )
    needed = pluralize(record.restarts + kept, "restart")
    message = f"{last}{needed} were needed and {limit} allowed (limits.restarts)"
    return PhaseResult(Phase.FAILED, reasons.RESTARTS_EXHAUSTED, message)


def _no_restarts_left(cause: str, limit: int, *, used: int, needed: int) -> PhaseResult:
    """Return the result of a job that needs more restarts than its limit leaves."""
    counts = f"{used} of {pluralize(limit, 'restart')} used, {needed} more needed (limits.restarts)"
    left = f"restart limit reached: {counts}" if limit else "no restarts are allowed (limits.restarts is 0)"
    return PhaseResult(Phase.FAILED, reasons.RESTARTS_EXHAUSTED, f"{cause}; {left}")
