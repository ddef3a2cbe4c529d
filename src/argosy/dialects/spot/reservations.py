"""Computes what replicas of other SpotInstanceJobs will use of nodes beyond what their pods request.

A replica is bound to its node before its pod exists, and it uses the GPUs of its machine template even if its
pod requests none. Both are known from what its job has recorded. So is the VM that was bought for it, whose
Node may be ready before it has a label that says so.
"""

from collections.abc import Iterable, Iterator

import msgspec

from argosy.dialects.spot.names import label_value, machine_name
from argosy.dialects.spot.places import GPU
from argosy.dialects.spot.pods import ClusterPod, job_value, pods_by_job
from argosy.dialects.spot.record import SpotJobRecord
from argosy.kinds.resources import Resources
from argosy.kinds.spot import SpotInstanceJob
from argosy.workload.capacity import PODS, requests


def reserved_by_others(
    obj: SpotInstanceJob, others: Iterable[SpotInstanceJob], pods: Iterable[ClusterPod]
) -> dict[str, Resources]:
    """Return what replicas of other jobs will use of nodes, beyond what their pods request already."""
    requested: dict[tuple[str, str], Resources] = {}
    for pod in pods:
        for value in pods_by_job(pod):
            requested[value, pod.spec.node_name] = requests(pod.spec)
    reserved: dict[str, Resources] = {}
    for other in others:
        if other.metadata.uid == obj.metadata.uid or other.metadata.deletion_timestamp is not None:
            continue
        value = job_value(other.metadata.namespace, label_value(other.metadata.name))
        for node, gpus in _recorded_places(other):
            existing = requested.get((value, node))
            missing = {GPU: max(gpus - (existing or {}).get(GPU, 0), 0), PODS: 0 if existing else 1}
            total = reserved.setdefault(node, {})
            for name, amount in missing.items():
                total[name] = total.get(name, 0) + amount
    return reserved


def _recorded_places(other: SpotInstanceJob) -> Iterator[tuple[str, int]]:
    try:
        record = msgspec.convert(other.status.argosy, SpotJobRecord)
    except msgspec.ValidationError:
        return
    if record.ended:
        return
    for replica in record.replicas:
        current = replica.current
        if (current.node or current.instance) and not replica.failure_message:
            yield current.node or machine_name(current.instance), record.gpus
