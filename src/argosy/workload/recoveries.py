"""Records how a job with checkpoints recovers from losses of pods: from the notice until it trains again.

A recovery is opened by a notice, by a suspension or a new size, or by pods that were lost without notice. It
follows from the Record alone which of these have replaced pods, so each loss is recorded once. It ends when
the job runs again and its pods have reported from which checkpoint they started.

Programs that save when they get SIGTERM do so after their pods are replaced in the Record. That they have is
concluded only from a new checkpoint, which one of their pods acknowledges or the new pods start from.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec.structs import replace

from argosy.workload import reasons
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.checkpoint_record import Recovery
from argosy.workload.current_pods import all_current_pods, is_current
from argosy.workload.lost_steps import max_step, steps_lost, with_reached_step, with_steps_lost
from argosy.workload.model import Phase, Workload
from argosy.workload.notice import NoticeResponse, OpenNotice, SaveStep
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RestartEntry
from argosy.workload.restarts.causes import CONTAINER, RestartCause

REPORT_SECONDS = 15.0
"""Seconds for which pods that run may report from which checkpoint they have started."""


class RecoveryOutcome(StrEnum):
    """What became of a loss."""

    RECOVERED = "Recovered"
    """The pods continue from a checkpoint that was saved after the notice."""
    PROGRESS_LOST = "ProgressLost"
    """They continue from an older one, or from the beginning."""
    SIGNALLED = "Signalled"
    """They run again after their program got SIGTERM, and nothing shows whether it has saved."""
    SUPERSEDED = "Superseded"
    """Pods were replaced again before they ran, or the notice was withdrawn."""
    FAILED = "Failed"
    """The job has failed."""


_DELETED = (RestartCause.DELETED, RestartCause.PREEMPTED, RestartCause.DISRUPTED)
"""Causes of restarts of pods that were deleted, and so got SIGTERM. Evictions by the API are noticed before;
a kubelet that runs out of something kills its pods without a signal."""


def with_noticed(record: Record, notice: OpenNotice) -> Record:
    """Return the record with the recovery that a notice opens; hints open none."""
    if notice.response == NoticeResponse.NONE:
        return record
    return record.with_recovery(
        Recovery(
            id=notice.id,
            cause=notice.cause,
            source=notice.source,
            since=notice.since,
            action=notice.response,
            deadline=notice.deadline,
            was_saved=notice.step in (SaveStep.RELEASED, SaveStep.SAVED),
            was_signalled=notice.step == SaveStep.SIGNALLED,
        )
    )


def with_planned(
    policy: CheckpointPolicy | None,
    record: Record,
    identity: str,
    cause: str,
    action: str,
    source: str,
    now: datetime,
) -> Record:
    """Return the record with the recovery of pods that an edit of the user ends, before the next attempt."""
    if policy is None:
        return record
    order = record.order if record.order and record.order.id == identity else None
    recovery = Recovery(
        id=identity,
        cause=cause,
        source=source,
        since=order.since if order else now,
        action=action,
        deadline=order.by if order else None,
        was_saved=order is not None and order.epoch <= record.answered_epoch,
        was_signalled=policy.saves_on_signal,
    )
    return record.with_recovery(_with_replacement(recovery, record, now))


def with_scale_in(
    record: Record, identity: str, source: str, since: datetime, epoch: int, now: datetime
) -> Record:
    """Return the record with the recovery of a job that runs on with fewer replicas, which leave now.

    `epoch` is the order that saved a checkpoint before, or did not in time.
    """
    order = record.order if record.order and record.order.epoch == epoch else None
    recovery = Recovery(
        id=identity,
        cause=reasons.RESIZED,
        source=source,
        since=since,
        action=NoticeResponse.SCALE_IN,
        deadline=order.by if order else None,
        was_saved=epoch <= record.answered_epoch,
    )
    return record.with_recovery(_with_replacement(recovery, record, now))


def track_recoveries(
    workload: Workload, before: Record, record: Record, observed: Observed, now: datetime
) -> Record:
    """Return the record with recoveries opened by new restarts, continued and ended."""
    if workload.checkpoint is None:
        return record
    if new := list(_new_restarts(before, record)):
        record = _with_restarts(workload.checkpoint, record, new, now)
    recoveries: list[Recovery] = []
    for recovery in record.recoveries:
        recovery = with_reached_step(record, observed, recovery, now)
        if not recovery.outcome and recovery.was_signalled:
            recovery = _with_saved_on_signal(before, record, observed, recovery, now)
        recoveries.append(_with_progress(workload.checkpoint, record, observed, recovery, now))
    if tuple(recoveries) == record.recoveries:
        return record
    return with_steps_lost(record, replace(record, recoveries=tuple(recoveries)))


def recheck_at(record: Record, now: datetime) -> datetime | None:
    """Return when a recovery ends although no pod has reported its checkpoint."""
    if record.phase is not Phase.RUNNING or record.phase_since is None:
        return None
    open_now = [recovery for recovery in record.recoveries if not recovery.outcome and recovery.replaced_at]
    times = [record.phase_since + timedelta(seconds=REPORT_SECONDS)] if open_now else []
    times += [recovery.deadline for recovery in open_now if recovery.was_signalled and recovery.deadline]
    return min((time for time in times if now < time), default=None)


def _with_restarts(
    policy: CheckpointPolicy, record: Record, new: list[RestartEntry], now: datetime
) -> Record:
    """Return the record in which these restarts belong to the open recoveries, or to one of their own."""
    open_now = [recovery for recovery in record.recoveries if not recovery.outcome]
    reached: int | None = None
    for recovery in open_now:
        if recovery.replaced_at is not None and recovery.replaced_at != now:
            ended = replace(recovery, outcome=RecoveryOutcome.SUPERSEDED, ended_at=now)
            record = record.with_recovery(ended)
            reached = max_step(reached, recovery.reached_step)
    waiting = [recovery for recovery in open_now if recovery.replaced_at is None]
    if not waiting:
        first = new[0]
        identity = f"restart/{first.attempt}/{first.role}-{first.index}/{int(now.timestamp())}"
        action, signalled = NoticeResponse.RESTART, policy.saves_on_signal and first.cause in _DELETED
        recovery = Recovery(identity, first.cause, first.node, first.at, action, was_signalled=signalled)
        waiting = [recovery]
    for recovery in waiting:
        replaced = _with_replacement(recovery, record, now)
        record = record.with_recovery(replace(replaced, reached_step=reached))
    return record


def _with_replacement(recovery: Recovery, record: Record, now: datetime) -> Recovery:
    """Return the recovery of pods that are replaced now; they can continue from the present checkpoint."""
    saved = record.saved
    return replace(
        recovery,
        replaced_at=now,
        saved_step=saved.step if saved else None,
        saved_level=saved.level if saved else "",
    )


def _with_saved_on_signal(
    before: Record, record: Record, observed: Observed, recovery: Recovery, now: datetime
) -> Recovery:
    """Return the recovery with the checkpoint that the program has saved when it got SIGTERM, if it has."""
    replaced_at, saved = recovery.replaced_at, record.saved
    if replaced_at is None or replaced_at == now:
        return recovery
    resumed = min(_resumed_steps(record, observed, replaced_at), default=None)
    if resumed is not None and (recovery.saved_step is None or resumed > recovery.saved_step):
        return replace(recovery, was_saved=True, saved_step=resumed)
    if saved is None or (before.saved is not None and before.saved.digest == saved.digest):
        return recovery
    is_of_old_pod = any(
        pod.saved is not None and pod.saved.digest == saved.digest and _is_created_before(pod, replaced_at)
        for pod in (*observed.pods, *observed.recently_deleted)
    )
    return replace(recovery, was_saved=True, saved_step=saved.step) if is_of_old_pod else recovery


def _with_progress(
    policy: CheckpointPolicy, record: Record, observed: Observed, recovery: Recovery, now: datetime
) -> Recovery:
    if recovery.outcome:
        return recovery
    if record.finished_at is not None and record.phase is Phase.FAILED:
        return replace(recovery, outcome=RecoveryOutcome.FAILED, ended_at=now)
    replaced_at = recovery.replaced_at
    if replaced_at is None:
        gone = recovery.deadline is not None and now >= recovery.deadline
        is_open = any(notice.id == recovery.id for notice in record.notices)
        if record.finished_at is None and (is_open or not gone):
            return recovery
        return replace(recovery, outcome=RecoveryOutcome.SUPERSEDED, ended_at=now)
    is_running = record.phase is Phase.RUNNING and now > replaced_at
    if not is_running and record.finished_at is None:
        return recovery
    if recovery.was_signalled and _is_ending(record, observed, recovery, now):
        return recovery  # they may be saving
    steps = _resumed_steps(record, observed, replaced_at)
    since, runs_on = record.phase_since or now, _runs_on(recovery)
    may_report = not runs_on and (now - since).total_seconds() < REPORT_SECONDS
    if not steps and record.finished_at is None and may_report:
        return recovery
    restored = min(steps, default=recovery.saved_step if runs_on else None)
    outcome = _outcome(recovery, restored)
    # A program that knows nothing of orders may have saved in a form that only it knows.
    is_known = restored is not None or not policy.saves_on_signal
    lost = steps_lost(record, recovery, restored) if is_known else None
    return replace(recovery, restored_step=restored, steps_lost=lost, outcome=outcome, ended_at=now)


def _outcome(recovery: Recovery, restored: int | None) -> RecoveryOutcome:
    if recovery.was_signalled and not recovery.was_saved and restored is None:
        return RecoveryOutcome.SIGNALLED
    is_newest = recovery.saved_step is not None and (restored is None or restored >= recovery.saved_step)
    return RecoveryOutcome.RECOVERED if is_newest and recovery.was_saved else RecoveryOutcome.PROGRESS_LOST


def _is_ending(record: Record, observed: Observed, recovery: Recovery, now: datetime) -> bool:
    """Return True if pods that were replaced still end, in the time that they have for it.

    Replicas of a host list are drained before that.
    """
    if recovery.deadline is None or now >= recovery.deadline or record.finished_at is not None:
        return False
    return any(
        not pod.ended
        and (pod.index in record.leaving(pod.role) or (pod.terminating and not is_current(record, pod)))
        for pod in observed.pods
    )


def _runs_on(recovery: Recovery) -> bool:
    """Return True if replicas have left for a new size: those that stay continue, and no new pod starts."""
    return recovery.action == NoticeResponse.SCALE_IN and recovery.cause == reasons.RESIZED


def _resumed_steps(record: Record, observed: Observed, since: datetime) -> list[int]:
    """Return from which steps pods that were created since then have started."""
    return [
        pod.resumed_step
        for pod in all_current_pods(record, observed)
        if pod.resumed_step is not None and pod.created and not _is_created_before(pod, since)
    ]


def _is_created_before(pod: ObservedPod, time: datetime) -> bool:
    """Return True if a pod is older than this time; times of creation have no fractions."""
    return pod.created is not None and pod.created < time.replace(microsecond=0)


def _new_restarts(before: Record, after: Record) -> Iterator[RestartEntry]:
    known = set(before.restart_history)
    for entry in after.restart_history:
        if entry not in known and entry.scope != CONTAINER:
            yield entry
