"""The Deployment controller at work: claims ReplicaSets, makes, resizes and deletes them, writes the status.

Sets are written before the status, at the versions seen. When a set of the new name is there already and is
not for this template, two templates share a hash: the collision is counted in the status and gives the next
name.
"""

import msgspec
from msgspec.structs import replace

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import AlreadyExists, ApiError, Conflict, NotFound
from argosy.local.controllers.deployment.decide import Plan, decide
from argosy.local.controllers.deployment.revisions import body_of, parts_of, same_template
from argosy.local.controllers.deployment.rollout_state import REVISION, Part
from argosy.local.controllers.deployment.status import PROGRESSING, condition, has_deadline, put
from argosy.local.controllers.informers import Shared
from argosy.local.controllers.kinds import Pod
from argosy.local.controllers.ownership import adopt, claims, release
from argosy.local.controllers.workloads import Deployment, DeploymentStatus, ReplicaSet
from argosy.local.scheduler.node_affinity import selects


class DeploymentController:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._controller: Controller[Key] = Controller("deployment", self._pass)
        shared.deployments.subscribe(self._deployment_changed)
        shared.replica_sets.subscribe(self._set_changed)
        shared.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _deployment_changed(self, change: Change[Deployment]) -> None:
        for deployment in (change.old, change.new):
            if deployment is not None:
                self._controller.enqueue(Key(deployment.metadata.namespace, deployment.metadata.name))

    def _set_changed(self, change: Change[ReplicaSet]) -> None:
        for each in (change.old, change.new):
            owner = each.metadata.controller if each is not None else None
            if each is not None and owner is not None and owner.kind == "Deployment":
                self._controller.enqueue(Key(each.metadata.namespace, owner.name))
        if change.new is not None and change.new.metadata.controller is None:
            meta = change.new.metadata
            for deployment in self._shared.deployments.by("namespace", meta.namespace):
                if selects(deployment.spec.selector, meta.labels):
                    self._controller.enqueue(Key(meta.namespace, deployment.metadata.name))

    def _pod_changed(self, change: Change[Pod]) -> None:
        """A Deployment that recreates waits for the last old pod to end."""
        pod = change.new or change.old
        if pod is None or (change.new is not None and not pod.finished):
            return
        owner = pod.metadata.controller
        if owner is None or owner.kind != "ReplicaSet":
            return
        above = self._shared.replica_sets.get(pod.metadata.namespace, owner.name)
        if above is not None and above.metadata.controller is not None:
            self._controller.enqueue(Key(pod.metadata.namespace, above.metadata.controller.name))

    async def _pass(self, key: Key) -> Requeue | None:
        deployment = self._shared.deployments.get(*key)
        if deployment is None:
            return None
        sets = await self._claim(deployment)
        now = self._shared.clock.now().replace(microsecond=0)
        plan = decide(deployment, sets, now, old_pods=self._old_pods(deployment, sets))
        try:
            if plan.create is not None and not await self._make(plan, plan.create):
                return None
            for part in plan.changed:
                await self._change(plan, part)
            for message in plan.parts.scaled:
                self._shared.events.event(deployment, "Normal", "ScalingReplicaSet", message)
            for each in plan.delete:
                await self._delete(each)
            await self._write(deployment, plan.status, plan.revision)
        except (Conflict, NotFound):
            return None  # a cache is behind: its news will bring the key back
        return Requeue(after=plan.wake)

    async def _claim(self, deployment: Deployment) -> list[ReplicaSet]:
        candidates = self._shared.replica_sets.by("namespace", deployment.metadata.namespace)
        found = claims(deployment.metadata, deployment.spec.selector, candidates)
        for each in found.adopt:
            if taken := await adopt(self._shared.client, deployment, each):
                self._shared.replica_sets.put(taken)
                found.held.append(taken)
        for each in found.release:
            if freed := await release(self._shared.client, deployment, each):
                self._shared.replica_sets.put(freed)
        return found.held

    def _old_pods(self, deployment: Deployment, sets: list[ReplicaSet]) -> bool:
        return any(
            not pod.finished
            for part in parts_of(deployment, sets).old
            for pod in self._shared.pods.by("owner", part.set.metadata.uid)
        )

    async def _make(self, plan: Plan, part: Part) -> bool:
        """Create the newest set; False when the name is taken by another."""
        deployment = plan.parts.deployment
        namespace = deployment.metadata.namespace
        try:
            made = await self._shared.client.create(ReplicaSet, body_of(part, deployment), namespace)
        except AlreadyExists:
            return await self._collided(plan, part)
        except ApiError as error:
            await self._tell_refusal(plan, part, error)
            raise
        self._shared.replica_sets.put(made)
        return True

    async def _collided(self, plan: Plan, part: Part) -> bool:
        deployment = plan.parts.deployment
        there = await self._shared.client.get(ReplicaSet, part.name, deployment.metadata.namespace)
        owner = there.metadata.controller
        if owner is not None and owner.uid == deployment.metadata.uid and same_template(deployment, there):
            self._shared.replica_sets.put(there)
            return False
        count = (deployment.status.collision_count or 0) + 1
        await self._write(deployment, replace(deployment.status, collision_count=count), "")
        return False

    async def _tell_refusal(self, plan: Plan, part: Part, error: ApiError) -> None:
        deployment = plan.parts.deployment
        message = f'Failed to create new replica set "{part.name}": {error.message}'
        self._shared.events.event(deployment, "Warning", "ReplicaSetCreateError", message)
        if has_deadline(deployment):
            status = replace(deployment.status, conditions=list(deployment.status.conditions))
            now = self._shared.clock.now().replace(microsecond=0)
            put(status, condition(PROGRESSING, "False", "ReplicaSetCreateError", message, now))
            await self._write(deployment, status, "")

    async def _change(self, plan: Plan, part: Part) -> None:
        meta = part.set.metadata
        spec: dict[str, object] = {"replicas": part.replicas}
        if part is plan.parts.new:
            spec["minReadySeconds"] = plan.parts.deployment.spec.min_ready_seconds
        patch = {
            "metadata": {"resourceVersion": meta.resource_version, "annotations": part.notes},
            "spec": spec,
        }
        written = await self._shared.client.patch(ReplicaSet, meta.name, patch, meta.namespace)
        self._shared.replica_sets.put(written)

    async def _delete(self, each: ReplicaSet) -> None:
        meta = each.metadata
        try:
            await self._shared.client.delete(ReplicaSet, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    async def _write(self, deployment: Deployment, status: DeploymentStatus, revision: str) -> None:
        meta = deployment.metadata
        metadata: dict[str, object] = {"resourceVersion": meta.resource_version}
        if revision and meta.annotations.get(REVISION) != revision:
            metadata["annotations"] = {REVISION: revision}
        elif status == deployment.status:
            return
        patch = {"metadata": metadata, "status": msgspec.to_builtins(status)}
        written = await self._shared.client.patch(
            Deployment, meta.name, patch, meta.namespace, subresource="status"
        )
        self._shared.deployments.put(written)
