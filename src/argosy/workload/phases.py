"""Derives the phase of each role from its pods, and the phase of the job from its roles.

A role's outcome is declared: AnyPod or AllPods for failure and for success; failure is checked first. The
first rule that matches wins, so each rule may assume that the rules above it did not match. A role returns to
Starting only when the job restarts; missing pods show in the counts and in the job's phase Restarting, not in
the role's phase.
"""

from collections.abc import Iterable, Sequence, Set
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.text import join_names, pluralize
from argosy.workload import messages, reasons
from argosy.workload.current_pods import current_pods
from argosy.workload.dependencies import is_creation_held
from argosy.workload.index_set import EMPTY
from argosy.workload.model import Phase, Quantifier, RestartPolicy, Role, RolePolicy, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord

_REPORTED_PHASES = frozenset({"Running", "Succeeded", "Failed", "Unknown"})


class Counts(Struct, frozen=True):
    """Numbers of pods of a role, with each replica counted once."""

    pending: int = 0
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    failed_by_node: int = 0
    """Those of them that failed because of their node, and may continue if it comes back."""
    unknown: int = 0
    terminating: int = 0
    missing_indexes: tuple[int, ...] = ()
    """Indexes whose pod existed and is being deleted or is confirmed to be deleted."""
    first_failed: ObservedPod | None = None
    """The first failed pod."""
    left: int = 0
    """Replicas that were asked to save and leave the role, and have ended. They count as neither failed nor
    succeeded, and not for the size of the role."""

    @property
    def existing(self) -> int:
        """Number of replicas with a pod that is not being deleted, or that have succeeded."""
        return self.pending + self.active + self.succeeded + self.failed + self.unknown

    @property
    def has_pods(self) -> bool:
        """True if the role has, or had, any pod."""
        return bool(
            self.pending or self.active or self.unknown or self.terminating or self.succeeded or self.failed
        )


class PhaseResult(Struct, frozen=True):
    """A phase of a role, or a terminal phase of a job, and the reason for it."""

    phase: Phase
    reason: str = ""
    message: str = ""


