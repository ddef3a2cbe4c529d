"""Replaces lost pods: one pod, its role or the whole job, as the cause demands and the limit allows.

A restart only increments the replica's replacement number (or the attempt) in the Record. `pods.py` then
deletes the pod that carries the old number and, once it is gone, creates the next one, so a restart takes two
reconcile passes. Recording the next number is what counts the failure; a failed pod that is observed again is
not counted twice. A pod's own failure uses a restart, and so does its eviction for exceeding its own storage
limits. Any other eviction, a deletion or a lost node does not.
"""

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.messages import pluralize
from argosy.workload import disruptions, escalation, messages, reasons
from argosy.workload.current_pods import current_pods, is_current
from argosy.workload.model import Limits, Phase, RestartPolicy, RestartScope, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.phases import PhaseResult
from argosy.workload.record import Record, RestartEntry, RoleRecord
from argosy.workload.restart_causes import RestartCause, container_restart_entry, restart_entry
from argosy.workload.semantics import Semantics


class LostPod(Struct, frozen=True):
    """A place whose pod must be replaced."""

    entry: RestartEntry
    """What is remembered of it."""
    uses_restart: bool
    scope: RestartScope
    """What it takes to be started anew for it."""
    failures: int = 0
    """Of its place, in a row."""
    container_restarts: int = 0
    """Restarts of its containers, if it is lost because there were too many; they have been counted."""
    age_seconds: float | None = None
    """Seconds since the pod was created."""

    @property
    def role(self) -> str:
        return self.entry.role

    @property
    def index(self) -> int:
        return self.entry.index

    @property
    def disrupted(self) -> bool:
        """Lost by no fault of its own."""
        return not self.uses_restart and not self.container_restarts

    @property
    def killed(self) -> bool:
        """Ended by a signal: likelier the cause than a peer that gave up because of it."""
        return self.entry.cause in (RestartCause.SIGNAL, RestartCause.OOM_KILLED)


class RestartPlan(Struct, frozen=True):
    record: Record
    result: PhaseResult | None = None
    causes: tuple[str, ...] = ()
    """One for every restart: of a pod, or of all at once."""


def plan_restarts(workload: Workload, record: Record, observed: Observed, now: datetime) -> RestartPlan:
    """The record that replaces what was lost, or the ending if no restart is left for it."""
    limit = workload.limits.restarts
    kept = (
        _unreplaced_failures(workload, record, observed)
        if workload.semantics.count_unreplaced_failures
        else 0
    )
    if limit is not None and record.restarts + kept > limit:
        return RestartPlan(record, _restarts_exceeded(record, kept, limit))
    losses = [
        loss
        for role in workload.roles.values()
        if record.role(role.name).phase is not Phase.SUCCEEDED
        for loss in _lost_pods(workload, role, record, observed, now)
    ]
    taken = disruptions.new_disruptions(workload, record, observed, now)
    record = record.with_restarts(*taken)
    if not losses:
        return RestartPlan(record, causes=tuple(gap.cause for gap in taken))
    counted = [loss for loss in losses if loss.uses_restart]
    used = len(counted) if workload.rules.restart_scope is RestartScope.POD else min(1, len(counted))
    if limit is not None and counted and record.restarts + used + kept > limit:
        why = messages.describe_restart(_root_cause(counted).entry)
        return RestartPlan(record, _no_restarts_left(why, limit, used=record.restarts + kept, needed=used))
    disruption_count = record.disruptions + sum(loss.disrupted for loss in losses)
    record = replace(record, restarts=record.restarts + used, disruptions=disruption_count)
    message = _message(losses, record, limit)
    told = _restart_entries(losses)
    record = (
        _with_replacements(workload, record, losses, now)
        .with_history(now, reasons.RESTARTING, message)
        .with_restarts(*told)
    )
    since = record.phase_since if record.phase is Phase.RESTARTING else now
    record = replace(
        record, phase=Phase.RESTARTING, phase_since=since, reason=reasons.RESTARTING, message=message
    )
    return RestartPlan(record, causes=tuple(one.cause for one in (*taken, *told)))


def _restart_entries(losses: list[LostPod]) -> list[RestartEntry]:
    """One restart for each pod, or one for all that are started anew together."""
    if _widest_scope(losses) is RestartScope.POD:
        return [replace(loss.entry, scope=RestartScope.POD) for loss in losses]
    first = _widest(losses)
    return [replace(first.entry, scope=first.scope, also_lost=len(losses) - 1)]


def _unreplaced_failures(workload: Workload, record: Record, observed: Observed) -> int:
    """Failed pods that stay where they are."""
    return sum(
        pod.phase == "Failed" and not pod.terminating and not should_replace(role, pod, workload.semantics)
        for role in workload.roles.values()
        for pod in current_pods(record, role.name, observed)
    )


