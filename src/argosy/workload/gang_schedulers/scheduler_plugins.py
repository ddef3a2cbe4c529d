"""The coscheduling plugin of kubernetes-sigs/scheduler-plugins; a label of the pods names its PodGroup."""

from argosy.kinds import labels
from argosy.kinds.pod_groups import CoschedulingPodGroup, PodGroupStatus
from argosy.workload.gang_schedulers.base import GangScheduler, Group, Membership
from argosy.workload.model import Json, Workload
from argosy.workload.observed import ObservedGroup

SCHEDULER = "scheduler-plugins-scheduler"
"""Name of the scheduler in the project's chart."""

_SCHEDULED = ("Scheduled", "Running", "Finished")


def spec(workload: Workload) -> Json:
    assert workload.gang
    wanted: dict[str, object] = {"minMember": workload.gang.min_available}
    if workload.gang.min_resources:
        wanted["minResources"] = workload.gang.min_resources
    return wanted


def read(status: PodGroupStatus) -> ObservedGroup:
    return ObservedGroup(
        scheduler=SCHEDULER_PLUGINS.name, scheduled=status.phase in _SCHEDULED, reason=status.phase
    )


def membership(workload: Workload, role: str) -> Membership:
    del role
    return Membership(labels={labels.POD_GROUP_LABEL: workload.name}, scheduler_name=SCHEDULER)


SCHEDULER_PLUGINS = GangScheduler(
    name="scheduler-plugins",
    required_crd="podgroups.scheduling.x-k8s.io",
    install_hint="install scheduler-plugins",
    group=Group(CoschedulingPodGroup, spec, read),
    membership=membership,
)