def with_role_phases(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record:
    """Return the record with the current phase of every role."""
    roles: dict[str, RoleRecord] = {}
    for name, role in workload.roles.items():
        last = record.role(name)
        counts = count_pods(workload, role, record, observed)
        result = role_phase(workload, role, last, counts)
        since = last.phase_since if result.phase is last.phase else now
        roles[name] = replace(
            last,
            phase=result.phase,
            reason=result.reason,
            message=result.message,
            phase_since=since,
            created=last.created if result.phase not in (Phase.PENDING, Phase.STARTING) else EMPTY,
        )
    return replace(record, roles=roles)


def count_pods(workload: Workload, role: Role, record: Record, observed: Observed) -> Counts:
    """Count the current pods of a role; pods that are being replaced are not current."""
    last, asked = record.role(role.name), record.asked_to_leave(role.name).lookup
    down = observed.failed_nodes(role.policy, workload.semantics)
    numbers = {"Pending": 0, "Running": 0, "Succeeded": 0, "Failed": 0, "Unknown": 0, "Terminating": 0}
    numbers["Succeeded"] = sum(
        index in last.members and index not in asked for index in last.succeeded_indexes
    )
    left = sum(index in asked for index in last.succeeded_indexes)
    counted: set[int] = set(last.succeeded_indexes)
    skipped = {*last.succeeded_indexes, *last.joining}
    missing: list[int] = []
    failed: list[ObservedPod] = []
    for pod in current_pods(record, role.name, observed):
        if pod.index in skipped:
            continue
        counted.add(pod.index)
        kind = _kind(pod, down)
        if pod.index in asked and kind in ("Succeeded", "Failed"):
            left += 1
            continue
        numbers[kind] += 1
        if kind == "Terminating":
            missing.append(pod.index)
        if kind == "Failed":
            failed.append(pod)
    missing += [index for index in last.lost_indexes if index in last.members and index not in counted]
    return Counts(
        pending=numbers["Pending"],
        active=numbers["Running"],
        succeeded=numbers["Succeeded"],
        failed=numbers["Failed"],
        failed_by_node=sum(not pod.ended for pod in failed),
        unknown=numbers["Unknown"],
        terminating=numbers["Terminating"],
        missing_indexes=tuple(sorted(missing)),
        first_failed=min(failed, key=lambda pod: pod.index, default=None),
        left=left,
    )


def role_phase(workload: Workload, role: Role, last: RoleRecord, counts: Counts) -> PhaseResult:
    """Return the phase of a role; the first rule that matches decides."""
    policy, size = role.policy or RolePolicy(), max(last.size - counts.left, min(last.size, 1))
    needed = min(role.min_running, size)
    ended = counts.succeeded + counts.failed - counts.failed_by_node if policy.ends else -1
    if _meets(policy.failed, counts.failed, size):
        reason = (
            reasons.PREEMPTED
            if counts.first_failed and counts.first_failed.index in last.preempted_indexes
            else reasons.POD_FAILED
        )
        return PhaseResult(Phase.FAILED, reason, _describe_failure(counts))
    if _meets(policy.succeeded, counts.succeeded, size):
        return PhaseResult(Phase.SUCCEEDED)
    if ended >= size and counts.failed:
        return PhaseResult(
            Phase.FAILED,
            reasons.MIXED_OUTCOME,
            f"{_describe_failure(counts)}; all pods of the role have ended",
        )
    if ended >= size:
        return PhaseResult(Phase.SUCCEEDED)
    succeeded = 0 if workload.semantics.running_needs_all_pods else counts.succeeded
    if counts.active and counts.active + succeeded >= needed:
        return PhaseResult(Phase.RUNNING)
    if last.phase is Phase.PENDING and counts.has_pods:
        return PhaseResult(Phase.STARTING)
    never = role.restart is RestartPolicy.NEVER and not role.replacement.refill_deleted
    if never and last.phase is Phase.RUNNING and counts.missing_indexes:
        left = len(last.created) - len(counts.missing_indexes)
        if left < needed:
            return _missing_pods(role, last, counts.missing_indexes)
    return PhaseResult(last.phase, last.reason, last.message)


def _missing_pods(role: Role, last: RoleRecord, indexes: Sequence[int]) -> PhaseResult:
    """Return the failure of a role without restarts whose pods of these indexes do not exist any more."""
    names = [messages.replica_name(role.name, index) for index in indexes]
    preempted = all(index in last.preempted_indexes for index in indexes)
    reason = reasons.PREEMPTED if preempted else reasons.POD_MISSING
    return PhaseResult(Phase.FAILED, reason, messages.missing_pods(names, preempted=preempted))


def terminal_result(workload: Workload, record: Record) -> PhaseResult | None:
    """Return the success or failure of the job that its roles' phases decide; None if it continues."""
    roles = {name: record.role(name) for name in workload.roles}
    failed = _first_matching(workload.rules.failed_when, roles, Phase.FAILED)
    if failed:
        return _failure(failed, roles)
    succeeded = _first_matching(workload.rules.succeeded_when, roles, Phase.SUCCEEDED)
    if succeeded:
        return PhaseResult(Phase.SUCCEEDED, reasons.COMPLETED, f"{join_names(succeeded)} succeeded")
    if not all(role.phase.terminal for role in roles.values()):
        return None
    failed = [name for name, role in roles.items() if role.phase is Phase.FAILED]
    if failed:
        return _failure(failed, roles)
    return PhaseResult(Phase.SUCCEEDED, reasons.COMPLETED, "all roles succeeded")


def job_phase(workload: Workload, record: Record, observed: Observed) -> Phase:
    """Return the phase of a job that has not finished."""
    phases = [record.role(name).phase for name in workload.roles]
    steady = all(_has_required_pods(workload, role, record, observed) for role in workload.roles.values())
    needs_all = workload.semantics.running_needs_all_pods
    if record.phase in (Phase.RUNNING, Phase.RESTARTING) and (record.first_running_at or not needs_all):
        return Phase.RUNNING if steady else Phase.RESTARTING
    enough = (Phase.RUNNING,) if needs_all else (Phase.RUNNING, Phase.SUCCEEDED)
    if (steady or needs_all) and all(phase in enough for phase in phases):
        return Phase.RUNNING
    return Phase.STARTING if record.started_at else record.phase


def with_attempt_started(workload: Workload, record: Record, now: datetime) -> Record:
    """Return the record of an attempt whose first pods are created now."""
    roles = {
        name: replace(role, phase=Phase.STARTING, phase_since=now)
        if role.phase is Phase.PENDING and not is_creation_held(workload.roles[name], record)
        else role
        for name, role in record.roles.items()
    }
    return replace(record, attempt_started_at=now, started_at=record.started_at or now, roles=roles)


def _has_required_pods(workload: Workload, role: Role, record: Record, observed: Observed) -> bool:
    """Return True if the role has the pods it needs, or no more pods will be created for it."""
    last = record.role(role.name)
    if last.phase.terminal:
        return True
    counts = count_pods(workload, role, record, observed)
    never = role.restart is RestartPolicy.NEVER and not role.replacement.refill_deleted
    if never and last.phase is Phase.RUNNING:
        return True
    needed = min(role.min_running, last.size - counts.left)
    return counts.active + counts.succeeded + counts.unknown >= needed


def _kind(pod: ObservedPod, down: Set[str]) -> str:
    if pod.terminating:
        return "Terminating"
    if down and pod.node in down:
        return "Failed"
    return pod.phase if pod.phase in _REPORTED_PHASES else "Pending"


def _meets(quantifier: Quantifier | None, number: int, size: int) -> bool:
    if quantifier is Quantifier.ANY:
        return number > 0
    return quantifier is Quantifier.ALL and number >= size


def _describe_failure(counts: Counts) -> str:
    return (
        messages.describe_end(counts.first_failed)
        if counts.first_failed
        else pluralize(counts.failed, "pod") + " failed"
    )


def _first_matching(
    lists: Iterable[Sequence[str]], roles: dict[str, RoleRecord], phase: Phase
) -> Sequence[str] | None:
    return next(
        (names for names in lists if names and all(roles[name].phase is phase for name in names)), None
    )


def _failure(names: Sequence[str], roles: dict[str, RoleRecord]) -> PhaseResult:
    first = roles[names[0]]
    return PhaseResult(
        Phase.FAILED,
        first.reason or reasons.ROLE_FAILED,
        first.message or f"{join_names(names)} failed",
    )
