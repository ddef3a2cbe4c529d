"""kube-scheduler 1.36 with feature gates: the PodGroup of Kubernetes (`scheduling.k8s.io/v1alpha2`).

A PodGroup needs no Workload, which is a template for several PodGroups; a job has one. The scheduler waits
for the minimum number of pods, so they are created at once. A PodGroup is immutable and has no queue.
"""

from argosy.kinds.pod_groups import KubernetesPodGroup, PodGroupStatus
from argosy.workload.gang_schedulers.base import GangScheduler, Group, Membership, true_conditions
from argosy.workload.model import Json, Workload
from argosy.workload.observed import ObservedGroup


def spec(workload: Workload) -> Json:
    assert workload.gang
    wanted: dict[str, object] = {
        "schedulingPolicy": {"gang": {"minCount": max(1, workload.gang.min_available)}}
    }
    if workload.gang.priority_class:
        wanted["priorityClassName"] = workload.gang.priority_class
    return wanted


def read(status: PodGroupStatus) -> ObservedGroup:
    true = true_conditions(status)
    scheduled = (condition for condition in status.conditions if condition.type == "PodGroupScheduled")
    condition = next(scheduled, None)
    return ObservedGroup(
        scheduler=KUBERNETES.name,
        scheduled="PodGroupScheduled" in true,
        evicted="DisruptionTarget" in true,
        reason=condition.reason if condition else "",
        message=condition.message if condition else "",
    )


def membership(workload: Workload, role: str) -> Membership:
    del role
    return Membership(fields={"schedulingGroup": {"podGroupName": workload.name}})


KUBERNETES = GangScheduler(
    name="kubernetes",
    required_crd="podgroups.scheduling.k8s.io",
    install_hint="enable the feature gates GenericWorkload and GangScheduling",
    group=Group(KubernetesPodGroup, spec, read, immutable=True),
    membership=membership,
)
