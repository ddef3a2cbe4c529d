"""All pods are placed together or none is: a PodGroup made before any pod, and a gate.

The PodGroup asks the scheduler; whether it was heard is only looked at while the job starts. Once its pods
have been asked for, a lost one is replaced like any other.
"""

from datetime import datetime

from msgspec import Struct

from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.phases import Ending
from argosy.workload.plan import EnsurePodGroup
from argosy.workload.record import Record
from argosy.workload.times import after

DEFAULT_QUEUE = "default"
"""Where a group waits that names no queue; said outright, so that a queue which is taken away is left."""


class Gate(Struct, frozen=True):
    """Whether pods may be created, else for what they wait; and the group to make or correct."""

    open: bool = True
    reason: str = ""
    message: str = ""
    action: EnsurePodGroup | None = None


def gate(workload: Workload, record: Record, seen: Observed) -> Gate:
    gang = workload.gang
    if gang is None:
        return Gate()
    begun = record.began is not None
    if not seen.group_served:
        said = (
            "the cluster does not know PodGroups (scheduling.volcano.sh), which gang placement needs,"
            " or the operator is installed without gangs; install what is missing, or take spec.gang away"
        )
        return Gate(open=begun, reason="GangSchedulerMissing", message=said)
    group = seen.group
    wanted = (gang.min_available, gang.queue or DEFAULT_QUEUE, gang.priority_class, gang.min_resources)
    there = (
        (group.min_member, group.queue or DEFAULT_QUEUE, group.priority_class, group.min_resources)
        if group
        else None
    )
    action = None if there == wanted else EnsurePodGroup(workload.name, *wanted)
    queued = group is None or group.phase in ("", "Pending")
    if gang.gated and queued and not begun:
        said = f"waits in queue {gang.queue or DEFAULT_QUEUE} to be let in"
        return Gate(open=False, reason="Queued", message=said, action=action)
    return Gate(action=action)


def ending(workload: Workload, record: Record, seen: Observed, now: datetime) -> Ending | datetime | None:
    """The ending of a job whose group was evicted or not placed in time, or when the latter will be."""
    gang = workload.gang
    if gang is None:
        return None
    if seen.group and seen.group.evicted:
        return Ending(Phase.FAILED, "Preempted", "the scheduler evicted the group of this job")
    placed = record.ran is not None or (seen.group is not None and seen.group.scheduled)
    since = record.began or record.since
    if gang.timeout is None or placed or since is None or record.phase is Phase.SUSPENDED:
        return None
    if (now - since).total_seconds() >= gang.timeout:
        said = f"{gang.min_available} pods could not be placed together within {gang.timeout:g} s"
        return Ending(Phase.FAILED, "GangTimeout", said)
    return after(since, gang.timeout)
