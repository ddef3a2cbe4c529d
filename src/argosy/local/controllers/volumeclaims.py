"""Binds PersistentVolumeClaims, and protects claims in use from deletion.

There are no volumes to choose from: a claim is a folder in the state folder, created when a pod first mounts
it and visible to every node (`local/node/claim_folders.py`). Every filesystem claim is therefore bound
at once, with the access modes and capacity it requests. A claim for a block device stays Pending.
"""

from argosy.engine.cache import Cache, Change
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import Conflict, NotFound
from argosy.local.controllers.api_types import Pod
from argosy.local.controllers.informers import ControllerContext
from argosy.local.service_types import PVC_PROTECTION_FINALIZER, PersistentVolumeClaim


class VolumeClaimsController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._claims: Cache[PersistentVolumeClaim] = context.claims
        self._controller: Controller[Key] = Controller("volumeclaims", self._reconcile)
        self._claims.subscribe(self._claim_changed)
        context.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        if change.new is not None:
            self._controller.enqueue(Key(change.new.metadata.namespace, change.new.metadata.name))

    def _pod_changed(self, change: Change[Pod]) -> None:
        """Enqueue the claims of a deleted pod, which may have been their last user."""
        if change.new is None and change.old is not None:
            for name in change.old.claim_names:
                self._controller.enqueue(Key(change.old.metadata.namespace, name))

    async def _reconcile(self, key: Key) -> Requeue | None:
        claim = self._claims.get(key.namespace, key.name)
        if claim is None:
            return None
        try:
            if claim.metadata.deletion_timestamp is not None:
                await self._release(claim)
                return None
            if PVC_PROTECTION_FINALIZER not in claim.metadata.finalizers:
                claim = await self._set_finalizers(
                    claim, [*claim.metadata.finalizers, PVC_PROTECTION_FINALIZER]
                )
            if claim.status.phase == "Pending":
                await self._bind(claim)
        except NotFound:
            return None
        except Conflict:
            return Requeue(after=0.02)  # retry with the updated cache
        return None

    async def _release(self, claim: PersistentVolumeClaim) -> None:
        meta = claim.metadata
        pods = self._context.pods.by("namespace", meta.namespace)
        in_use = any(pod.spec.node_name and meta.name in pod.claim_names for pod in pods)
        if PVC_PROTECTION_FINALIZER in meta.finalizers and not in_use:
            await self._set_finalizers(
                claim, [name for name in meta.finalizers if name != PVC_PROTECTION_FINALIZER]
            )

    async def _bind(self, claim: PersistentVolumeClaim) -> None:
        if claim.spec.volume_mode != "Filesystem":
            message = f"volumeMode {claim.spec.volume_mode} is not supported; use Filesystem"
            self._context.events.event(claim, "Warning", "ProvisioningFailed", message)
            return
        requests = claim.spec.resources.requests
        status: dict[str, object] = {"phase": "Bound", "accessModes": claim.spec.access_modes}
        if "storage" in requests:
            status["capacity"] = {"storage": requests["storage"]}
        await self._patch(claim, {"status": status}, subresource="status")

    async def _set_finalizers(self, claim: PersistentVolumeClaim, names: list[str]) -> PersistentVolumeClaim:
        version = claim.metadata.resource_version
        return await self._patch(claim, {"metadata": {"finalizers": names, "resourceVersion": version}})

    async def _patch(
        self, claim: PersistentVolumeClaim, patch: dict[str, object], subresource: str = ""
    ) -> PersistentVolumeClaim:
        meta = claim.metadata
        written = await self._context.client.patch(
            PersistentVolumeClaim, meta.name, patch, meta.namespace, subresource=subresource
        )
        self._claims.put(written)
        return written
