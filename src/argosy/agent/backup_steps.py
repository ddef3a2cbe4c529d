"""Executes the steps of a CheckpointBackup on this node, and returns the status that each one leads to.

Every step can be repeated: it first finds out whether an agent that was killed had done it already.
"""

import asyncio
import contextlib
import time
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from argosy.agent.archive_files import ArchiveError, ArchiveFolder
from argosy.agent.image_import import import_command, import_image
from argosy.agent.kubelet import Kubelet, KubeletError
from argosy.agent.objects import OwnNode
from argosy.agent.settings import AgentSettings
from argosy.checkpoint import backup as steps
from argosy.checkpoint import backup_status
from argosy.checkpoint.archives import ContainerName, archive_time
from argosy.checkpoint.backup import InvalidBackupError
from argosy.checkpoint.drivers.image_files import push_image, read_layer, write_archive
from argosy.checkpoint.drivers.registry import Registry
from argosy.checkpoint.drivers.registry_authority import read_authority, read_authority_file
from argosy.checkpoint.drivers.registry_http import RegistryError
from argosy.checkpoint.image_names import Image
from argosy.checkpoint.images import BuiltImage, Source, build_image
from argosy.checkpoint.pod_templates import pod_template
from argosy.checkpoint.registry_login import InvalidLoginError, Login, read_login
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.errors import ApiError, Conflict, Forbidden, NotFound
from argosy.engine.urls import path_of
from argosy.kinds.kubernetes import Pod, Secret
from argosy.kinds.migration import CheckpointBackup, CheckpointBackupStatus, CheckpointFile

GROWING_SECONDS = 60.0
"""An incomplete archive is still being written if it has changed within this time."""


