"""Marks one live replica as the primary, which alone may act outside of the cluster."""

from msgspec.structs import replace

from argosy.dialects.spot.observed import ObservedJob, Steps
from argosy.dialects.spot.pods import ClusterPod
from argosy.dialects.spot.record import SpotJobRecord
from argosy.kinds.spot import ROLE_ANNOTATION
from argosy.plan.actions import Patch

PRIMARY, STANDBY = "primary", "standby"


def primary_index(record: SpotJobRecord, observed: ObservedJob) -> int | None:
    """Return the primary: the one that was, as long as it runs; then the longest running, lowest index."""
    running = {r.index: pod for r in record.replicas if (pod := observed.running_pod(r.current)) is not None}
    if record.primary in running:
        return record.primary
    return min(running, key=lambda index: (_started(running[index]), index), default=None)


def assign_roles(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Record the primary and write every running pod's role on it."""
    primary = primary_index(record, observed)
    for replica in record.replicas:
        pod = observed.running_pod(replica.current)
        role = PRIMARY if replica.index == primary else STANDBY
        if pod is not None and pod.metadata.annotations.get(ROLE_ANNOTATION) != role:
            patch = {"metadata": {"annotations": {ROLE_ANNOTATION: role}}}
            meta = pod.metadata
            steps.actions.append(Patch(ClusterPod, meta.name, meta.namespace, meta.uid, patch))
    return replace(record, primary=primary)


def _started(pod: ClusterPod) -> float:
    return pod.started_at.timestamp() if pod.started_at is not None else float("inf")
