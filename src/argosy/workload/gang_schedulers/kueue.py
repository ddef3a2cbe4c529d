"""Kueue, by groups of plain pods: labels and an annotation, and no object of ours.

Kueue adds a scheduling gate to the pods until there is quota for all of them, and evicts them if it needs the
quota. A suspended job has no pods and so uses no quota.
"""

from argosy.kinds import labels
from argosy.workload.gang_schedulers.base import DEFAULT_QUEUE, GangScheduler, Membership
from argosy.workload.model import Workload


def membership(workload: Workload, role: str) -> Membership:
    del role
    queue = workload.gang.queue if workload.gang else ""
    return Membership(
        labels={labels.QUEUE_NAME: queue or DEFAULT_QUEUE, labels.POD_GROUP_NAME: workload.name},
        annotations={labels.POD_GROUP_SIZE: str(workload.total_pods)},
    )


KUEUE = GangScheduler(
    name="kueue", required_crd="workloads.kueue.x-k8s.io", install_hint="install Kueue", membership=membership
)
