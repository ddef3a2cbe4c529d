"""Manages the folders behind PersistentVolumeClaims: created at the first mount, deleted with the claim.

All nodes of the machine share the folders, so every access mode is satisfied. A folder's name contains the
claim's uid: a claim that is deleted and created again starts empty.
"""

import asyncio
import re
import shutil
from pathlib import Path

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.engine.logs import Logger
from argosy.kinds.meta import ObjectMeta
from argosy.local.node.pod_types import Pod
from argosy.local.node.volumes import VolumeError, validate_path_component
from argosy.local.service_types import PersistentVolumeClaim

log = Logger(__name__)

_FOLDER = re.compile(r"(?P<name>[^_/]+)_(?P<uid>[0-9a-f-]{36})")


class ClaimFolders:
    def __init__(self, client: Client, claims: Cache[PersistentVolumeClaim], folder: Path) -> None:
        self._client = client
        self._claims = claims
        self._folder = folder

    async def folders(self, pod: Pod) -> dict[str, Path]:
        """Return the folder of each claim that a container of the pod mounts, creating missing ones."""
        mounted = {mount.name for container in pod.every_container for mount in container.volume_mounts}
        folders = {}
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim and volume.name in mounted:
                name = validate_path_component(volume.persistent_volume_claim.claim_name)
                folders[name] = await self._ensure_folder(pod.metadata.namespace, name)
        return folders

    async def remove_orphaned(self) -> None:
        """Delete folders whose claims were deleted while the agent was down. The cache must have synced."""
        claim_uids = {claim.metadata.uid for claim in self._claims}
        for folder in self._folder.glob("*/*_*"):
            match = _FOLDER.fullmatch(folder.name)
            if match and match["uid"] not in claim_uids:
                await self._remove(folder)

    async def claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        """Delete the folder of a deleted claim."""
        if change.new is None and change.old is not None:
            await self._remove(self._path(change.old.metadata))

    async def _ensure_folder(self, namespace: str, name: str) -> Path:
        claim = self._claims.get(namespace, name) or await self._fetch(namespace, name)
        if claim is None:
            raise VolumeError(f'persistentvolumeclaim "{name}" not found')
        if claim.metadata.deletion_timestamp is not None:
            raise VolumeError(f'persistentvolumeclaim "{name}" is being deleted')
        if claim.spec.volume_mode != "Filesystem":
            raise VolumeError(f'persistentvolumeclaim "{name}": volumeMode Block is not supported')
        folder = self._path(claim.metadata)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        return folder

    async def _fetch(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        try:
            return await self._client.get(PersistentVolumeClaim, name, namespace)
        except NotFound:
            return None

    def _path(self, meta: ObjectMeta) -> Path:
        return (
            self._folder
            / meta.namespace
            / f"{validate_path_component(meta.name)}_{validate_path_component(meta.uid)}"
        )

    async def _remove(self, folder: Path) -> None:
        log.info("deleting the folder of a claim that is gone", folder=str(folder))
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