class LaterError(Exception):
    """The step waits for something in progress; the backup is to be reconciled again after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class StepError(Exception):
    """A step failed; `is_temporary` if it may succeed later."""

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.is_temporary = temporary


class _WholePod(Struct):
    """A pod with everything in its metadata and spec."""

    metadata: dict[str, object]
    spec: dict[str, object]


class NodeState(Protocol):
    """What the steps know of this node and of other backups."""

    def node(self) -> OwnNode:
        """Return the Node of the agent; raises StepError if the cache does not have it."""
        ...

    def archives_of_others(self, backup: CheckpointBackup) -> Collection[str]:
        """Return the file names of archives that other backups have recorded."""
        ...


class BackupSteps:
    """The steps; one instance serves all backups of the node."""

    def __init__(
        self, client: Client, kubelet: Kubelet, state: NodeState, settings: AgentSettings, clock: Clock
    ) -> None:
        self._client = client
        self._kubelet = kubelet
        self._state = state
        self._settings = settings
        self._clock = clock
        self._folder = ArchiveFolder(settings.checkpoint_folder)
        self._resume_at = clock.monotonic() + settings.resume_grace
        self._begun: set[str] = set()
        """Uids of backups that this process has begun: no earlier process can have asked for an archive."""
        self._dumping: set[tuple[str, str]] = set()
        """Pods of which a checkpoint is being made."""

    async def execute(
        self, step: steps.Step, backup: CheckpointBackup, pod: steps.SourcePod | None
    ) -> CheckpointBackupStatus:
        """Execute a step; raises StepError, InvalidBackupError, LaterError or ApiError."""
        try:
            return await self._execute(step, backup, pod)
        except (RegistryError, KubeletError) as error:
            raise StepError(str(error), temporary=error.is_temporary) from error
        except (InvalidLoginError, ArchiveError) as error:
            raise StepError(str(error)) from error
        except OSError as error:
            raise StepError(str(error), temporary=True) from error

    async def _execute(
        self, step: steps.Step, backup: CheckpointBackup, pod: steps.SourcePod | None
    ) -> CheckpointBackupStatus:
        match step:
            case steps.Begin():
                return await self._begin(backup, pod)
            case steps.Dump(container):
                return await self._dump(backup, pod, container)
            case steps.Store(container):
                path = await asyncio.to_thread(self._archive, backup, container)
                folder = self._settings.storage_folder / backup.metadata.namespace
                target = await asyncio.to_thread(self._folder.store, path, folder)
                return backup_status.with_stored_archive(backup.status, container, str(target))
            case steps.Build(container, image):
                return await self._build(backup, container, image)
            case steps.Push(container, image):
                return await self._push(backup, container, image)
            case steps.EnterPhase(phase):
                return backup_status.with_phase(backup.status, phase)
            case steps.Finish():
                return await self._finish(backup, pod)
            case steps.Wait():
                return backup.status

    def forget(self, uid: str) -> None:
        """Forget a backup that was deleted."""
        self._begun.discard(uid)

    async def remove_archives(self, backup: CheckpointBackup) -> None:
        """Delete the archives of a backup, also one whose path an agent that was killed has not recorded."""
        await asyncio.to_thread(self._remove_archives, backup)

    def has_archives(self, backup: CheckpointBackup) -> bool:
        """Return True if a recorded archive is on this node."""
        return any(
            (self._settings.checkpoint_folder / Path(file.file_path).name).exists()
            for file in backup.status.checkpoint_files
            if file.file_path
        )

    async def _begin(self, backup: CheckpointBackup, pod: steps.SourcePod | None) -> CheckpointBackupStatus:
        steps.check_backup(backup, pod, self._settings.trusted_namespaces)
        assert pod is not None
        namespace, name = steps.pod_key(backup)
        body = await self._client.request("GET", path_of(Pod, name, namespace))
        raw = msgspec.json.decode(body, type=_WholePod)
        if raw.metadata.get("uid") != pod.uid:
            raise LaterError(0.2)
        self._begun.add(backup.metadata.uid)
        node = self._settings.node
        template, count = pod_template(raw.metadata, raw.spec), len(steps.containers_of(backup, pod))
        return backup_status.with_begin(backup, node, pod.uid, template, count, self._clock.now())

    async def _dump(
        self, backup: CheckpointBackup, pod: steps.SourcePod | None, container: str
    ) -> CheckpointBackupStatus:
        steps.check_namespaces(backup, self._settings.trusted_namespaces)
        key = steps.pod_key(backup)
        if key in self._dumping:
            raise LaterError(0.5)
        self._dumping.add(key)
        try:
            path, at = await self._find_or_dump(backup, pod, ContainerName(*key, container))
        finally:
            self._dumping.discard(key)
        size = await asyncio.to_thread(lambda: path.stat().st_size)
        return backup_status.with_archive(backup.status, container, str(path), size, at)

    async def _find_or_dump(
        self, backup: CheckpointBackup, pod: steps.SourcePod | None, name: ContainerName
    ) -> tuple[Path, datetime]:
        since = backup_status.ready_changed_at(backup.status) or self._clock.now()
        archive = await asyncio.to_thread(self._find, backup, name, since)
        if archive is None:
            if backup.metadata.uid not in self._begun and self._clock.monotonic() < self._resume_at:
                raise LaterError(max(self._resume_at - self._clock.monotonic(), 0.01))
            _check_source(backup, pod, name)
            await self._check_space()
            node = self._state.node()
            port = node.status.daemon_endpoints.kubelet_endpoint.port
            items = await self._kubelet.checkpoint(node.internal_ip, port, node.metadata.name, name)
            archive = await asyncio.to_thread(self._archive_in, items, name)
            archive = archive or await asyncio.to_thread(self._find, backup, name, since)
        if archive is None:
            raise StepError(f"the kubelet made a checkpoint of {name}, but there is no archive of it")
        return archive

    async def _check_space(self) -> None:
        try:
            await asyncio.to_thread(self._folder.check_space)
        except ArchiveError as error:
            raise StepError(str(error), temporary=True) from error

    def _find(
        self, backup: CheckpointBackup, name: ContainerName, since: datetime
    ) -> tuple[Path, datetime] | None:
        """Return the archive that was made for this backup, if there is one; wait for one in progress."""
        others = self._state.archives_of_others(backup)
        for at, path in self._folder.list(name, since):
            if path.name in others:
                continue
            if self._folder.is_complete(path):
                return path, at
            if time.time() - path.stat().st_mtime < GROWING_SECONDS:
                raise LaterError(1.0)
        return None

    def _archive_in(self, items: list[str], name: ContainerName) -> tuple[Path, datetime] | None:
        for item in items:
            at = archive_time(Path(item).name, name)
            if at is not None and (path := self._folder.path_of(item, name)).exists():
                return path, at
        return None

    async def _build(self, backup: CheckpointBackup, container: str, image: Image) -> CheckpointBackupStatus:
        path, built = await self._image(backup, container)
        note = ""
        if backup.spec.registry is None:
            archive = path.with_name(f"image-{path.name}")
            await write_archive(archive, image, built, path)
            runtime = self._state.node().status.node_info.container_runtime_version
            problem = await import_image(import_command(runtime, self._settings.host_command), archive, image)
            if problem:
                note = f"image {image} is in {archive} and not in the container runtime: {problem}"
            else:
                await asyncio.to_thread(archive.unlink, missing_ok=True)
        shown = steps.shown_name(backup, image)
        return backup_status.with_image(
            backup.status, container, shown, built.digest, note, self._clock.now()
        )

    async def _push(self, backup: CheckpointBackup, container: str, image: Image) -> CheckpointBackupStatus:
        path, built = await self._image(backup, container)
        recorded = backup.status.digests.get(container, built.digest)
        if built.digest != recorded:
            raise StepError(f"the archive of container {container} has changed since its image was built")
        host = image.repository.registry
        plain_http, file = host in self._settings.plain_http, self._settings.registry_authority
        login, authority = await self._login(backup, host)
        if authority is None and file is not None and not plain_http:
            authority = await read_authority_file(file)
        async with Registry(
            backup.spec.registry.url if backup.spec.registry else host,
            login,
            authority=authority,
            plain_http=plain_http,
        ) as registry:
            await push_image(registry, image, built, path)
        return backup_status.with_pushed_image(backup.status, container)

    async def _image(self, backup: CheckpointBackup, container: str) -> tuple[Path, BuiltImage]:
        """Return the archive of a container and its image, which is the same each time."""
        path = await asyncio.to_thread(self._archive, backup, container)
        layer = await read_layer(path)
        base = steps.base_image(backup, container) or await asyncio.to_thread(self._folder.base_image, path)
        namespace, pod = steps.pod_key(backup)
        info = self._state.node().status.node_info
        source = Source(
            container=container,
            base_image=base,
            pod=pod,
            namespace=namespace,
            engine=info.container_runtime_version.partition("://")[0],
            owner=steps.owner_annotation(backup),
        )
        at = _file(backup, container).checkpoint_time or backup_status.ready_changed_at(backup.status)
        assert at is not None
        return path, build_image(layer, source, at, info.architecture or "amd64")

    async def _login(self, backup: CheckpointBackup, host: str) -> tuple[Login | None, bytes | None]:
        """Return the login for the registry and the certificates by which it is trusted, of its Secret.

        Both are None if no Secret is named, and there is no default one for this registry.
        """
        steps.check_namespaces(backup, self._settings.trusted_namespaces)
        registry = backup.spec.registry
        reference = registry.secret_ref if registry is not None else None
        if reference is not None:
            namespace = reference.namespace or backup.metadata.namespace
            name = reference.name
        else:
            namespace, _, name = self._settings.default_secret.partition("/")
        try:
            secret = await self._client.get(Secret, name, namespace)
        except (Forbidden, NotFound) as error:
            if reference is None:
                return None, None
            problem = "not found" if isinstance(error, NotFound) else f"cannot be read: {error.message}"
            raise StepError(f"secret {namespace}/{name} {problem}", temporary=True) from None
        login = None
        try:
            login = read_login(secret.data, host, named_only=reference is None)
            return login, read_authority(secret.data)
        except InvalidLoginError as error:
            if login is None and reference is None:
                return None, None
            raise StepError(f"secret {namespace}/{name}: {error}", temporary=True) from None

    async def _finish(self, backup: CheckpointBackup, pod: steps.SourcePod | None) -> CheckpointBackupStatus:
        error = ""
        await self.remove_archives(backup)
        if backup.spec.stop_pod:
            error = await self._delete_pod(backup, pod)
        return backup_status.with_completion(backup, error, self._clock.now())

    async def _delete_pod(self, backup: CheckpointBackup, pod: steps.SourcePod | None) -> str:
        """Delete the pod that was checkpointed, and no later one of its name; returns why it could not."""
        uid, since = backup.status.source_pod_uid, backup_status.ready_changed_at(backup.status)
        if not uid and pod is not None and pod.created and since and pod.created <= since:
            uid = pod.uid
        if not uid:
            return ""
        namespace, name = steps.pod_key(backup)
        try:
            await self._client.delete(Pod, name, namespace, uid=uid)
        except (NotFound, Conflict):
            return ""  # deleted already
        except ApiError as error:
            if error.status in (0, 429) or error.status >= 500:
                raise
            return f"pod {namespace}/{name} not deleted: {error}"
        return ""

    def _archive(self, backup: CheckpointBackup, container: str) -> Path:
        steps.check_namespaces(backup, self._settings.trusted_namespaces)
        name = ContainerName(*steps.pod_key(backup), container)
        path = self._folder.path_of(_file(backup, container).file_path, name)
        if not path.exists():
            raise StepError(f"the archive of container {container} is gone: {path}")
        return path

    def _remove_archives(self, backup: CheckpointBackup) -> None:
        steps.check_namespaces(backup, self._settings.trusted_namespaces)
        others, since = self._state.archives_of_others(backup), backup_status.ready_changed_at(backup.status)
        for file in backup.status.checkpoint_files:
            name = ContainerName(*steps.pod_key(backup), file.container_name)
            paths: set[Path] = set()
            with contextlib.suppress(ArchiveError):  # what others have written to the status
                paths.add(self._folder.path_of(file.file_path, name))
            if since is not None:
                paths |= {path for _, path in self._folder.list(name, since)}
            for path in paths:
                if path.name not in others:
                    path.unlink(missing_ok=True)


def _file(backup: CheckpointBackup, container: str) -> CheckpointFile:
    files = (item for item in backup.status.checkpoint_files if item.container_name == container)
    file = next(files, None)
    if file is None:
        raise StepError(f"the status has no archive of container {container}")
    return file


def _check_source(backup: CheckpointBackup, pod: steps.SourcePod | None, name: ContainerName) -> None:
    """Raise InvalidBackupError unless the pod with which the backup began still runs the container."""
    recorded = backup.status.source_pod_uid
    if pod is None or (recorded and pod.uid != recorded):
        raise InvalidBackupError(f"pod {name.namespace}/{name.pod} was replaced before its checkpoint")
    if not pod.running or name.container in pod.stopped or name.container not in pod.containers:
        raise InvalidBackupError(f"container {name.container} of pod {name.namespace}/{name.pod} has ended")
