"""Replaces what was lost: a pod, its role or the whole job, as far as the cause demands and the budget
allows.

A failure is known by its place, attempt and replacement number, all of which stand on the pod. Recording the
next number is what counts the failure, so it is counted once however often the pod is seen again. A pod's
own failure uses up a restart; what the cluster takes away (eviction, deletion, a lost node) does not.
"""

from collections.abc import Set
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import words
from argosy.workload.causes import Why, lost, mark
from argosy.workload.model import Limits, Phase, Restart, Role, RolePolicy, Scope, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.phases import Ending
from argosy.workload.places import current, present
from argosy.workload.record import RESTARTS, Record, Restarted, RoleRecord


class Loss(Struct, frozen=True):
    """A place whose pod must be replaced."""

    told: Restarted
    """What is remembered of it; its rung is only known when all losses are."""
    counted: bool
    lived: float | None = None
    """Seconds since the pod was created."""

    @property
    def role(self) -> str:
        return self.told.role

    @property
    def index(self) -> int:
        return self.told.index

    @property
    def killed(self) -> bool:
        """Ended by a signal: likelier the cause than a peer that gave up because of it."""
        return self.told.cause in (Why.SIGNAL, Why.OUT_OF_MEMORY)


class Repair(Struct, frozen=True):
    record: Record
    ending: Ending | None = None
    causes: tuple[str, ...] = ()
    """One for every restart: of a pod, or of all at once."""


def repair(workload: Workload, record: Record, seen: Observed, now: datetime) -> Repair:
    """The record that replaces what was lost, or the ending if no restart is left for it."""
    limit = workload.limits.restarts
    kept = _kept(workload, record, seen) if workload.limits.kept_failures else 0
    if limit is not None and record.restarts + kept > limit:
        return Repair(record, _overrun(record, kept, limit))
    losses = [
        loss
        for role in workload.roles.values()
        if record.role(role.name).phase is not Phase.SUCCEEDED
        for loss in _losses(workload, role, record, seen, now)
    ]
    gaps = _gaps(workload, record, seen, now)
    record = record.restarting(*gaps)
    if not losses:
        return Repair(record, causes=tuple(gap.cause for gap in gaps))
    counted = [loss for loss in losses if loss.counted]
    scope = workload.rules.restart_scope
    used = len(counted) if scope is Scope.POD else min(1, len(counted))
    if limit is not None and counted and record.restarts + used + kept > limit:
        return Repair(record, _exhausted(limit, words.restarted(_likeliest(counted).told)))
    record = replace(
        record, restarts=record.restarts + used, disruptions=record.disruptions + len(losses) - len(counted)
    )
    message = _message(losses, scope, record, limit)
    told = _told(losses, scope)
    record = _replaced(workload, record, losses, now).noting(now, "Restarting", message).restarting(*told)
    since = record.since if record.phase is Phase.RESTARTING else now
    record = replace(record, phase=Phase.RESTARTING, since=since, reason="Restarting", message=message)
    return Repair(record, causes=tuple(one.cause for one in (*gaps, *told)))


def _told(losses: list[Loss], scope: Scope) -> list[Restarted]:
    """One restart for each pod, or one for all of them."""
    if scope is Scope.POD:
        return [replace(loss.told, rung=scope) for loss in losses]
    first = _likeliest([loss for loss in losses if loss.counted] or losses)
    return [replace(first.told, rung=scope, others=len(losses) - 1)]


def _gaps(workload: Workload, record: Record, seen: Observed, now: datetime) -> list[Restarted]:
    """Pods that others took away and that merely leave a gap to fill: each is told once.

    Nothing hangs on it but what people read. So it takes only what was seen to go, never what is not seen,
    and looks at no more pods at once than are remembered.
    """
    if workload.rules.restart_scope is not Scope.POD:
        return []
    beside = {role.name for role in workload.roles.values() if role.beside}
    going = (pod for pod in seen.pods if pod.terminating and pod.role not in beside)
    taken = {(pod.role, pod.index): pod for pod in (*seen.departed, *going)}
    if not taken:
        return []
    gaps = [taken[place] for place in sorted(taken) if _leaves_gap(workload, record, taken[place], seen)]
    known = {one.mark for one in record.restarted}
    return [
        replace(lost(pod, now, Scope.POD, seen.nodes_down), mark=mark(pod))
        for pod in gaps[:RESTARTS]
        if mark(pod) not in known
    ]


