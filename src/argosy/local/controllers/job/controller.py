"""The Job controller at work: makes and removes pods, writes the status, then lets go of counted pods.

Pods are made before the status is written, as in Kubernetes, so that `active` says what is; a pod that made
it into the API server but not into the status is simply found at the next pass. Finalizers come off only
after the status that notes them is written.
"""

from collections.abc import Mapping

import msgspec

from argosy.engine.cache import Change
from argosy.engine.client import PatchType
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import ApiError, Conflict, Invalid, NotFound
from argosy.local.controllers.informers import Shared, each
from argosy.local.controllers.job.backoff import Backoff
from argosy.local.controllers.job.decide import TRACKING, Plan, decide
from argosy.local.controllers.job.pods import pod_for
from argosy.local.controllers.kinds import Job, Pod

MANAGER = "kubernetes.io/job-controller"


class JobController:
    def __init__(self, shared: Shared, backoff: Backoff = Backoff()) -> None:
        self._shared = shared
        self._backoff = backoff
        self._controller: Controller[Key] = Controller("job", self._pass)
        shared.jobs.subscribe(self._job_changed)
        shared.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _job_changed(self, change: Change[Job]) -> None:
        job = change.new or change.old
        if job is not None:
            self._controller.enqueue(Key(job.metadata.namespace, job.metadata.name))

    def _pod_changed(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            owner = pod.metadata.controller if pod is not None else None
            if (
                pod is not None
                and owner is not None
                and (owner.kind, owner.api_version) == ("Job", "batch/v1")
            ):
                self._controller.enqueue(Key(pod.metadata.namespace, owner.name))

    async def _pass(self, key: Key) -> Requeue | None:
        job = self._shared.jobs.get(*key)
        await self._release(self._orphans(key, job))
        if job is None or job.spec.managed_by not in (None, MANAGER):
            return None
        pods = self._shared.pods.by("owner", job.metadata.uid)
        plan = decide(job, pods, self._shared.clock.now().replace(microsecond=0), self._backoff)
        if plan.expired:
            await self._delete(job)
            return None
        problems = await self._perform(job, plan)
        try:
            await self._write(job, plan)
        except NotFound:
            return None
        except Conflict:
            # The cache is behind: its news will bring the key back, with what was noted still to do.
            return None
        await self._release(plan.release)
        for problem in problems:
            raise problem
        return Requeue(after=plan.wake)

    def _orphans(self, key: Key, job: Job | None) -> list[Pod]:
        """Pods that still hold the finalizer for a Job that is gone."""
        if job is not None:
            return []
        return [
            pod
            for pod in self._shared.pods.by("namespace", key.namespace)
            if TRACKING in pod.metadata.finalizers
            and (owner := pod.metadata.controller) is not None
            and (owner.kind, owner.name) == ("Job", key.name)
        ]

    async def _perform(self, job: Job, plan: Plan) -> list[BaseException]:
        """Makes and removes pods; what could not be made is not counted as active."""
        await self._release(plan.drop)
        problems = await each(self._stop(job, pod) for pod in (*plan.drop, *plan.stop))
        refused = await each(
            self._make(job, index, plan.notes.get(index, {}) if index is not None else {})
            for index in plan.create
        )
        plan.status.active -= len(refused)
        if refused:
            self._shared.events.event(job, "Warning", "FailedCreate", f"Error creating: {refused[0]}")
        return problems + refused

    async def _make(self, job: Job, index: int | None, notes: Mapping[str, str]) -> None:
        pod = await self._shared.client.create(Pod, pod_for(job, index, notes), job.metadata.namespace)
        self._shared.pods.put(pod)
        self._shared.events.event(job, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _stop(self, job: Job, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._shared.client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return
        self._shared.events.event(job, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name}")

    async def _write(self, job: Job, plan: Plan) -> None:
        if plan.status != job.status:
            meta = job.metadata
            patch = {
                "metadata": {"resourceVersion": meta.resource_version},
                "status": msgspec.to_builtins(plan.status),
            }
            written = await self._shared.client.patch(
                Job, meta.name, patch, meta.namespace, subresource="status"
            )
            self._shared.jobs.put(written)
        for severity, reason, message in plan.events:
            self._shared.events.event(job, "Warning" if severity == "Warning" else "Normal", reason, message)

    async def _release(self, pods: list[Pod]) -> None:
        for problem in await each(self._release_one(pod) for pod in pods):
            raise problem

    async def _release_one(self, pod: Pod) -> None:
        meta = pod.metadata
        if TRACKING not in meta.finalizers:
            return
        position = meta.finalizers.index(TRACKING)
        patch = [
            {"op": "test", "path": f"/metadata/finalizers/{position}", "value": TRACKING},
            {"op": "remove", "path": f"/metadata/finalizers/{position}"},
        ]
        try:
            written = await self._shared.client.patch(
                Pod, meta.name, patch, meta.namespace, type=PatchType.JSON
            )
        except NotFound:
            return
        except (Invalid, Conflict) as error:
            raise ApiError(
                409, "Conflict", f"pod {meta.name}: its finalizers changed: {error.message}"
            ) from error
        self._shared.pods.put(written)

    async def _delete(self, job: Job) -> None:
        meta = job.metadata
        try:
            await self._shared.client.delete(
                Job, meta.name, meta.namespace, uid=meta.uid, propagation="Foreground"
            )
        except (NotFound, Conflict):
            return
