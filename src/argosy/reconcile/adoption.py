"""Adopts pods that another operator of the same API created for a job, when the job is first reconciled.

Pods of a job, by the uid of their owner, get our labels, by which they are watched from then on. Nothing else
about them changes, so they keep running. Pods of other owners are not touched.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.errors import Conflict, NotFound
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.reconcile.executor import ObjectSink
from argosy.reconcile.render import PodIdentity, replica_labels
from argosy.workload.children import role_labels
from argosy.workload.model import Workload

LIST_VALID_SECONDS = 10.0
"""How long a list of pods is reused: many jobs are adopted at once."""

FindReplica = Callable[[Mapping[str, str]], tuple[str, int] | None]
"""Returns role and index of a pod by its labels."""


class PodAdopter:
    def __init__(self, client: Client, clock: Clock, sink: ObjectSink) -> None:
        self._client = client
        self._clock = clock
        self._sink = sink
        self._listed: dict[str, _Listed] = {}
        """By namespace."""

    async def adopt(self, workload: Workload, find: FindReplica) -> None:
        for pod in await self._pods(workload):
            replica = find(pod.metadata.labels)
            if replica is not None and replica[0] in workload.roles:
                await self._label(workload, pod, *replica)

    async def _pods(self, workload: Workload) -> Sequence[Pod]:
        """Return the pods that belong to the job and have no labels of ours yet."""
        now, listed = self._clock.monotonic(), self._listed.get(workload.namespace)
        if listed is None or listed.at + LIST_VALID_SECONDS < now:
            foreign = f"{labels.MANAGED_BY}!={labels.MANAGER}"
            response = await self._client.list(Pod, workload.namespace, labels=foreign)
            self._listed = {
                name: entry for name, entry in self._listed.items() if entry.at + LIST_VALID_SECONDS >= now
            }
            listed = self._listed[workload.namespace] = _Listed(now, tuple(response.items))
        return [
            pod
            for pod in listed.pods
            if (owner := pod.metadata.controller) is not None and owner.uid == workload.uid
        ]

    async def _label(self, workload: Workload, pod: Pod, role: str, index: int) -> None:
        identity = PodIdentity(pod.metadata.name, index)
        added = {**role_labels(workload, role), **replica_labels(workload, identity)}
        metadata = {"uid": pod.metadata.uid, "labels": added}
        try:
            self._sink.put(
                await self._client.patch(Pod, identity.name, {"metadata": metadata}, workload.namespace)
            )
        except (NotFound, Conflict):
            pass  # deleted meanwhile, or another pod has the name


class _Listed(Struct, frozen=True):
    at: float
    pods: tuple[Pod, ...]
