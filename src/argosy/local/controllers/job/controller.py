"""The Job controller: creates and deletes pods, writes the status, then removes finalizers of counted pods.

Pods are created before the status is written, as in Kubernetes, so that `active` is true; a pod that was
created but is missing in the status is found by the next reconcile. Finalizers are removed only after the
status that records the pods is written.
"""

import msgspec

from argosy.engine.cache import Change
from argosy.engine.client import PatchType
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import ApiError, Conflict, Invalid, NotFound
from argosy.local.controllers.api_types import Job, Pod
from argosy.local.controllers.informers import ControllerContext, gather_errors
from argosy.local.controllers.job.backoff import JobBackoff
from argosy.local.controllers.job.decide import TRACKING_FINALIZER, Plan, decide
from argosy.local.controllers.job.pods import build_pod


class JobController:
    def __init__(self, context: ControllerContext, backoff: JobBackoff = JobBackoff()) -> None:
        self._context = context
        self._backoff = backoff
        self._controller: Controller[Key] = Controller("job", self._reconcile)
        context.jobs.subscribe(self._job_changed)
        context.pods.subscribe(self._pod_changed)

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

    async def _reconcile(self, key: Key) -> Requeue | None:
        job = self._context.jobs.get(*key)
        await self._remove_finalizers(self._orphans(key, job))
        if job is None:
            return None
        pods = self._context.pods.by("owner", job.metadata.uid)
        plan = decide(job, pods, self._context.clock.now().replace(microsecond=0), self._backoff)
        if plan.expired:
            await self._delete_job(job)
            return None
        problems = await self._apply(job, plan)
        try:
            await self._write_status(job, plan)
        except NotFound:
            return None
        except Conflict:
            # The cache is behind: its update enqueues the key again.
            return None
        await self._remove_finalizers(plan.release)
        for problem in problems:
            raise problem
        return Requeue(after=plan.requeue_after)

    def _orphans(self, key: Key, job: Job | None) -> list[Pod]:
        """Return pods that still have the finalizer of a Job that was deleted."""
        if job is not None:
            return []
        return [
            pod
            for pod in self._context.pods.by("namespace", key.namespace)
            if TRACKING_FINALIZER in pod.metadata.finalizers
            and (owner := pod.metadata.controller) is not None
            and (owner.kind, owner.name) == ("Job", key.name)
        ]

    async def _apply(self, job: Job, plan: Plan) -> list[BaseException]:
        """Create and delete pods; pods that could not be created are not counted as active."""
        await self._remove_finalizers(plan.drop)
        problems = await gather_errors(self._delete_pod(job, pod) for pod in (*plan.drop, *plan.stop))
        failed = await gather_errors(self._create_pod(job, index) for index in plan.create)
        plan.status.active -= len(failed)
        if failed:
            self._context.events.event(job, "Warning", "FailedCreate", f"Error creating: {failed[0]}")
        return problems + failed

    async def _create_pod(self, job: Job, index: int | None) -> None:
        pod = await self._context.client.create(Pod, build_pod(job, index), job.metadata.namespace)
        self._context.pods.put(pod)
        self._context.events.event(job, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _delete_pod(self, job: Job, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._context.client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return
        self._context.events.event(job, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name}")

    async def _write_status(self, job: Job, plan: Plan) -> None:
        if plan.status != job.status:
            meta = job.metadata
            patch = {
                "metadata": {"resourceVersion": meta.resource_version},
                "status": msgspec.to_builtins(plan.status),
            }
            written = await self._context.client.patch(
                Job, meta.name, patch, meta.namespace, subresource="status"
            )
            self._context.jobs.put(written)
        for severity, reason, message in plan.events:
            self._context.events.event(job, "Warning" if severity == "Warning" else "Normal", reason, message)

    async def _remove_finalizers(self, pods: list[Pod]) -> None:
        for problem in await gather_errors(self._remove_finalizer(pod) for pod in pods):
            raise problem

    async def _remove_finalizer(self, pod: Pod) -> None:
        meta = pod.metadata
        if TRACKING_FINALIZER not in meta.finalizers:
            return
        position = meta.finalizers.index(TRACKING_FINALIZER)
        patch = [
            {"op": "test", "path": f"/metadata/finalizers/{position}", "value": TRACKING_FINALIZER},
            {"op": "remove", "path": f"/metadata/finalizers/{position}"},
        ]
        try:
            written = await self._context.client.patch(
                Pod, meta.name, patch, meta.namespace, type=PatchType.JSON
            )
        except NotFound:
            return
        except (Invalid, Conflict) as error:
            raise ApiError(
                409, "Conflict", f"pod {meta.name}: its finalizers changed: {error.message}"
            ) from error
        self._context.pods.put(written)

    async def _delete_job(self, job: Job) -> None:
        meta = job.metadata
        try:
            await self._context.client.delete(
                Job, meta.name, meta.namespace, uid=meta.uid, propagation="Foreground"
            )
        except (NotFound, Conflict):
            return