def should_replace(role: Role, pod: ObservedPod, semantics: Semantics) -> bool:
    """Whether the role's policy replaces this ended pod."""
    if role.restart is RestartPolicy.ALWAYS:
        return True
    if pod.phase != "Failed" and not pod.disrupted:
        return False
    if role.restart is RestartPolicy.EXIT_CODE and semantics.replaced_exit_codes:
        return pod.phase == "Failed" and pod.first_exit_code in semantics.replaced_exit_codes
    if role.restart is RestartPolicy.EXIT_CODE:
        return pod.disrupted or pod.exit_code is None or pod.exit_code >= 128
    return role.restart is RestartPolicy.ON_FAILURE


def backoff_delay(limits: Limits, times: int) -> float:
    """Seconds before the `times`-th replacement in a row: none, then doubling."""
    if times <= 1:
        return 0.0
    return min(limits.backoff_max, limits.backoff * 2.0 ** min(times - 2, 30))


def with_next_attempt(record: Record) -> Record:
    """The record of a job all of whose pods start anew; totals are kept."""
    roles = {name: role.for_next_attempt() for name, role in record.roles.items()}
    return replace(record, attempt=record.attempt + 1, roles=roles, attempt_started_at=None)


def _lost_pods(
    workload: Workload, role: Role, record: Record, observed: Observed, now: datetime
) -> list[LostPod]:
    if role.restart is RestartPolicy.NEVER:
        return []
    whole = workload.rules.restart_scope is not RestartScope.POD
    last = record.role(role.name)
    losses: list[LostPod] = []
    nodes = observed.nodes_to_replace(role.policy, workload.semantics)
    for pod in current_pods(record, role.name, observed):
        if pod.index in last.succeeded_indexes:
            continue
        if pod.terminating:
            lost = whole or workload.allows_surge(role)
        elif pod.ended:
            lost = should_replace(role, pod, workload.semantics)
        else:
            lost = pod.node in nodes
        if lost:
            losses.append(_lost_pod(workload, last, pod, observed, now))
        elif escalation.exceeds_container_restarts(workload.limits, pod):
            losses.append(_crashing_pod(workload, last, pod, now))
    if whole and last.phase is Phase.RUNNING:
        departed = {
            (pod.role, pod.index): pod for pod in observed.recently_deleted if is_current(record, pod)
        }
        for index in range(min(last.size, last.created_below)):
            place = (role.name, index)
            gone = place in observed.confirmed_absent and not observed.by_replica.get(place)
            if gone and index not in last.succeeded_indexes:
                unseen = RestartEntry(now, role.name, index, RestartCause.DELETED, "", record.attempt)
                told = (
                    restart_entry(departed[place], now, down=observed.nodes_down)
                    if place in departed
                    else unseen
                )
                losses.append(LostPod(told, uses_restart=False, scope=workload.rules.restart_scope))
    return sorted(losses, key=lambda loss: loss.index)


def _lost_pod(
    workload: Workload, last: RoleRecord, pod: ObservedPod, observed: Observed, now: datetime
) -> LostPod:
    told = restart_entry(pod, now, down=observed.nodes_down)
    lived = _age_seconds(pod, now)
    if pod.phase != "Failed" or pod.disrupted or pod.terminating:
        return LostPod(told, uses_restart=False, scope=workload.rules.restart_scope, age_seconds=lived)
    failures = escalation.failures_in_a_row(last, pod.index, lived, workload.limits)
    rung = escalation.restart_scope(workload.rules, workload.limits, last, failures, now)
    return LostPod(told, uses_restart=True, scope=rung, failures=failures, age_seconds=lived)


def _crashing_pod(workload: Workload, last: RoleRecord, pod: ObservedPod, now: datetime) -> LostPod:
    """A pod whose containers do not get on their feet again."""
    lived = _age_seconds(pod, now)
    failures = escalation.failures_in_a_row(last, pod.index, lived, workload.limits)
    rung = escalation.restart_scope(workload.rules, workload.limits, last, failures, now)
    told = replace(container_restart_entry(pod, now), scope="")
    return LostPod(
        told,
        uses_restart=False,
        scope=rung,
        failures=failures,
        container_restarts=pod.container_restarts,
        age_seconds=lived,
    )


def _age_seconds(pod: ObservedPod, now: datetime) -> float | None:
    return (now - pod.created).total_seconds() if pod.created else None


