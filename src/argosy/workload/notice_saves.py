"""Orders a checkpoint before announced losses, and replaces the pods elsewhere once it is saved.

The pods are replaced in one change of the Record, which also says that the notice is done with: an operator
that is killed before it does not lose the checkpoint, and one that is killed after it does not replace them
twice. If the checkpoint is late, or there is no time for one, the pods are replaced when they are lost.

A program that saves when it gets SIGTERM is not asked and waited for: its pods are deleted and replaced at
once. The shorter the time that is left, the more this is the only chance to save, so there is always time.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.workload import messages
from argosy.workload.announcements import NoticeCause
from argosy.workload.current_pods import all_current_pods, current_pods
from argosy.workload.index_set import IndexSet
from argosy.workload.model import RestartPolicy, RestartScope, Workload
from argosy.workload.notice import NoticeResponse, OpenNotice, SaveStep
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RestartEntry
from argosy.workload.release import can_release
from argosy.workload.restarts.causes import RestartCause, disruption_entry, pod_fingerprint
from argosy.workload.restarts.losses import LostPod
from argosy.workload.restarts.policy import with_losses
from argosy.workload.saves import (
    all_replicas,
    can_save,
    has_time_to_save,
    last_epoch,
    save_by,
    with_shared_order,
)

RELEASE_SECONDS = 30.0
"""Seconds before the end of a node at which replicas begin to leave a host list, saved or not."""
SHORT_RELEASE_SECONDS = 20.0
"""The same after a short notice. With the margin of the checkpoint, launchers have ten seconds to leave them
before they are deleted; most need less."""
SHORT_NOTICE_SECONDS = 60.0
"""A shorter notice, such as the 30 seconds of Google, would leave no time to save before the usual drain."""
EVICTION_SECONDS = 30.0
"""Seconds that a drain has to evict pods whose checkpoint is saved; kubectl tries every five."""


def should_save(
    workload: Workload, record: Record, observed: Observed, opened: OpenNotice, now: datetime
) -> bool:
    """Return True if a checkpoint can be saved before the end that was announced."""
    if opened.cause in (NoticeCause.CANDIDATE, NoticeCause.OUT_OF_SERVICE):
        return False
    if any(notice.node == opened.node and notice.step == SaveStep.RELEASED for notice in record.notices):
        return False  # this is the eviction that was waited for
    return can_save(workload, record, observed) and has_time_to_save(
        record, save_deadline(workload, record, opened), now
    )


def should_signal(
    workload: Workload, record: Record, opened: OpenNotice, pods: Sequence[ObservedPod]
) -> bool:
    """Return True if some of these pods are deleted before the announced end, so that their programs save."""
    policy = workload.checkpoint
    if policy is None or not policy.saves_on_signal:
        return False
    if opened.cause in (NoticeCause.CANDIDATE, NoticeCause.OUT_OF_SERVICE):
        return False
    cause = NoticeCause(opened.cause)
    running = [pod for pod in pods if pod.phase == "Running"]
    return any(
        _is_replaced(workload, record, pod) or can_release(workload, record, cause, pod) for pod in running
    )


def restarts_job(workload: Workload, record: Record, pods: Sequence[ObservedPod]) -> bool:
    """Return True if all pods of the job are replaced when these are."""
    replaced = [pod for pod in pods if _is_replaced(workload, record, pod)]
    scopes = (workload.restart_scope(workload.roles[pod.role], pod.index) for pod in replaced)
    return RestartScope.JOB in scopes


def with_save(
    workload: Workload, record: Record, opened: OpenNotice, pods: Sequence[ObservedPod], now: datetime
) -> tuple[Record, OpenNotice]:
    """Return the record with an order that saves a checkpoint for a notice, and the notice that waits for it.

    `pods` are those that shall stop then. Notices that come while pods are already asked to save and stop
    share the order.
    """
    stop = _replicas_to_stop(workload, record, pods)
    by = save_by(save_deadline(workload, record, opened))
    record = with_shared_order(record, opened.id, opened.cause, by, now, stop)
    assert record.order
    return record, replace(opened, epoch=record.order.epoch, step=SaveStep.SAVING)


def next_step(
    workload: Workload, record: Record, observed: Observed, notice: OpenNotice, now: datetime
) -> OpenNotice:
    """Return the notice with its checkpoint saved or missed, if it is; also one that was withdrawn meanwhile.

    A drain evicts pods by name. One that is replaced under the same name before would be evicted again, so
    the drain gets time to evict those that are there. Replicas of a host list get other names, and leave it
    first.

    Programs that were asked to stop do not train on. If the end that was announced does not come, they are
    replaced all the same.
    """
    if notice.step == SaveStep.RELEASED:
        pods = noticed_pods(workload, record, observed, notice)
        is_over = notice.released_at is None or now >= eviction_limit(notice.released_at)
        is_evicted = all(pod.terminating for pod in pods)
        return replace(notice, step=SaveStep.SAVED) if is_over or is_evicted else notice
    if ends_at_deadline(record, notice):
        return replace(notice, step=SaveStep.STAYED) if now >= notice.deadline else notice
    if notice.step != SaveStep.SAVING:
        return notice
    # A pod that is saved without being asked goes on, so it need not be replaced.
    goes_on = _saves_processes(record) and not notice.observed
    if record.answered_epoch >= notice.epoch and not goes_on:
        if _is_outdated(record, observed, notice) and now < save_by(save_deadline(workload, record, notice)):
            return notice
        is_drained = heeds_cordons(workload) and notice.cause == NoticeCause.DRAINED
        if is_drained and not is_host_release(workload, notice):
            return replace(notice, step=SaveStep.RELEASED, released_at=now)
        return replace(notice, step=SaveStep.SAVED)
    if last_epoch(record) < notice.epoch:  # the Record was lost, and the order with it
        return replace(notice, step=SaveStep.MISSED)
    if now < save_by(save_deadline(workload, record, notice)):
        return notice  # one that is gone may be shown again, by a newer list
    return replace(notice, step=SaveStep.MISSED if notice.observed or goes_on else SaveStep.STAYED)


def ends_at_deadline(record: Record, notice: OpenNotice) -> bool:
    """Return True if pods were asked to stop, have not saved in time, and are about to be lost."""
    return notice.step == SaveStep.MISSED and notice.epoch > 0 and not _saves_processes(record)


def _is_outdated(record: Record, observed: Observed, notice: OpenNotice) -> bool:
    """Return True if the list of pods may be from before a pod was placed whose processes have been saved.

    The answer does not come with the list of pods, as that of a program does.
    """
    order = record.order
    if order is None or not order.level or order.epoch != notice.epoch:
        return False
    replicas = {name: IndexSet.decode(indexes).lookup for name, indexes in notice.replicas.items()}
    pods = [pod for pod in all_current_pods(record, observed) if pod.index in replicas.get(pod.role, ())]
    return all(pod.uid == order.pod_uid and not pod.node for pod in pods)


def _saves_processes(record: Record) -> bool:
    """Return True if the node agent saves the processes, so that the program is not asked."""
    return record.order is not None and bool(record.order.level)


def move_pods(
    workload: Workload, record: Record, observed: Observed, notice: OpenNotice, now: datetime
) -> tuple[Record, tuple[str, ...]]:
    """Return the record that replaces the pods of a notice elsewhere, and the causes.

    Includes pods that have ended since the notice: a program may end by itself once it has saved what it was
    asked for. One whose processes were saved was not asked, so its success is one. Excludes replicas that are
    drained.
    """
    was_asked = not (record.saved and record.saved.level)
    pods = [
        pod
        for pod in noticed_pods(workload, record, observed, notice)
        if _is_replaced(workload, record, pod)
        and (was_asked or pod.phase != "Succeeded")
        and not can_release(workload, record, NoticeCause(notice.cause), pod)
        and not _is_recorded(record, pod)
    ]
    if not pods:
        return record, ()
    losses = [
        LostPod(
            moved_entry(pod, notice, now),
            uses_restart=False,
            scope=workload.restart_scope(workload.roles[pod.role], pod.index),
        )
        for pod in pods
    ]
    notices = record.notices
    record, restarts = with_losses(workload, record, losses, 0, now)
    # New pods on the same node are not moved again: its deadline may not be the end of it.
    return replace(record, notices=notices), tuple(entry.cause for entry in restarts)


def noticed_pods(
    workload: Workload, record: Record, observed: Observed, notice: OpenNotice
) -> list[ObservedPod]:
    """Return the current pods that a notice was about."""
    return [
        pod
        for name, encoded in sorted(notice.replicas.items())
        if name in workload.roles
        for pod in current_pods(record, name, observed)
        if pod.index in IndexSet.decode(encoded) and pod.node == notice.node and notice.pod in ("", pod.name)
    ]


def eviction_limit(released: datetime) -> datetime:
    """Return until when evictions are waited for; then the pods are replaced without."""
    return released + timedelta(seconds=EVICTION_SECONDS)


def save_deadline(workload: Workload, record: Record, notice: OpenNotice) -> datetime:
    """Return when what follows the checkpoint of a notice must begin.

    A job that has not saved any yet may not know of orders: it does not wait at the cost of its drain.
    """
    if not is_host_release(workload, notice):
        return notice.deadline
    since = notice.certain_since or notice.since
    is_short = (notice.deadline - since).total_seconds() < SHORT_NOTICE_SECONDS
    has_saved = record.saved is not None and record.saved.seconds > 0
    seconds = SHORT_RELEASE_SECONDS if is_short and has_saved else RELEASE_SECONDS
    return notice.deadline - timedelta(seconds=seconds)


def is_host_release(workload: Workload, notice: OpenNotice) -> bool:
    """Return True if replicas leave a host list because of this notice (`release`)."""
    return workload.rules.host_list is not None and notice.response == NoticeResponse.SCALE_IN


def heeds_cordons(workload: Workload) -> bool:
    """Return True if a cordon of a node announces to this job that the node is drained."""
    return workload.checkpoint is not None and workload.checkpoint.holds_evictions


def nodes_to_avoid(workload: Workload, record: Record) -> tuple[str, ...]:
    """Return the nodes on which no new pods of a job are placed: those from which it moves its pods away.

    Not every announced end keeps schedulers away; an annotation alone does not.
    """
    if workload.checkpoint is None:
        return ()
    nodes = {notice.node for notice in record.notices if notice.observed and notice.step}
    return tuple(sorted(nodes - {""}))


def moved_entry(pod: ObservedPod, notice: OpenNotice, now: datetime) -> RestartEntry:
    """Return what the restart history says about a pod that is moved."""
    entry = disruption_entry(pod, now, RestartScope.POD)
    if pod.disrupted:
        return entry
    detail = messages.announced_end(notice.node, notice.cause, notice.source)
    return replace(entry, cause=RestartCause.DISRUPTED, detail=detail, exit_code=None)


def _is_recorded(record: Record, pod: ObservedPod) -> bool:
    """Return True if the restart history has the disruption of this pod already."""
    fingerprint = pod_fingerprint(pod)
    return any(entry.pod_fingerprint == fingerprint for entry in record.restart_history)


def _is_replaced(workload: Workload, record: Record, pod: ObservedPod) -> bool:
    """Return True if a pod is replaced before it is lost.

    One that is just being added under an index of its own is left to the operation that adds it.
    """
    role = workload.roles.get(pod.role)
    if role is None or role.restart is RestartPolicy.NEVER:
        return False
    return not role.replacement.next_index or pod.index in record.role(pod.role).members


def _replicas_to_stop(workload: Workload, record: Record, pods: Sequence[ObservedPod]) -> dict[str, str]:
    """Return the replicas that are restarted when these pods are replaced; some are not replaced."""
    pods = [pod for pod in pods if _is_replaced(workload, record, pod)]
    roles = [workload.roles[pod.role] for pod in pods]
    scopes = {workload.restart_scope(workload.roles[pod.role], pod.index) for pod in pods}
    if RestartScope.JOB in scopes:
        return all_replicas(workload, record)
    stop: dict[str, str] = {}
    for role in roles:
        own = [pod for pod in pods if pod.role == role.name]
        if any(workload.restart_scope(role, pod.index) is RestartScope.ROLE for pod in own):
            stop[role.name] = record.role(role.name).wanted.encode()
        else:
            stop[role.name] = IndexSet.of(pod.index for pod in own).encode()
    return stop
