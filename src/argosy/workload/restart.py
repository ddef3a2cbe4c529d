"""Replaces what was lost: a pod, its role or the whole job, as far as the cause demands and the budget
allows.

A failure is known by its place, attempt and replacement number, all of which stand on the pod. Recording the
next number is what counts the failure, so it is counted once however often the pod is seen again. A pod's
own failure uses up a restart, and so does its eviction for more storage than its limits allow; what the
cluster takes away (any other eviction, deletion, a lost node) does not.
"""

from collections.abc import Set
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import disruptions, escalation, messages
from argosy.workload.current_pods import current_pods, is_current
from argosy.workload.model import Limits, Phase, RestartPolicy, RestartScope, Role, RolePolicy, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.phases import PhaseResult
from argosy.workload.record import Record, RestartEntry, RoleRecord
from argosy.workload.restart_causes import Why, lost, restarted_in_place


class Loss(Struct, frozen=True):
    """A place whose pod must be replaced."""

    told: RestartEntry
    """What is remembered of it."""
    counted: bool
    rung: RestartScope
    """What it takes to be started anew for it."""
    failures: int = 0
    """Of its place, in a row."""
    in_place: int = 0
    """Restarts of its containers, if it is lost because there were too many; they have been counted."""
    lived: float | None = None
    """Seconds since the pod was created."""

    @property
    def role(self) -> str:
        return self.told.role

    @property
    def index(self) -> int:
        return self.told.index

    @property
    def disrupted(self) -> bool:
        """Lost by no fault of its own."""
        return not self.counted and not self.in_place

    @property
    def killed(self) -> bool:
        """Ended by a signal: likelier the cause than a peer that gave up because of it."""
        return self.told.cause in (Why.SIGNAL, Why.OUT_OF_MEMORY)


class Repair(Struct, frozen=True):
    record: Record
    ending: PhaseResult | None = None
    causes: tuple[str, ...] = ()
    """One for every restart: of a pod, or of all at once."""


def repair(workload: Workload, record: Record, seen: Observed, now: datetime) -> Repair:
    """The record that replaces what was lost, or the ending if no restart is left for it."""
    limit = workload.limits.restarts
    kept = _kept(workload, record, seen) if workload.limits.count_unreplaced_failures else 0
    if limit is not None and record.restarts + kept > limit:
        return Repair(record, _overrun(record, kept, limit))
    losses = [
        loss
        for role in workload.roles.values()
        if record.role(role.name).phase is not Phase.SUCCEEDED
        for loss in _losses(workload, role, record, seen, now)
    ]
    taken = disruptions.fresh(workload, record, seen, now)
    record = record.with_restarts(*taken)
    if not losses:
        return Repair(record, causes=tuple(gap.cause for gap in taken))
    counted = [loss for loss in losses if loss.counted]
    used = len(counted) if workload.rules.restart_scope is RestartScope.POD else min(1, len(counted))
    if limit is not None and counted and record.restarts + used + kept > limit:
        why = messages.restarted(_likeliest(counted).told)
        return Repair(record, _limit_reached(why, limit, used=record.restarts + kept, needed=used))
    disruption_count = record.disruptions + sum(loss.disrupted for loss in losses)
    record = replace(record, restarts=record.restarts + used, disruptions=disruption_count)
    message = _message(losses, record, limit)
    told = _told(losses)
    record = (
        _replaced(workload, record, losses, now).with_history(now, "Restarting", message).with_restarts(*told)
    )
    since = record.phase_since if record.phase is Phase.RESTARTING else now
    record = replace(record, phase=Phase.RESTARTING, phase_since=since, reason="Restarting", message=message)
    return Repair(record, causes=tuple(one.cause for one in (*taken, *told)))


def _told(losses: list[Loss]) -> list[RestartEntry]:
    """One restart for each pod, or one for all that are started anew together."""
    if _highest(losses) is RestartScope.POD:
        return [replace(loss.told, scope=RestartScope.POD) for loss in losses]
    first = _first(losses)
    return [replace(first.told, scope=first.rung, also_lost=len(losses) - 1)]


def _kept(workload: Workload, record: Record, seen: Observed) -> int:
    """Failed pods that stay where they are."""
    return sum(
        pod.phase == "Failed" and not pod.terminating and not replaces(role, pod)
        for role in workload.roles.values()
        for pod in current_pods(record, role.name, seen)
    )


