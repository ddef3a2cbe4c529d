"""Computes the status of a PodGroup as Volcano does: Pending, Inqueue, Running, Unknown, Completed. Pure.

A condition keeps its time and id while it is unchanged, so that an unchanged group is not written again.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from argosy.local.controllers.api_types import Pod, PodGroup, PodGroupStatus, StatusCondition
from argosy.local.scheduler.outcome import GangOutcome

SCHEDULED = "Scheduled"
UNSCHEDULABLE = "Unschedulable"


def group_status(
    group: PodGroup,
    pods: Iterable[Pod],
    outcome: GangOutcome | None,
    *,
    queued: bool,
    now: datetime,
    transition: str,
) -> PodGroupStatus:
    """Return the status of a group; equal to its present one if there is nothing to write.

    `outcome` is the result of this pass, None if the group was not part of it.
    """
    counts = _count(pods)
    conditions = _conditions(group, outcome, counts["allocated"], now, transition)
    blocked = outcome is not None and not outcome.placed
    return PodGroupStatus(
        phase=_phase(group, counts, blocked=blocked, queued=queued),
        running=counts["running"],
        succeeded=counts["succeeded"],
        failed=counts["failed"],
        conditions=conditions,
    )


def status_patch(status: PodGroupStatus) -> dict[str, object]:
    return {"status": msgspec.to_builtins(status)}


def _count(pods: Iterable[Pod]) -> dict[str, int]:
    counts = {"allocated": 0, "running": 0, "succeeded": 0, "failed": 0, "pending": 0}
    for pod in pods:
        if pod.status.phase == "Succeeded":
            counts["succeeded"] += 1
        elif pod.status.phase == "Failed":
            counts["failed"] += 1
        elif pod.status.phase == "Running":
            counts["running"] += 1
        if pod.finished or (pod.spec.node_name and pod.metadata.deletion_timestamp is None):
            counts["allocated"] += 1
        elif not pod.spec.node_name:
            counts["pending"] += 1
    return counts


def _phase(group: PodGroup, counts: dict[str, int], *, blocked: bool, queued: bool) -> str:
    done = counts["succeeded"] + counts["failed"]
    if counts["running"] and blocked:
        return "Unknown"
    if counts["allocated"] and counts["allocated"] >= group.spec.min_member:
        return "Completed" if done == counts["allocated"] and not counts["pending"] else "Running"
    return "Inqueue" if queued else "Pending"


def _conditions(
    group: PodGroup, outcome: GangOutcome | None, allocated: int, now: datetime, transition: str
) -> list[StatusCondition]:
    existing = group.status.conditions
    if outcome is not None and not outcome.placed:
        fresh = StatusCondition(
            UNSCHEDULABLE, "True", "NotEnoughResources", outcome.message, now, transition_id=transition
        )
    elif (outcome is not None and outcome.placed) or (allocated and allocated >= group.spec.min_member):
        fresh = StatusCondition(
            SCHEDULED, "True", "tasks in gang are ready to be scheduled", "", now, transition_id=transition
        )
    else:
        return existing
    latest = existing[-1] if existing else None
    if latest is not None and _content(latest) == _content(fresh):
        return existing
    return [condition for condition in existing if condition.type != fresh.type] + [fresh]


def _content(condition: StatusCondition) -> tuple[str, str, str, str]:
    return (condition.type, condition.status, condition.reason, condition.message)
