"""Kubernetes' own PodGroup (`scheduling.k8s.io/v1alpha2`); kube-scheduler 1.36 has it behind feature gates.

A group stands by itself: the Workload that it may name is but a template for several, and a job has one. The
scheduler waits for as many pods as the group needs, so they are made at once. A group cannot be
changed; it has no queue.
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
    telling = next((one for one in status.conditions if one.type == "PodGroupScheduled"), None)
    return ObservedGroup(
        scheduler=KUBERNETES.name,
        scheduled="PodGroupScheduled" in true,
        evicted="DisruptionTarget" in true,
        reason=telling.reason if telling else "",
        message=telling.message if telling else "",
    )


def membership(workload: Workload, role: str) -> Membership:
    del role
    return Membership(fields={"schedulingGroup": {"podGroupName": workload.name}})


KUBERNETES = GangScheduler(
    name="kubernetes",
    required_crd="podgroups.scheduling.k8s.io",
    install_hint="switch on the feature gates GenericWorkload and GangScheduling",
    group=Group(KubernetesPodGroup, spec, read, immutable=True),
    membership=membership,
)
