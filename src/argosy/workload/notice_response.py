"""Decides what a job does about announced losses, once for each.

Replicas of an elastic role that can spare them leave it before their node ends: their pods are deleted with a
grace period that ends before the deadline, and replicas under other indexes are created at once, so that the
wanted size stays. Replicas in a host list are drained first (`release`). All other pods are left to the
restart policy, which replaces them when they are lost.

A job with checkpoints saves one before any of this (`notice_saves`), and then its other pods are replaced too
before they are lost. If it cannot save yet, because it still starts, it is asked once it can.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import messages, reasons
from argosy.workload.announcements import DEFAULT_SECONDS, Announcement, NoticeCause
from argosy.workload.current_pods import current_pods
from argosy.workload.elastic import can_spare, spare_indexes
from argosy.workload.elastic_capacity import hold_after_loss, is_held
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.model import Json, Workload
from argosy.workload.notice import MAX_NOTICES, Notice, NoticeResponse, OpenNotice, SaveStep
from argosy.workload.notice_saves import (
    ends_at_deadline,
    eviction_limit,
    move_pods,
    moved_entry,
    next_step,
    noticed_pods,
    restarts_job,
    save_deadline,
    should_save,
    should_signal,
    with_save,
)
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from argosy.workload.recoveries import with_noticed
from argosy.workload.release import can_release
from argosy.workload.restarts.replacement import with_replaced_in_place
from argosy.workload.saves import save_by

MARGIN_SECONDS = 5
"""Seconds before the deadline of a notice at which a deleted pod shall have ended."""
DEFAULT_GRACE_SECONDS = 30
"""Kubernetes' grace period of a pod that sets none."""


class NoticePlan(Struct, frozen=True):
    record: Record
    causes: tuple[str, ...] = ()
    """Cause of each pod that is moved, for metrics."""
    requeue_at: datetime | None = None


def find_notices(
    pods: Sequence[ObservedPod], announcements: Mapping[str, Announcement]
) -> tuple[Notice, ...]:
    """Return the notices that concern these pods, given the announced ends of nodes by name."""
    if not announcements and not any(pod.disrupted for pod in pods):
        return ()
    return (
        *(_node_notice(announcements[node], pods) for node in sorted(announcements)),
        *(_pod_notice(pod) for pod in pods if pod.disrupted and not pod.ended),
    )


def respond(workload: Workload, record: Record, observed: Observed, now: datetime) -> NoticePlan:
    """Return the record in which every notice is answered."""
    record = _without_expired(record, observed, now)
    signalled = {opened.id for opened in record.notices if opened.step == SaveStep.SIGNALLED}
    causes: list[str] = []
    for opened in record.notices:
        if (after := next_step(workload, record, observed, opened, now)) != opened:
            done = _after_save(workload, record, observed, now, after)
            record, causes = done.record, [*causes, *done.causes]
    for notice in observed.notices:
        if _is_answered(workload, record, observed, notice, now) or len(record.notices) >= MAX_NOTICES:
            continue
        if pods := _affected_pods(record, notice, observed):
            answer = _answer(workload, record, observed, now, notice, pods)
            record = answer.record if answer else record
            causes += answer.causes if answer else ()
    # After all are answered: pods that are replaced together end before the deadlines of their own nodes.
    for opened in record.notices:
        if opened.step == SaveStep.SIGNALLED and opened.id not in signalled:
            record, moved = move_pods(workload, record, observed, opened, now)
            causes += moved
    times = [
        notice.deadline
        for notice in record.notices
        if not notice.observed or ends_at_deadline(record, notice)
    ]
    saving = [notice for notice in record.notices if notice.step == SaveStep.SAVING]
    times += [save_by(save_deadline(workload, record, notice)) for notice in saving]
    released = (notice for notice in record.notices if notice.step == SaveStep.RELEASED)
    times += [eviction_limit(notice.released_at) for notice in released if notice.released_at]
    return NoticePlan(record, tuple(causes), min(times, default=None))


def deletion_grace(workload: Workload, record: Record, pod: ObservedPod, now: datetime) -> int | None:
    """Return the seconds that a pod has to end before the deadline of its notice; None: its own grace period.

    A deadline that has passed sets no limit: nobody knows how long the node will stay.
    """
    deadlines = [
        notice.deadline
        for notice in record.notices
        if notice.node == pod.node and notice.pod in ("", pod.name) and notice.deadline > now
    ]
    role = workload.roles.get(pod.role)
    if not deadlines or role is None:
        return None
    left = int((min(deadlines) - now).total_seconds()) - MARGIN_SECONDS
    return max(left, 1) if left < _own_grace(role.template) else None


