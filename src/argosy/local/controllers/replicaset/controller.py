"""The ReplicaSet controller at work: claims pods, makes and deletes them, writes the status.

Pods are made a few at first and twice as many each time, so that what refuses one is not asked hundreds of
times. Whom it has deleted it remembers until the watch says so: nobody is deleted in another's stead.
"""

import copy

import msgspec

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import ApiError, Conflict, NotFound
from argosy.kinds.meta import Json
from argosy.local.controllers.informers import Shared, each
from argosy.local.controllers.kinds import Pod
from argosy.local.controllers.ownership import adopt, claims, reference_to, release
from argosy.local.controllers.replicaset.decide import Plan, decide, with_failure
from argosy.local.controllers.workloads import ReplicaSet, ReplicaSetStatus
from argosy.local.scheduler.node_affinity import selects


class ReplicaSetController:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._leaving: set[str] = set()
        self._controller: Controller[Key] = Controller("replicaset", self._pass)
        shared.replica_sets.subscribe(self._set_changed)
        shared.pods.subscribe(self._pod_changed)

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
            self._leaving.discard(change.old.metadata.uid)
        for pod in (change.old, change.new):
            if pod is None:
                continue
            owner = pod.metadata.controller
            if owner is not None and (owner.kind, owner.api_version) == ("ReplicaSet", "apps/v1"):
                self._controller.enqueue(Key(pod.metadata.namespace, owner.name))
        if change.new is not None and change.new.metadata.controller is None:
            self._offer(change.new)

    def _offer(self, pod: Pod) -> None:
        """A pod without a controller: whoever selects it may want it."""
        for owner in self._shared.replica_sets.by("namespace", pod.metadata.namespace):
            if selects(owner.spec.selector, pod.metadata.labels):
                self._controller.enqueue(Key(owner.metadata.namespace, owner.metadata.name))

    async def _pass(self, key: Key) -> Requeue | None:
        owner = self._shared.replica_sets.get(*key)
        if owner is None:
            return None
        pods = await self._claim(owner)
        now = self._shared.clock.now().replace(microsecond=0)
        plan = decide(owner, pods, self._related(owner, pods), self._leaving, now)
        problem = await self._perform(owner, plan)
        reason = "FailedCreate" if plan.create else "FailedDelete"
        status = with_failure(plan.status, reason, problem.message if problem else None, now)
        try:
            await self._write(owner, status)
        except (NotFound, Conflict):
            return None  # the cache is behind: its news will bring the key back
        if problem is not None:
            raise problem
        return Requeue(after=plan.wake)

    async def _claim(self, owner: ReplicaSet) -> list[Pod]:
        meta = owner.metadata
        found = claims(meta, owner.spec.selector, self._candidates(owner))
        for pod in found.adopt:
            if not pod.finished and (taken := await adopt(self._shared.client, owner, pod)):
                self._shared.pods.put(taken)
                found.held.append(taken)
        for pod in found.release:
            if freed := await release(self._shared.client, owner, pod):
                self._shared.pods.put(freed)
        return found.held

    def _candidates(self, owner: ReplicaSet) -> list[Pod]:
        """The pods that it owns, and those that have the first label that it selects."""
        meta, pods = owner.metadata, self._shared.pods
        found = {pod.metadata.uid: pod for pod in pods.by("owner", meta.uid)}
        for key, value in owner.spec.selector.match_labels.items():
            for pod in pods.by("label", f"{meta.namespace}|{key}={value}"):
                if pod.metadata.controller is None:
                    found[pod.metadata.uid] = pod
            break
        else:
            for pod in pods.by("namespace", meta.namespace):
                if pod.metadata.controller is None:
                    found[pod.metadata.uid] = pod
        return list(found.values())

    def _related(self, owner: ReplicaSet, pods: list[Pod]) -> list[Pod]:
        """The pods of all sets of the same Deployment."""
        above = owner.metadata.controller
        if above is None:
            return pods
        siblings = self._shared.replica_sets.by("owner", above.uid)
        return [pod for sibling in siblings for pod in self._shared.pods.by("owner", sibling.metadata.uid)]

    async def _perform(self, owner: ReplicaSet, plan: Plan) -> ApiError | None:
        """Make and delete pods; the first thing that went wrong is returned."""
        made, batch = 0, 1
        while made < plan.create:
            count = min(batch, plan.create - made)
            problems = await each(self._make(owner) for _ in range(count))
            if problems:
                return self._refused(owner, _api_error(problems[0]))
            made, batch = made + count, batch * 2
        for problem in await each(self._stop(owner, pod) for pod in plan.delete):
            return _api_error(problem)
        return None

    def _refused(self, owner: ReplicaSet, problem: ApiError) -> ApiError | None:
        causes = problem.details.causes if problem.details else None
        if any(cause.reason == "NamespaceTerminating" for cause in causes or ()):
            return None
        self._shared.events.event(owner, "Warning", "FailedCreate", f"Error creating: {problem.message}")
        return problem

    async def _make(self, owner: ReplicaSet) -> None:
        pod = await self._shared.client.create(Pod, pod_for(owner), owner.metadata.namespace)
        self._shared.pods.put(pod)
        self._shared.events.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _stop(self, owner: ReplicaSet, pod: Pod) -> None:
        meta = pod.metadata
        self._leaving.add(meta.uid)
        try:
            await self._shared.client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return
        except ApiError:
            self._leaving.discard(meta.uid)
            raise
        self._shared.events.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name}")

    async def _write(self, owner: ReplicaSet, status: ReplicaSetStatus) -> None:
        if status == owner.status:
            return
        meta = owner.metadata
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "status": msgspec.to_builtins(status),
        }
        written = await self._shared.client.patch(
            ReplicaSet, meta.name, patch, meta.namespace, subresource="status"
        )
        self._shared.replica_sets.put(written)


def _api_error(problem: BaseException) -> ApiError:
    """What the API answered; anything else is a fault of ours, and not to be told as its answer."""
    if not isinstance(problem, ApiError):
        raise problem
    return problem


def pod_for(owner: ReplicaSet) -> Json:
    """A pod of the template, with a name of its own and its owner's reference."""
    template = copy.deepcopy(owner.spec.template)
    metadata, spec = template.get("metadata"), template.get("spec")
    kept = ("labels", "annotations", "finalizers")
    given = {name: metadata[name] for name in kept if name in metadata} if isinstance(metadata, dict) else {}
    return {
        "metadata": {
            **given,
            "generateName": f"{owner.metadata.name}-",
            "namespace": owner.metadata.namespace,
            "ownerReferences": [reference_to(owner)],
        },
        "spec": spec,
    }
