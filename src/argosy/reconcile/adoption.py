"""Pods that another operator of the same API made for a job become ours, when that job is first worked on.

Ours are known, and watched, by their labels: those that belong to the job, by its uid, get them. Nothing else
about them changes, so they run on. What belongs to others is not touched.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.errors import Conflict, NotFound
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.reconcile.executor import ObjectSink
from argosy.reconcile.render import PodIdentity, place_labels, role_labels
from argosy.workload.model import Workload

FRESH = 10.0
"""Seconds for which pods that were listed may be believed: many jobs are taken over at once."""

Find = Callable[[Mapping[str, str]], tuple[str, int] | None]
"""Role and index of a pod, by its labels."""


class PodAdopter:
    def __init__(self, client: Client, clock: Clock, seen: ObjectSink) -> None:
        self._client = client
        self._clock = clock
        self._seen = seen
        self._listed: dict[str, _Listed] = {}
        """By namespace."""

    async def adopt(self, workload: Workload, find: Find) -> None:
        for pod in await self._pods(workload):
            found = find(pod.metadata.labels)
            if found is not None and found[0] in workload.roles:
                await self._label(workload, pod, *found)

    async def _pods(self, workload: Workload) -> Sequence[Pod]:
        """Those that belong to the job and are not ours yet."""
        now, known = self._clock.monotonic(), self._listed.get(workload.namespace)
        if known is None or known.at + FRESH < now:
            foreign = f"{labels.MANAGED_BY}!={labels.MANAGER}"
            listed = await self._client.list(Pod, workload.namespace, labels=foreign)
            self._listed = {name: one for name, one in self._listed.items() if one.at + FRESH >= now}
            known = self._listed[workload.namespace] = _Listed(now, tuple(listed.items))
        owned = [pod for pod in known.pods if pod.metadata.controller is not None]
        return [
            one for one in owned if one.metadata.controller and one.metadata.controller.uid == workload.uid
        ]

    async def _label(self, workload: Workload, pod: Pod, role: str, index: int) -> None:
        place = PodIdentity(pod.metadata.name, index)
        given = {**role_labels(workload, role), **place_labels(workload, place)}
        metadata = {"uid": pod.metadata.uid, "labels": given}
        try:
            self._seen.put(
                await self._client.patch(Pod, place.name, {"metadata": metadata}, workload.namespace)
            )
        except (NotFound, Conflict):
            pass  # it has gone since, or another has its name


class _Listed(Struct, frozen=True):
    at: float
    pods: tuple[Pod, ...]
