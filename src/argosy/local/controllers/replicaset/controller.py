"""The ReplicaSet controller: adopts, creates and deletes pods, and writes the status.

Pods are created in batches of doubling size, so that a rejection is met once and not hundreds of times. Pods
that were deleted are remembered until the watch confirms it, so that no other pod is deleted in their place.
"""

import copy

import msgspec

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import ApiError, Conflict, NotFound
from argosy.kinds.meta import Json
from argosy.local.controllers.api_types import Pod
from argosy.local.controllers.informers import ControllerContext, gather_errors
from argosy.local.controllers.ownership import adopt, controller_reference, release, resolve_ownership
from argosy.local.controllers.replicaset.decide import Plan, decide, with_replica_failure
from argosy.local.controllers.workloads import ReplicaSet, ReplicaSetStatus
from argosy.local.scheduler.node_affinity import selects


class ReplicaSetController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._pending_deletes: set[str] = set()
        self._controller: Controller[Key] = Controller("replicaset", self._reconcile)
        context.replica_sets.subscribe(self._set_changed)
        context.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _set_changed(self, change: Change[ReplicaSet]) -> None:
        for owner in (change.old, change.new):
            if owner is not None:
                self._controller.enqueue(Key(owner.metadata.namespace, owner.metadata.name))

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.old is not None and (
            change.new is None or change.new.metadata.deletion_timestamp is not None
        ):
            self._pending_deletes.discard(change.old.metadata.uid)
        for pod in (change.old, change.new):
            if pod is None:
                continue
            owner = pod.metadata.controller
            if owner is not None and (owner.kind, owner.api_version) == ("ReplicaSet", "apps/v1"):
                self._controller.enqueue(Key(pod.metadata.namespace, owner.name))
        if change.new is not None and change.new.metadata.controller is None:
            self._enqueue_adopters(change.new)

    def _enqueue_adopters(self, pod: Pod) -> None:
        """Enqueue the ReplicaSets that select a pod without a controller and may adopt it."""
        for owner in self._context.replica_sets.by("namespace", pod.metadata.namespace):
            if selects(owner.spec.selector, pod.metadata.labels):
                self._controller.enqueue(Key(owner.metadata.namespace, owner.metadata.name))

    async def _reconcile(self, key: Key) -> Requeue | None:
        owner = self._context.replica_sets.get(*key)
        if owner is None:
            return None
        pods = await self._claim(owner)
        now = self._context.clock.now().replace(microsecond=0)
        plan = decide(owner, pods, self._related_pods(owner, pods), self._pending_deletes, now)
        problem = await self._apply(owner, plan)
        reason = "FailedCreate" if plan.create else "FailedDelete"
        status = with_replica_failure(plan.status, reason, problem.message if problem else None, now)
        try:
            await self._write_status(owner, status)
        except (NotFound, Conflict):
            return None  # the cache is behind: its update enqueues the key again
        if problem is not None:
            raise problem
        return Requeue(after=plan.requeue_after)

    async def _claim(self, owner: ReplicaSet) -> list[Pod]:
        meta = owner.metadata
        ownership = resolve_ownership(meta, owner.spec.selector, self._candidates(owner))
        for pod in ownership.to_adopt:
            if not pod.finished and (taken := await adopt(self._context.client, owner, pod)):
                self._context.pods.put(taken)
                ownership.owned.append(taken)
        for pod in ownership.to_release:
            if freed := await release(self._context.client, owner, pod):
                self._context.pods.put(freed)
        return ownership.owned

    def _candidates(self, owner: ReplicaSet) -> list[Pod]:
        """Return its pods, and those without a controller that have the first label it selects."""
        meta, pods = owner.metadata, self._context.pods
        pods_by_uid = {pod.metadata.uid: pod for pod in pods.by("owner", meta.uid)}
        for key, value in owner.spec.selector.match_labels.items():
            for pod in pods.by("label", f"{meta.namespace}|{key}={value}"):
                if pod.metadata.controller is None:
                    pods_by_uid[pod.metadata.uid] = pod
            break
        else:
            for pod in pods.by("namespace", meta.namespace):
                if pod.metadata.controller is None:
                    pods_by_uid[pod.metadata.uid] = pod
        return list(pods_by_uid.values())

    def _related_pods(self, owner: ReplicaSet, pods: list[Pod]) -> list[Pod]:
        """Return the pods of all ReplicaSets of the same Deployment."""
        above = owner.metadata.controller
        if above is None:
            return pods
        siblings = self._context.replica_sets.by("owner", above.uid)
        return [pod for sibling in siblings for pod in self._context.pods.by("owner", sibling.metadata.uid)]

    async def _apply(self, owner: ReplicaSet, plan: Plan) -> ApiError | None:
        """Create and delete pods; return the first error."""
        created, batch = 0, 1
        while created < plan.create:
            count = min(batch, plan.create - created)
            problems = await gather_errors(self._create_pod(owner) for _ in range(count))
            if problems:
                return self._record_create_error(owner, _api_error(problems[0]))
            created, batch = created + count, batch * 2
        for problem in await gather_errors(self._delete_pod(owner, pod) for pod in plan.delete):
            return _api_error(problem)
        return None

    def _record_create_error(self, owner: ReplicaSet, problem: ApiError) -> ApiError | None:
        causes = problem.details.causes if problem.details else None
        if any(cause.reason == "NamespaceTerminating" for cause in causes or ()):
            return None
        self._context.events.event(owner, "Warning", "FailedCreate", f"Error creating: {problem.message}")
        return problem

    async def _create_pod(self, owner: ReplicaSet) -> None:
        pod = await self._context.client.create(Pod, build_pod(owner), owner.metadata.namespace)
        self._context.pods.put(pod)
        self._context.events.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _delete_pod(self, owner: ReplicaSet, pod: Pod) -> None:
        meta = pod.metadata
        self._pending_deletes.add(meta.uid)
        try:
            await self._context.client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return
        except ApiError:
            self._pending_deletes.discard(meta.uid)
            raise
        self._context.events.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name}")

    async def _write_status(self, owner: ReplicaSet, status: ReplicaSetStatus) -> None:
        if status == owner.status:
            return
        meta = owner.metadata
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "status": msgspec.to_builtins(status),
        }
        written = await self._context.client.patch(
            ReplicaSet, meta.name, patch, meta.namespace, subresource="status"
        )
        self._context.replica_sets.put(written)


def _api_error(problem: BaseException) -> ApiError:
    """Return the API server's error; raise anything else, which is an error of this program."""
    if not isinstance(problem, ApiError):
        raise problem
    return problem


def build_pod(owner: ReplicaSet) -> Json:
    """Build a pod from the template, with a generated name and the owner reference."""
    template = copy.deepcopy(owner.spec.template)
    metadata, spec = template.get("metadata"), template.get("spec")
    kept = ("labels", "annotations", "finalizers")
    copied = {name: metadata[name] for name in kept if name in metadata} if isinstance(metadata, dict) else {}
    return {
        "metadata": {
            **copied,
            "generateName": f"{owner.metadata.name}-",
            "namespace": owner.metadata.namespace,
            "ownerReferences": [controller_reference(owner)],
        },
        "spec": spec,
    }