def _leaves_gap(workload: Workload, record: Record, pod: ObservedPod, seen: Observed) -> bool:
    role, last = workload.roles.get(pod.role), record.role(pod.role)
    if role is None or role.restart is Restart.NEVER or not current(record, pod):
        return False
    if last.phase is not Phase.RUNNING or pod.index >= last.created or pod.index in last.done:
        return False
    return all(other.terminating for other in seen.by_place.get((pod.role, pod.index), ()))


def _kept(workload: Workload, record: Record, seen: Observed) -> int:
    """Failed pods that stay where they are."""
    return sum(
        pod.phase == "Failed" and not pod.terminating and not replaces(role, pod)
        for role in workload.roles.values()
        for pod in present(record, role.name, seen)
    )


def replaces(role: Role, pod: ObservedPod) -> bool:
    """Whether the role's policy replaces this ended pod."""
    if role.restart is Restart.ALWAYS:
        return True
    if pod.phase != "Failed" and not pod.disrupted:
        return False
    if role.restart is Restart.EXIT_CODE and role.exit_codes:
        return pod.phase == "Failed" and pod.first_exit_code in role.exit_codes
    if role.restart is Restart.EXIT_CODE:
        return pod.disrupted or pod.exit_code is None or pod.exit_code >= 128
    return role.restart is Restart.ON_FAILURE


def delay(limits: Limits, times: int) -> float:
    """Seconds before the `times`-th replacement in a row: none, then doubling."""
    if times <= 1:
        return 0.0
    return min(limits.backoff_max, limits.backoff * 2.0 ** min(times - 2, 30))


def next_attempt(record: Record) -> Record:
    """The record of a job all of whose pods start anew; totals are kept."""
    roles = {
        name: RoleRecord(restarts=role.restarts, since=role.since, size=role.size)
        for name, role in record.roles.items()
    }
    return replace(record, attempt=record.attempt + 1, roles=roles, began=None)


def _losses(workload: Workload, role: Role, record: Record, seen: Observed, now: datetime) -> list[Loss]:
    if role.restart is Restart.NEVER:
        return []
    whole = workload.rules.restart_scope is not Scope.POD
    last = record.role(role.name)
    losses: list[Loss] = []
    down = seen.down(role.policy or RolePolicy())
    for pod in present(record, role.name, seen):
        if pod.index in last.done:
            continue
        if _is_lost(role, pod, down) or (pod.terminating and (whole or role.beside)):
            lived = (now - pod.created).total_seconds() if pod.created else None
            counted = pod.phase == "Failed" and not (pod.disrupted or pod.terminating)
            losses.append(Loss(lost(pod, now, down=seen.nodes_down), counted, lived))
    if whole and last.phase is Phase.RUNNING:
        departed = {(pod.role, pod.index): pod for pod in seen.departed if current(record, pod)}
        for index in range(min(last.size, last.created)):
            place = (role.name, index)
            gone = place in seen.absent and not seen.by_place.get(place)
            if gone and index not in last.done:
                unseen = Restarted(now, role.name, index, Why.DELETED, "", record.attempt)
                told = lost(departed[place], now, down=seen.nodes_down) if place in departed else unseen
                losses.append(Loss(told, counted=False))
    return sorted(losses, key=lambda loss: loss.index)


def _is_lost(role: Role, pod: ObservedPod, down: Set[str]) -> bool:
    if pod.terminating:
        return False
    return replaces(role, pod) if pod.ended else pod.node in down


