"""Determines what a job waits for: a reason, a message, and since when.

What is stored in the Record stays the same as long as the job waits. Numbers that change with every pod are
in `progress`, which is computed for each status and not stored.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from argosy.kinds.text import join_messages, join_names, pluralize
from argosy.plan.actions import ActionResult, ActionStatus
from argosy.workload import checkpoint_messages, messages, reasons
from argosy.workload.announcements import OUT_OF_SERVICE
from argosy.workload.current_pods import all_current_pods
from argosy.workload.dependencies import has_reached
from argosy.workload.elastic import adapts_to_capacity
from argosy.workload.gang import Admission
from argosy.workload.model import Phase, ResizeMode, Workload
from argosy.workload.notice import NoticeResponse
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.phases import Counts
from argosy.workload.pods import PodCreation
from argosy.workload.record import Record, RestartEntry, WaitReason
from argosy.workload.restarts.causes import pod_fingerprint

_MOST_SERIOUS_FIRST = (
    ActionStatus.INVALID,
    ActionStatus.FORBIDDEN,
    ActionStatus.NAME_CONFLICT,
    ActionStatus.RETRY,
)


def with_wait_reason(
    workload: Workload,
    record: Record,
    observed: Observed,
    gate: Admission,
    missing: PodCreation,
    now: datetime,
) -> Record:
    """Return the record with what the job waits for, if it waits; the time changes only with the reason."""
    wait_reason = _wait_reason(workload, record, observed, gate, missing)
    if wait_reason is None:
        return replace(record, waiting=None) if record.waiting else record
    reason, message = wait_reason
    last = record.waiting
    if reason == reasons.INVALID_SPEC and (last is None or last.message != message):
        record = record.with_history(now, reason, message)
    since = last.since if last and last.reason == reason else now
    return replace(record, waiting=WaitReason(reason, message, since))


def status_message(
    workload: Workload | None, record: Record, observed: Observed, counts: Mapping[str, Counts]
) -> str:
    """Return the message of the status: what happened, otherwise what the job waits for, otherwise its
    progress."""
    if record.waiting and record.waiting.reason == reasons.NODE_UNREACHABLE:
        return record.waiting.message  # it says what an administrator must do
    if record.message:
        return record.message
    waiting = record.waiting.message if record.waiting else ""
    now = waiting or (progress(workload, record, observed, counts) if workload else "")
    parts = (_first_notice(record), _recent_disruption(record, observed), now)
    return "; ".join(part for part in parts if part)


def _first_notice(record: Record) -> str:
    """Return the announced loss with the earliest deadline, unless it is only a hint."""
    announced = [
        notice
        for notice in record.notices
        if notice.observed and notice.response != NoticeResponse.NONE and not record.finished_at
    ]
    first = min(announced, key=lambda notice: notice.deadline, default=None)
    return messages.open_notice(first) if first else ""


def _recent_disruption(record: Record, observed: Observed) -> str:
    """Return the latest disruption of a pod whose replacement is not running yet."""
    disruptions = (
        entry
        for entry in reversed(record.restart_history)
        if entry.pod_fingerprint
        and entry.attempt == record.attempt
        and entry.index in record.role(entry.role).members
    )
    latest = next((entry for entry in disruptions if not _is_refilled(entry, observed)), None)
    return messages.describe_restart(latest) if latest else ""


def _is_refilled(disruption: RestartEntry, observed: Observed) -> bool:
    return any(
        pod.phase in ("Running", "Succeeded") and pod_fingerprint(pod) != disruption.pod_fingerprint
        for pod in observed.by_replica.get((disruption.role, disruption.index), ())
    )


def progress(workload: Workload, record: Record, observed: Observed, counts: Mapping[str, Counts]) -> str:
    """Return the progress of a start: `3 of 4 workers running; worker-3: ImagePullBackOff …`."""
    if record.phase.terminal or record.phase is Phase.SUSPENDED:
        return ""
    parts = []
    for name, role in workload.roles.items():
        last, up = record.role(name), counts[name].active + counts[name].succeeded
        size = last.declared if adapts_to_capacity(workload, role) else last.size
        if up < size:
            parts.append(f"{up} of {pluralize(size, name)} running")
        if up < size and role.elastic and workload.rules.resize is ResizeMode.RESTART:
            parts.append(messages.fixed_size(workload.framework, name))
    waiting = next((pod for pod in all_current_pods(record, observed) if pod.waiting_reason), None)
    if waiting:
        message = f": {waiting.waiting_message}" if waiting.waiting_message else ""
        parts.append(
            f"{messages.replica_name(waiting.role, waiting.index)}: {waiting.waiting_reason}{message}"
        )
    if not parts and record.phase is Phase.RUNNING:
        return _running_summary(workload, record, observed)
    return "; ".join(parts)


def _running_summary(workload: Workload, record: Record, observed: Observed) -> str:
    """Return what runs and where: `attempt 2 · 1 launcher and 4 workers · node-1, node-2 and node-3`."""
    sizes = [pluralize(record.role(name).size, name) for name in workload.roles]
    nodes = sorted({pod.node for pod in all_current_pods(record, observed) if pod.node})
    parts = (f"attempt {record.attempt}", join_names(sizes), join_names(nodes, max_names=4))
    return " · ".join(part for part in parts if part)


def _wait_reason(
    workload: Workload, record: Record, observed: Observed, gate: Admission, missing: PodCreation
) -> tuple[str, str] | None:
    failure = _action_failure(observed.failed_actions)
    if failure:
        return failure
    if gate.reason and not gate.allowed:
        return gate.reason, gate.message
    if unreachable := _unreachable(missing.blocked_by, observed):
        return reasons.NODE_UNREACHABLE, unreachable
    if missing.blocked_by:
        return _pods_terminating(sorted(missing.blocked_by))
    if missing.retry_at:
        return reasons.BACK_OFF, messages.backing_off(missing.retry_at)
    if unconfirmed := _unconfirmed(observed):
        return reasons.NODE_UNCONFIRMED, unconfirmed
    if record.phase is Phase.RUNNING:
        saving = (reasons.SAVING_CHECKPOINT, checkpoint_messages.waiting(reasons.RESIZED))
        return saving if record.scale_in else _below_replicas(workload, record)
    for name, role in workload.roles.items():
        if record.role(name).below_min_since:
            return reasons.BELOW_MIN_REPLICAS, messages.waiting_for_minimum(name, role.min_running)
    pods = all_current_pods(record, observed)
    if any(pod.waiting_reason == reasons.UNSCHEDULABLE for pod in pods):
        return reasons.UNSCHEDULABLE, ""
    waiting = next(
        (pod for pod in pods if pod.waiting_reason and pod.waiting_reason != "SchedulingGated"), None
    )
    if waiting:
        return waiting.waiting_reason, ""
    return _dependency(workload, record, pods) or (reasons.PODS_STARTING, "")


def _below_replicas(workload: Workload, record: Record) -> tuple[str, str] | None:
    """Return the elastic role of a running job that has fewer members than declared."""
    for name, role in workload.roles.items():
        last = record.role(name)
        if last.phase is Phase.RUNNING and last.size < last.declared and adapts_to_capacity(workload, role):
            return reasons.BELOW_REPLICAS, messages.waiting_for_replicas(name, last.size, last.declared)
    return None


def _unreachable(blocking: Sequence[str], observed: Observed) -> str:
    """Return the message for terminating pods on nodes that may still run them; empty if there are none."""
    lost = observed.nodes_down - observed.nodes_released
    if not blocking or not lost:
        return ""
    pods = [pod for pod in observed.pods if pod.terminating and pod.node in lost and pod.name in blocking]
    if not pods:
        return ""
    names, node = sorted(pod.name for pod in pods), min(pod.node for pod in pods)
    return messages.waiting_for_node(names, node, OUT_OF_SERVICE)


def _unconfirmed(observed: Observed) -> str:
    """Return the message for nodes whose state could not be confirmed; empty if there are none."""
    names = sorted(name for name, error in observed.nodes_unconfirmed.items() if error)
    if not names:
        return ""
    error = observed.nodes_unconfirmed[names[0]]
    return messages.unconfirmed_nodes(names, error)


def _dependency(workload: Workload, record: Record, pods: Sequence[ObservedPod]) -> tuple[str, str] | None:
    """Return the role that another one waits for, if all pods that are not running wait for a role.

    Otherwise the status would depend on the order in which pods start.
    """
    pending = [pod for pod in pods if pod.phase == "Pending"]
    unmet = {
        name: want
        for name, role in workload.roles.items()
        for want in reversed(role.depends_on or ())
        if not has_reached(record.role(want.role).phase, want.phase)
    }
    if not pending or not all(pod.waits_for_dependency and pod.role in unmet for pod in pending):
        return None
    name = pending[0].role
    return reasons.WAITING_FOR_ROLE, messages.waiting_for_role(name, unmet[name].role, unmet[name].phase)


def _action_failure(failures: Sequence[ActionResult]) -> tuple[str, str] | None:
    rejections = [failure.message for failure in failures if failure.status is ActionStatus.SPEC_REJECTED]
    if rejections:
        return reasons.INVALID_SPEC, join_messages(rejections)
    for status in _MOST_SERIOUS_FIRST:
        for failure in failures:
            if failure.status is status:
                return reasons.action_failed(failure), f"{failure.name}: {failure.message}"
    terminating = sorted(failure.name for failure in failures if failure.status is ActionStatus.TERMINATING)
    return _pods_terminating(terminating) if terminating else None


def _pods_terminating(names: Sequence[str]) -> tuple[str, str]:
    return reasons.PODS_TERMINATING, messages.waiting_for_termination(names)