def _node_notice(announcement: Announcement, pods: Sequence[ObservedPod]) -> Notice:
    indexes: dict[str, list[int]] = {}
    for pod in pods:
        if pod.node == announcement.node and not (pod.ended or pod.terminating):
            indexes.setdefault(pod.role, []).append(pod.index)
    return Notice(
        id=f"node/{announcement.uid}",
        cause=announcement.cause,
        source=announcement.source,
        node=announcement.node,
        deadline=announcement.deadline,
        replicas={role: IndexSet.of(numbers) for role, numbers in sorted(indexes.items())},
    )


def _pod_notice(pod: ObservedPod) -> Notice:
    return Notice(
        id=f"pod/{pod.uid}",
        cause=NoticeCause.PREEMPTED if pod.preempted_at else NoticeCause.EVICTED,
        source=pod.disruption_reason or pod.reason,
        node=pod.node,
        pod=pod.name,
        deadline=pod.deletion_time,
        replicas={pod.role: IndexSet.of((pod.index,))},
    )


def _without_expired(record: Record, observed: Observed, now: datetime) -> Record:
    """Return the record with the observed deadlines, and without notices that are gone and past theirs."""
    if not record.notices:
        return record
    found = {notice.id: notice for notice in observed.notices}
    updated = (_update(notice, found.get(notice.id)) for notice in record.notices)
    kept = tuple(
        notice
        for notice in updated
        if notice.observed
        or now < notice.deadline
        or notice.step == SaveStep.SAVING
        or ends_at_deadline(record, notice)
    )
    return record if kept == record.notices else replace(record, notices=kept)


def _update(known: OpenNotice, found: Notice | None) -> OpenNotice:
    if found is None:
        return replace(known, observed=False)
    if known.response == NoticeResponse.NONE:
        return replace(known, observed=True)
    return replace(
        known,
        cause=found.cause,
        source=found.source,
        deadline=found.deadline or known.deadline,
        observed=True,
    )


def _is_answered(
    workload: Workload, record: Record, observed: Observed, notice: Notice, now: datetime
) -> bool:
    """Return True if the notice was answered.

    A hint is answered again when it becomes certain, and an end before which the job could not save when it
    can: it still started, or its first checkpoint has shown that there is time for another.
    """
    known = _find_open(record, notice)
    if known is None:
        return False
    if known.response == NoticeResponse.NONE:
        return notice.cause is NoticeCause.CANDIDATE
    if workload.checkpoint is None or known.response != NoticeResponse.RESTART or known.step:
        return True
    pods = noticed_pods(workload, record, observed, known)
    can_signal = should_signal(workload, record, known, pods)
    return not (can_signal or should_save(workload, record, observed, known, now))


def _find_open(record: Record, notice: Notice) -> OpenNotice | None:
    return next((known for known in record.notices if known.id == notice.id), None)


def _affected_pods(record: Record, notice: Notice, observed: Observed) -> list[ObservedPod]:
    """Return the current pods that will be lost."""
    return [
        pod
        for role, indexes in sorted(notice.replicas.items())
        for pod in current_pods(record, role, observed)
        if pod.index in indexes and pod.node == notice.node and notice.pod in ("", pod.name) and not pod.ended
    ]


def _answer(
    workload: Workload,
    record: Record,
    observed: Observed,
    now: datetime,
    notice: Notice,
    pods: Sequence[ObservedPod],
) -> NoticePlan | None:
    """Return the record with the answer to a notice that concerns these pods; None if it needs none."""
    is_hint = notice.cause is NoticeCause.CANDIDATE
    leaving = {} if is_hint else _leaving_replicas(workload, record, observed, pods)
    released = [pod for pod in pods if not is_hint and can_release(workload, record, notice.cause, pod)]
    response = NoticeResponse.NONE if is_hint else NoticeResponse.RESTART
    opened = _open_notice(record, notice, pods, response, now)
    signals = should_signal(workload, record, opened, pods)
    saves_all = signals or should_save(workload, record, observed, opened, now)
    if saves_all and restarts_job(workload, record, pods):
        leaving, released = {}, []  # all pods are replaced, those of a host list too
    if leaving or released:
        opened = replace(opened, response=NoticeResponse.SCALE_IN)
    if should_save(workload, record, observed, opened, now):
        if not (leaving or released):
            opened = replace(opened, response=NoticeResponse.SAVE_AND_MOVE)
        # Those that a launcher uses train on until it has left them.
        stopped = [pod for pod in pods if not released or pod.index in leaving.get(pod.role, ())]
        record, opened = with_save(workload, record, opened, stopped, now)
        message = messages.notice(opened, {}, {})
        record = _with_notice(workload, record, opened)
        return NoticePlan(record.with_history(now, reasons.DISRUPTION_NOTICE, message))
    if signals:
        if not (leaving or released):
            opened = replace(opened, response=NoticeResponse.SIGNAL_AND_MOVE)
        opened = replace(opened, step=SaveStep.SIGNALLED)
    elif not (leaving or released) and all(pod.terminating for pod in pods):
        return None  # it is too late for anything but what follows from the loss
    return _with_scale_in(workload, record, observed, now, opened, leaving, released)