def replaces(role: Role, pod: ObservedPod) -> bool:
    """Whether the role's policy replaces this ended pod."""
    if role.restart is RestartPolicy.ALWAYS:
        return True
    if pod.phase != "Failed" and not pod.disrupted:
        return False
    if role.restart is RestartPolicy.EXIT_CODE and role.exit_codes:
        return pod.phase == "Failed" and pod.first_exit_code in role.exit_codes
    if role.restart is RestartPolicy.EXIT_CODE:
        return pod.disrupted or pod.exit_code is None or pod.exit_code >= 128
    return role.restart is RestartPolicy.ON_FAILURE


def delay(limits: Limits, times: int) -> float:
    """Seconds before the `times`-th replacement in a row: none, then doubling."""
    if times <= 1:
        return 0.0
    return min(limits.backoff_max, limits.backoff * 2.0 ** min(times - 2, 30))


def next_attempt(record: Record) -> Record:
    """The record of a job all of whose pods start anew; totals are kept."""
    roles = {name: role.for_next_attempt() for name, role in record.roles.items()}
    return replace(record, attempt=record.attempt + 1, roles=roles, attempt_started_at=None)


def _losses(workload: Workload, role: Role, record: Record, seen: Observed, now: datetime) -> list[Loss]:
    if role.restart is RestartPolicy.NEVER:
        return []
    whole = workload.rules.restart_scope is not RestartScope.POD
    last = record.role(role.name)
    losses: list[Loss] = []
    nodes = seen.nodes_to_replace(role.policy or RolePolicy())
    for pod in current_pods(record, role.name, seen):
        if pod.index in last.succeeded_indexes:
            continue
        if _is_lost(role, pod, nodes) or (pod.terminating and (whole or role.surge)):
            losses.append(_loss(workload, last, pod, seen, now))
        elif escalation.crashes(workload.limits, pod):
            losses.append(_crash(workload, last, pod, now))
    if whole and last.phase is Phase.RUNNING:
        departed = {(pod.role, pod.index): pod for pod in seen.recently_deleted if is_current(record, pod)}
        for index in range(min(last.size, last.created_below)):
            place = (role.name, index)
            gone = place in seen.confirmed_absent and not seen.by_replica.get(place)
            if gone and index not in last.succeeded_indexes:
                unseen = RestartEntry(now, role.name, index, Why.DELETED, "", record.attempt)
                told = lost(departed[place], now, down=seen.nodes_down) if place in departed else unseen
                losses.append(Loss(told, counted=False, rung=workload.rules.restart_scope))
    return sorted(losses, key=lambda loss: loss.index)


def _loss(workload: Workload, last: RoleRecord, pod: ObservedPod, seen: Observed, now: datetime) -> Loss:
    told = lost(pod, now, down=seen.nodes_down)
    lived = _lived(pod, now)
    if pod.phase != "Failed" or pod.disrupted or pod.terminating:
        return Loss(told, counted=False, rung=workload.rules.restart_scope, lived=lived)
    failures = escalation.failures_in_a_row(last, pod.index, lived, workload.limits)
    rung = escalation.rung(workload.rules, workload.limits, last, failures, now)
    return Loss(told, counted=True, rung=rung, failures=failures, lived=lived)


def _crash(workload: Workload, last: RoleRecord, pod: ObservedPod, now: datetime) -> Loss:
    """A pod whose containers do not get on their feet again."""
    lived = _lived(pod, now)
    failures = escalation.failures_in_a_row(last, pod.index, lived, workload.limits)
    rung = escalation.rung(workload.rules, workload.limits, last, failures, now)
    told = replace(restarted_in_place(pod, now), scope="")
    return Loss(
        told, counted=False, rung=rung, failures=failures, in_place=pod.container_restarts, lived=lived
    )


def _lived(pod: ObservedPod, now: datetime) -> float | None:
    return (now - pod.created).total_seconds() if pod.created else None


def _is_lost(role: Role, pod: ObservedPod, replaced_nodes: Set[str]) -> bool:
    if pod.terminating:
        return False
    return replaces(role, pod) if pod.ended else pod.node in replaced_nodes


