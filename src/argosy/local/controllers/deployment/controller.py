"""The Deployment controller: adopts, creates, scales and deletes ReplicaSets, and writes the status.

ReplicaSets are written before the status, conditional on their resourceVersion. If the name of the new
ReplicaSet is taken by one with another template, two templates share a hash: the collision count in the
status is increased, which changes the next name.
"""

import msgspec
from msgspec.structs import replace

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import AlreadyExists, ApiError, Conflict, NotFound
from argosy.local.controllers.api_types import Pod
from argosy.local.controllers.deployment.decide import Plan, decide
from argosy.local.controllers.deployment.revisions import (
    has_same_template,
    replica_set_body,
    rollout_state_of,
)
from argosy.local.controllers.deployment.rollout_state import REVISION_ANNOTATION, SetState
from argosy.local.controllers.deployment.status import PROGRESSING, has_deadline, new_condition, set_condition
from argosy.local.controllers.informers import ControllerContext
from argosy.local.controllers.ownership import adopt, release, resolve_ownership
from argosy.local.controllers.workloads import Deployment, DeploymentStatus, ReplicaSet
from argosy.local.scheduler.node_affinity import selects


class DeploymentController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._controller: Controller[Key] = Controller("deployment", self._reconcile)
        context.deployments.subscribe(self._deployment_changed)
        context.replica_sets.subscribe(self._set_changed)
        context.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _deployment_changed(self, change: Change[Deployment]) -> None:
        for deployment in (change.old, change.new):
            if deployment is not None:
                self._controller.enqueue(Key(deployment.metadata.namespace, deployment.metadata.name))

    def _set_changed(self, change: Change[ReplicaSet]) -> None:
        for replica_set in (change.old, change.new):
            owner = replica_set.metadata.controller if replica_set is not None else None
            if replica_set is not None and owner is not None and owner.kind == "Deployment":
                self._controller.enqueue(Key(replica_set.metadata.namespace, owner.name))
        if change.new is not None and change.new.metadata.controller is None:
            meta = change.new.metadata
            for deployment in self._context.deployments.by("namespace", meta.namespace):
                if selects(deployment.spec.selector, meta.labels):
                    self._controller.enqueue(Key(meta.namespace, deployment.metadata.name))

    def _pod_changed(self, change: Change[Pod]) -> None:
        """Enqueue the Deployment of a pod that ended: Recreate waits for the last old pod."""
        pod = change.new or change.old
        if pod is None or (change.new is not None and not pod.finished):
            return
        owner = pod.metadata.controller
        if owner is None or owner.kind != "ReplicaSet":
            return
        above = self._context.replica_sets.get(pod.metadata.namespace, owner.name)
        if above is not None and above.metadata.controller is not None:
            self._controller.enqueue(Key(pod.metadata.namespace, above.metadata.controller.name))

    async def _reconcile(self, key: Key) -> Requeue | None:
        deployment = self._context.deployments.get(*key)
        if deployment is None:
            return None
        replica_sets = await self._claim(deployment)
        now = self._context.clock.now().replace(microsecond=0)
        plan = decide(deployment, replica_sets, now, old_pods=self._has_old_pods(deployment, replica_sets))
        try:
            if plan.create is not None and not await self._create_set(plan, plan.create):
                return None
            for set_state in plan.changed:
                await self._patch_set(plan, set_state)
            for message in plan.rollout.scale_messages:
                self._context.events.event(deployment, "Normal", "ScalingReplicaSet", message)
            for replica_set in plan.delete:
                await self._delete_set(replica_set)
            await self._write_status(deployment, plan.status, plan.revision)
        except (Conflict, NotFound):
            return None  # a cache is behind: its update enqueues the key again
        return Requeue(after=plan.requeue_after)

    async def _claim(self, deployment: Deployment) -> list[ReplicaSet]:
        candidates = self._context.replica_sets.by("namespace", deployment.metadata.namespace)
        ownership = resolve_ownership(deployment.metadata, deployment.spec.selector, candidates)
        for replica_set in ownership.to_adopt:
            if adopted := await adopt(self._context.client, deployment, replica_set):
                self._context.replica_sets.put(adopted)
                ownership.owned.append(adopted)
        for replica_set in ownership.to_release:
            if released := await release(self._context.client, deployment, replica_set):
                self._context.replica_sets.put(released)
        return ownership.owned

    def _has_old_pods(self, deployment: Deployment, replica_sets: list[ReplicaSet]) -> bool:
        return any(
            not pod.finished
            for set_state in rollout_state_of(deployment, replica_sets).old
            for pod in self._context.pods.by("owner", set_state.replica_set.metadata.uid)
        )

    async def _create_set(self, plan: Plan, set_state: SetState) -> bool:
        """Create the new ReplicaSet; False if its name is taken."""
        deployment = plan.rollout.deployment
        namespace = deployment.metadata.namespace
        try:
            created = await self._context.client.create(
                ReplicaSet, replica_set_body(set_state, deployment), namespace
            )
        except AlreadyExists:
            return await self._handle_collision(plan, set_state)
        except ApiError as error:
            await self._record_create_error(plan, set_state, error)
            raise
        self._context.replica_sets.put(created)
        return True

    async def _handle_collision(self, plan: Plan, set_state: SetState) -> bool:
        deployment = plan.rollout.deployment
        existing = await self._context.client.get(ReplicaSet, set_state.name, deployment.metadata.namespace)
        owner = existing.metadata.controller
        if (
            owner is not None
            and owner.uid == deployment.metadata.uid
            and has_same_template(deployment, existing)
        ):
            self._context.replica_sets.put(existing)
            return False
        count = (deployment.status.collision_count or 0) + 1
        await self._write_status(deployment, replace(deployment.status, collision_count=count), "")
        return False

    async def _record_create_error(self, plan: Plan, set_state: SetState, error: ApiError) -> None:
        deployment = plan.rollout.deployment
        message = f'Failed to create new replica set "{set_state.name}": {error.message}'
        self._context.events.event(deployment, "Warning", "ReplicaSetCreateError", message)
        if has_deadline(deployment):
            status = replace(deployment.status, conditions=list(deployment.status.conditions))
            now = self._context.clock.now().replace(microsecond=0)
            set_condition(status, new_condition(PROGRESSING, "False", "ReplicaSetCreateError", message, now))
            await self._write_status(deployment, status, "")

    async def _patch_set(self, plan: Plan, set_state: SetState) -> None:
        meta = set_state.replica_set.metadata
        spec: dict[str, object] = {"replicas": set_state.replicas}
        if set_state is plan.rollout.new:
            spec["minReadySeconds"] = plan.rollout.deployment.spec.min_ready_seconds
        patch = {
            "metadata": {"resourceVersion": meta.resource_version, "annotations": set_state.annotations},
            "spec": spec,
        }
        written = await self._context.client.patch(ReplicaSet, meta.name, patch, meta.namespace)
        self._context.replica_sets.put(written)

    async def _delete_set(self, replica_set: ReplicaSet) -> None:
        meta = replica_set.metadata
        try:
            await self._context.client.delete(ReplicaSet, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    async def _write_status(self, deployment: Deployment, status: DeploymentStatus, revision: str) -> None:
        meta = deployment.metadata
        metadata: dict[str, object] = {"resourceVersion": meta.resource_version}
        if revision and meta.annotations.get(REVISION_ANNOTATION) != revision:
            metadata["annotations"] = {REVISION_ANNOTATION: revision}
        elif status == deployment.status:
            return
        patch = {"metadata": metadata, "status": msgspec.to_builtins(status)}
        written = await self._context.client.patch(
            Deployment, meta.name, patch, meta.namespace, subresource="status"
        )
        self._context.deployments.put(written)