def _after_save(
    workload: Workload, record: Record, observed: Observed, now: datetime, opened: OpenNotice
) -> NoticePlan:
    """Return the record with what follows once the checkpoint of a notice is saved, or is missed."""
    if opened.response == NoticeResponse.SCALE_IN and opened.step != SaveStep.RELEASED:
        pods = noticed_pods(workload, record, observed, opened)
        leaving = _leaving_replicas(workload, record, observed, pods)
        released = [pod for pod in pods if can_release(workload, record, NoticeCause(opened.cause), pod)]
        if leaving or released:
            return _with_scale_in(workload, record, observed, now, opened, leaving, released)
    if opened.step == SaveStep.RELEASED:
        return NoticePlan(_with_notice(workload, record, opened))
    if opened.step == SaveStep.MISSED:
        return NoticePlan(_with_notice(workload, record, replace(opened, response=NoticeResponse.RESTART)))
    record, causes = move_pods(workload, _with_notice(workload, record, opened), observed, opened, now)
    return NoticePlan(record, causes)


def _with_scale_in(
    workload: Workload,
    record: Record,
    observed: Observed,
    now: datetime,
    opened: OpenNotice,
    leaving: Mapping[str, IndexSet],
    released: Sequence[ObservedPod],
) -> NoticePlan:
    """Return the record in which these replicas leave their roles, if there are any."""
    noticed = noticed_pods(workload, record, observed, opened)
    moved = [pod for pod in noticed if pod in released or pod.index in leaving.get(pod.role, ())]
    entries = record.unrecorded(moved_entry(pod, opened, now) for pod in moved)
    added: dict[str, IndexSet] = {}
    for name, indexes in leaving.items():
        record, added[name] = _with_moved_replicas(workload, record, observed, now, name, indexes)
    message = messages.notice(opened, _indexes_by_role(moved), added)
    record = _with_notice(workload, record, opened).with_history(now, reasons.DISRUPTION_NOTICE, message)
    return NoticePlan(record.with_restarts(*entries), tuple(entry.cause for entry in entries))


def _with_notice(workload: Workload, record: Record, opened: OpenNotice) -> Record:
    record = record.with_notice(opened)
    return with_noticed(record, opened) if workload.checkpoint else record


def _leaving_replicas(
    workload: Workload, record: Record, observed: Observed, pods: Sequence[ObservedPod]
) -> dict[str, IndexSet]:
    """Return the replicas that leave their roles, of roles that can spare all of theirs."""
    replicas = _indexes_by_role(pods)
    return {
        name: indexes
        for name, indexes in replicas.items()
        if can_spare(workload, name, record, observed, indexes)
    }


def _indexes_by_role(pods: Sequence[ObservedPod]) -> dict[str, IndexSet]:
    roles = sorted({pod.role for pod in pods})
    return {role: IndexSet.of(pod.index for pod in pods if pod.role == role) for role in roles}


def _open_notice(
    record: Record, notice: Notice, pods: Sequence[ObservedPod], response: NoticeResponse, now: datetime
) -> OpenNotice:
    known = _find_open(record, notice)
    was_hint = known is not None and known.response == NoticeResponse.NONE
    certain_since = known.certain_since if known is not None else None
    deadline = notice.deadline
    if deadline is None and known is not None and not was_hint:
        deadline = known.deadline
    return OpenNotice(
        id=notice.id,
        cause=notice.cause,
        source=notice.source,
        node=notice.node,
        since=known.since if known else now,
        deadline=deadline or now + timedelta(seconds=DEFAULT_SECONDS[notice.cause]),
        response=response,
        pod=notice.pod,
        replicas={name: indexes.encode() for name, indexes in _indexes_by_role(pods).items()},
        certain_since=now if was_hint else certain_since,
    )


def _with_moved_replicas(
    workload: Workload, record: Record, observed: Observed, now: datetime, name: str, leaving: IndexSet
) -> tuple[Record, IndexSet]:
    """Return the record with other replicas in the place of these, and their indexes.

    There are none if the role lost replicas just after it had grown: it grows later (`elastic_capacity`). If
    it has too few free indexes, the last of the leaving ones are used again, when their pods are gone.
    """
    last, role = record.role(name), workload.roles[name]
    assert role.elastic
    spare = spare_indexes(role, last, observed, len(leaving))
    last = replace(last.with_members(last.members - leaving), joining=last.joining - leaving)
    last = hold_after_loss(role.elastic, last, now)
    if is_held(last, now):
        return record.with_role(name, last), EMPTY
    again = IndexSet.of(list(leaving)[len(spare) :])
    record = record.with_role(name, replace(last, joining=last.joining | spare | again))
    return with_replaced_in_place(record, name, again), spare | again


def _own_grace(template: Json) -> int:
    spec = template.get("spec")
    seconds = spec.get("terminationGracePeriodSeconds") if isinstance(spec, dict) else None
    return seconds if isinstance(seconds, int) else DEFAULT_GRACE_SECONDS
