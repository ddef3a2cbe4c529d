"""Volcano. It admits a PodGroup (phase Inqueue) before it looks for pods, so they are created after that."""

from argosy.kinds import labels
from argosy.kinds.pod_groups import PodGroupStatus, VolcanoPodGroup
from argosy.workload.gang_schedulers.base import (
    DEFAULT_QUEUE,
    GangScheduler,
    Group,
    Membership,
    true_conditions,
)
from argosy.workload.model import Json, Workload
from argosy.workload.observed import ObservedGroup

SCHEDULER = "volcano"


def spec(workload: Workload) -> Json:
    assert workload.gang
    gang = workload.gang
    wanted: dict[str, object] = {
        "minMember": gang.min_available,
        "queue": gang.queue or DEFAULT_QUEUE,
        "priorityClassName": gang.priority_class,
    }
    return {**wanted, "minResources": gang.min_resources} if gang.min_resources else wanted


def read(status: PodGroupStatus) -> ObservedGroup:
    true = true_conditions(status)
    condition = true.get("Unschedulable") or true.get("Scheduled")
    return ObservedGroup(
        scheduler=VOLCANO.name,
        queued=status.phase in ("", "Pending"),
        scheduled="Scheduled" in true or status.phase == "Running",
        evicted="Evicted" in true,
        reason=condition.reason if condition else "",
        message=condition.message if condition else "",
    )


def membership(workload: Workload, role: str) -> Membership:
    annotations = {labels.POD_GROUP_ANNOTATION: workload.name, labels.TASK_SPEC_ANNOTATION: role}
    return Membership(annotations=annotations, scheduler_name=SCHEDULER)


GROUP = Group(VolcanoPodGroup, spec, read)
VOLCANO = GangScheduler(
    name="volcano",
    required_crd="podgroups.scheduling.volcano.sh",
    install_hint="install Volcano",
    group=GROUP,
    membership=membership,
    waits_for_admission=True,
)