def _replaced(workload: Workload, record: Record, losses: list[Loss], now: datetime) -> Record:
    limits, scope = workload.limits, workload.rules.restart_scope
    if scope is Scope.JOB:
        long = record.began is not None and (now - record.began).total_seconds() > limits.backoff_reset
        failed = any(loss.counted for loss in losses)
        streak = (1 if long else record.streak + 1) if failed else record.streak
        record = replace(_counted(next_attempt(record), losses), streak=streak)
        return replace(record, retry_at=_later(now, delay(limits, streak) if failed else 0.0))
    for loss in losses if scope is Scope.POD else _one_per_role(losses):
        role = record.role(loss.role)
        places = range(role.size) if scope is Scope.ROLE else (loss.index,)
        role = _next(role, places, loss, limits, now)
        if scope is Scope.ROLE:
            role = replace(role, phase=Phase.PENDING, since=now, created=0, gone={})
        record = record.with_role(loss.role, role)
    return _counted(record, losses)


def _next(
    role: RoleRecord, places: range | tuple[int, ...], loss: Loss, limits: Limits, now: datetime
) -> RoleRecord:
    replaced = {**role.replaced, **{index: role.replaced.get(index, 0) + 1 for index in places}}
    again = loss.counted and (loss.lived is None or loss.lived <= limits.backoff_reset)
    retry_at = _later(now, delay(limits, replaced[loss.index]) if again else 0.0)
    gone = dict.fromkeys(places, 0)
    in_place = {index: n for index, n in role.in_place.items() if index not in gone}
    return replace(
        role,
        replaced=replaced,
        retry_at=max((time for time in (role.retry_at, retry_at) if time), default=None),
        in_place=in_place,
        in_place_counted=sum(in_place.values()),
        done={index: 1 for index in role.done if index not in gone},
        preempted={index: 1 for index in role.preempted if index not in gone},
    )


def _counted(record: Record, losses: list[Loss]) -> Record:
    for loss in losses:
        if loss.counted:
            role = record.role(loss.role)
            record = record.with_role(loss.role, replace(role, restarts=role.restarts + 1))
    return record


def _one_per_role(losses: list[Loss]) -> list[Loss]:
    first: dict[str, Loss] = {}
    for loss in sorted(losses, key=lambda one: not one.counted):
        first.setdefault(loss.role, loss)
    return list(first.values())


def _later(now: datetime, seconds: float) -> datetime | None:
    return now + timedelta(seconds=seconds) if seconds else None


def _message(losses: list[Loss], scope: Scope, record: Record, limit: int | None) -> str:
    counted = [loss for loss in losses if loss.counted]
    first = _likeliest(counted or losses)
    others = f" (and {words.many(len(losses) - 1, 'other pod')})" if len(losses) > 1 else ""
    doing = {
        Scope.POD: "replacing it" if len(losses) == 1 else "replacing them",
        Scope.ROLE: f"starting all of {first.role} anew",
        Scope.JOB: f"starting attempt {record.attempt + 1}",
    }[scope]
    if not counted:
        return f"{words.restarted(first.told)}{others}; {doing}"
    budget = f"{record.restarts} of {limit}" if limit is not None else f"{record.restarts}"
    return f"{words.restarted(first.told)}{others}; {doing}, {budget} restarts used"


def _likeliest(losses: list[Loss]) -> Loss:
    """The loss to tell people of first."""
    return next((loss for loss in losses if loss.killed), losses[0])


def _overrun(record: Record, kept: int, limit: int) -> Ending:
    """The ending of a job whose containers were restarted by nodes, or whose pods failed and are kept."""
    last = f"{words.restarted(record.restarted[-1])}; " if record.restarted else ""
    needed = words.many(record.restarts + kept, "restart")
    said = f"{last}{needed} were needed and {limit} allowed (limits.restarts)"
    return Ending(Phase.FAILED, "RestartsExhausted", said)


def _exhausted(limit: int, why: str) -> Ending:
    left = f"all {limit} restarts are used" if limit else "no restarts are allowed (limits.restarts is 0)"
    return Ending(Phase.FAILED, "RestartsExhausted", f"{why}; {left}")