def _with_replacements(workload: Workload, record: Record, losses: list[LostPod], now: datetime) -> Record:
    limits = workload.limits
    if _widest_scope(losses) is RestartScope.JOB:
        long = (
            record.attempt_started_at is not None
            and (now - record.attempt_started_at).total_seconds() > limits.backoff_reset
        )
        failed = not all(loss.disrupted for loss in losses)
        streak = (1 if long else record.consecutive_failures + 1) if failed else record.consecutive_failures
        record = replace(_with_counts(with_next_attempt(record), losses), consecutive_failures=streak)
        return replace(record, retry_at=_retry_at(now, backoff_delay(limits, streak) if failed else 0.0))
    anew = sorted({loss.role for loss in losses if loss.scope is RestartScope.ROLE})
    climbs = workload.rules.restart_scope is not RestartScope.ROLE
    for name in anew:
        loss = _widest([loss for loss in losses if loss.role == name])
        record = record.with_role(name, _restart_role(record.role(name), loss, limits, now, climbs=climbs))
    for loss in losses:
        if loss.role not in anew:
            role = _bump_replacements(record.role(loss.role), (loss.index,), loss, limits, now)
            if limits.escalation.pod is not None and not loss.disrupted:
                role = replace(role, failure_streaks={**role.failure_streaks, loss.index: loss.failures})
            record = record.with_role(loss.role, role)
    return _with_counts(record, losses)


def _restart_role(
    role: RoleRecord, loss: LostPod, limits: Limits, now: datetime, *, climbs: bool
) -> RoleRecord:
    after = _bump_replacements(role, range(role.size), loss, limits, now)
    if climbs:
        after = escalation.count_role_restart(after, limits, now)
        after = replace(after, retry_at=_retry_at(now, backoff_delay(limits, after.role_restarts_in_a_row)))
    return replace(after, phase=Phase.PENDING, phase_since=now, created_below=0, lost_indexes={})


def _bump_replacements(
    role: RoleRecord, places: range | tuple[int, ...], loss: LostPod, limits: Limits, now: datetime
) -> RoleRecord:
    replaced = {**role.replacements, **{index: role.replacements.get(index, 0) + 1 for index in places}}
    again = not loss.disrupted and (loss.age_seconds is None or loss.age_seconds <= limits.backoff_reset)
    retry_at = _retry_at(now, backoff_delay(limits, replaced[loss.index]) if again else 0.0)
    gone = dict.fromkeys(places, 0)
    in_place = {index: n for index, n in role.container_restarts.items() if index not in gone}
    return replace(
        role,
        replacements=replaced,
        retry_at=max((time for time in (role.retry_at, retry_at) if time), default=None),
        container_restarts=in_place,
        container_restarts_counted=sum(in_place.values()),
        succeeded_indexes={index: 1 for index in role.succeeded_indexes if index not in gone},
        preempted_indexes={index: 1 for index in role.preempted_indexes if index not in gone},
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


def _message(losses: list[LostPod], record: Record, limit: int | None) -> str:
    first = _widest(losses)
    others = f" (and {pluralize(len(losses) - 1, 'other pod')})" if len(losses) > 1 else ""
    often = (
        f" after {pluralize(first.container_restarts, 'restart')} in its place"
        if first.container_restarts
        else ""
    )
    doing = {
        RestartScope.POD: "replacing it" if len(losses) == 1 else "replacing them",
        RestartScope.ROLE: f"starting all of {first.role} anew",
        RestartScope.JOB: f"starting attempt {record.attempt + 1}",
    }[first.scope]
    said = f"{messages.describe_restart(first.entry)}{others}; {doing}{often}"
    if all(loss.disrupted for loss in losses):
        return said
    budget = f"{record.restarts} of {limit}" if limit is not None else f"{record.restarts}"
    return f"{said}, {budget} restarts used"


def _widest_scope(losses: list[LostPod]) -> RestartScope:
    return max((loss.scope for loss in losses), key=list(RestartScope).index)


def _widest(losses: list[LostPod]) -> LostPod:
    """The loss for which most is started anew; among equals a failure, and of these the likeliest cause."""
    highest = _widest_scope(losses)
    climbers = [loss for loss in losses if loss.scope is highest]
    return _root_cause([loss for loss in climbers if not loss.disrupted] or climbers)


def _root_cause(losses: list[LostPod]) -> LostPod:
    """The loss to tell people of first."""
    return next((loss for loss in losses if loss.killed), losses[0])


def _restarts_exceeded(record: Record, kept: int, limit: int) -> PhaseResult:
    """The ending of a job whose containers were restarted by nodes, or whose pods failed and are kept."""
    last = (
        f"{messages.describe_restart(record.restart_history[-1])}; "
        if record.restart_history and not kept
        else ""
    )
    needed = pluralize(record.restarts + kept, "restart")
    said = f"{last}{needed} were needed and {limit} allowed (limits.restarts)"
    return PhaseResult(Phase.FAILED, reasons.RESTARTS_EXHAUSTED, said)


def _no_restarts_left(why: str, limit: int, *, used: int, needed: int) -> PhaseResult:
    """Return the ending of a job that needs more restarts than its limit leaves."""
    counts = f"{used} of {pluralize(limit, 'restart')} used, {needed} more needed (limits.restarts)"
    left = f"restart limit reached: {counts}" if limit else "no restarts are allowed (limits.restarts is 0)"
    return PhaseResult(Phase.FAILED, reasons.RESTARTS_EXHAUSTED, f"{why}; {left}")