def _replaced(workload: Workload, record: Record, losses: list[Loss], now: datetime) -> Record:
    limits = workload.limits
    if _highest(losses) is RestartScope.JOB:
        long = (
            record.attempt_started_at is not None
            and (now - record.attempt_started_at).total_seconds() > limits.backoff_reset
        )
        failed = not all(loss.disrupted for loss in losses)
        streak = (1 if long else record.consecutive_failures + 1) if failed else record.consecutive_failures
        record = replace(_counted(next_attempt(record), losses), consecutive_failures=streak)
        return replace(record, retry_at=_later(now, delay(limits, streak) if failed else 0.0))
    anew = sorted({loss.role for loss in losses if loss.rung is RestartScope.ROLE})
    climbs = workload.rules.restart_scope is not RestartScope.ROLE
    for name in anew:
        loss = _first([loss for loss in losses if loss.role == name])
        record = record.with_role(name, _role_anew(record.role(name), loss, limits, now, climbs=climbs))
    for loss in losses:
        if loss.role not in anew:
            role = _next(record.role(loss.role), (loss.index,), loss, limits, now)
            if limits.escalation.pod is not None and not loss.disrupted:
                role = replace(role, failure_streaks={**role.failure_streaks, loss.index: loss.failures})
            record = record.with_role(loss.role, role)
    return _counted(record, losses)


def _role_anew(role: RoleRecord, loss: Loss, limits: Limits, now: datetime, *, climbs: bool) -> RoleRecord:
    after = _next(role, range(role.size), loss, limits, now)
    if climbs:
        after = escalation.role_anew(after, limits, now)
        after = replace(after, retry_at=_later(now, delay(limits, after.role_restarts_in_a_row)))
    return replace(after, phase=Phase.PENDING, phase_since=now, created_below=0, lost_indexes={})


def _next(
    role: RoleRecord, places: range | tuple[int, ...], loss: Loss, limits: Limits, now: datetime
) -> RoleRecord:
    replaced = {**role.replacements, **{index: role.replacements.get(index, 0) + 1 for index in places}}
    again = not loss.disrupted and (loss.lived is None or loss.lived <= limits.backoff_reset)
    retry_at = _later(now, delay(limits, replaced[loss.index]) if again else 0.0)
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


def _counted(record: Record, losses: list[Loss]) -> Record:
    for loss in losses:
        role = record.role(loss.role)
        if loss.counted:
            record = record.with_role(loss.role, replace(role, restarts=role.restarts + 1))
        elif loss.disrupted and loss.told.cause != Why.DELETED:
            record = record.with_role(loss.role, replace(role, disruptions=role.disruptions + 1))
    return record


def _later(now: datetime, seconds: float) -> datetime | None:
    return now + timedelta(seconds=seconds) if seconds else None


def _message(losses: list[Loss], record: Record, limit: int | None) -> str:
    first = _first(losses)
    others = f" (and {messages.many(len(losses) - 1, 'other pod')})" if len(losses) > 1 else ""
    often = f" after {messages.many(first.in_place, 'restart')} in its place" if first.in_place else ""
    doing = {
        RestartScope.POD: "replacing it" if len(losses) == 1 else "replacing them",
        RestartScope.ROLE: f"starting all of {first.role} anew",
        RestartScope.JOB: f"starting attempt {record.attempt + 1}",
    }[first.rung]
    said = f"{messages.restarted(first.told)}{others}; {doing}{often}"
    if all(loss.disrupted for loss in losses):
        return said
    budget = f"{record.restarts} of {limit}" if limit is not None else f"{record.restarts}"
    return f"{said}, {budget} restarts used"


def _highest(losses: list[Loss]) -> RestartScope:
    return max((loss.rung for loss in losses), key=list(RestartScope).index)


def _first(losses: list[Loss]) -> Loss:
    """The loss for which most is started anew; among equals a failure, and of these the likeliest cause."""
    highest = _highest(losses)
    climbers = [loss for loss in losses if loss.rung is highest]
    return _likeliest([loss for loss in climbers if not loss.disrupted] or climbers)


def _likeliest(losses: list[Loss]) -> Loss:
    """The loss to tell people of first."""
    return next((loss for loss in losses if loss.killed), losses[0])


def _overrun(record: Record, kept: int, limit: int) -> PhaseResult:
    """The ending of a job whose containers were restarted by nodes, or whose pods failed and are kept."""
    last = (
        f"{messages.restarted(record.restart_history[-1])}; " if record.restart_history and not kept else ""
    )
    needed = messages.many(record.restarts + kept, "restart")
    said = f"{last}{needed} were needed and {limit} allowed (limits.restarts)"
    return PhaseResult(Phase.FAILED, "RestartsExhausted", said)


def _limit_reached(why: str, limit: int, *, used: int, needed: int) -> PhaseResult:
    """Return the ending of a job that needs more restarts than its limit leaves."""
    counts = f"{used} of {messages.many(limit, 'restart')} used, {needed} more needed (limits.restarts)"
    left = f"restart limit reached: {counts}" if limit else "no restarts are allowed (limits.restarts is 0)"
    return PhaseResult(Phase.FAILED, "RestartsExhausted", f"{why}; {left}")
