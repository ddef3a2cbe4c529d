"""Reconciles CheckpointBackups whose pod is on this node, and ends those whose pod or node is gone.

A reconcile executes one step after the other and writes the status after each. A backup belongs to the node
in its status, and before it has begun, to that of its pod. One that belongs to no node is ended by any agent:
each looks at it after another delay, so usually one of them has ended it before the others look.
"""

import asyncio
import hashlib
from collections.abc import Collection
from datetime import datetime

import msgspec
from msgspec.structs import replace

from argosy.agent.backup_steps import BackupSteps, LaterError, StepError
from argosy.agent.kubelet import Kubelet
from argosy.agent.objects import OwnNode, OwnPod
from argosy.agent.settings import AgentSettings
from argosy.checkpoint import backup_status
from argosy.checkpoint.backup import (
    Begin,
    Finish,
    InvalidBackupError,
    SourcePod,
    Wait,
    check_backup,
    check_namespaces,
    containers_of,
    next_step,
    pod_key,
)
from argosy.checkpoint.schedules import InvalidScheduleError, parse_schedule
from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import Conflict, NotFound
from argosy.engine.logs import Logger
from argosy.engine.objects import Key, key_of
from argosy.kinds import migration as phases
from argosy.kinds.migration import BACKUP_FINALIZER, CheckpointBackup, CheckpointBackupStatus

log = Logger(__name__)

BY_POD = "pod"
CONCURRENCY = 4
NODE_CHECK_SECONDS = 120.0
"""Time between two checks whether the node of a backup under way still exists."""
RETRY = Backoff(initial=0.5, maximum=30.0)


class BackupReconciler:
    """Reconciles the backups of one node."""

    def __init__(
        self,
        client: Client,
        nodes: Cache[OwnNode],
        pods: Cache[OwnPod],
        kubelet: Kubelet,
        settings: AgentSettings,
        clock: Clock,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._pods = pods
        self._settings = settings
        self._clock = clock
        self._failures: dict[str, int] = {}
        """How often the next step of a backup has failed, by uid of the backup."""
        self.backups = Cache(
            client, CheckpointBackup, namespace=settings.namespace, indexes={BY_POD: _index_by_pod}
        )
        self._steps = BackupSteps(client, kubelet, self, settings, clock)
        self.controller = Controller(
            CheckpointBackup.resource.kind, self.reconcile, concurrency=CONCURRENCY, clock=clock
        )
        self.backups.subscribe(self._on_backup)
        pods.subscribe(self._on_pod)

    async def run(self) -> None:
        """Reconcile until cancelled, once all caches are filled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.backups.run())
            for cache in (self._nodes, self._pods, self.backups):
                await cache.wait_synced()
            tasks.create_task(self.controller.run())

    async def reconcile(self, key: Key) -> Requeue | None:
        backup = self.backups.get(key.namespace, key.name)
        if backup is None:
            return None
        if backup.metadata.deletion_timestamp is not None:
            return await self._release(backup)
        if backup.is_template:
            return None
        if not self._is_mine(backup):
            return await self._end_if_orphaned(backup)
        try:
            return await self._advance(backup)
        except LaterError as later:
            return Requeue(later.seconds)

    async def _advance(self, backup: CheckpointBackup) -> Requeue | None:
        """Execute steps until there is none to execute now."""
        while True:
            now, pod = self._clock.now(), self._source(backup)
            step = next_step(backup, containers_of(backup, pod), now)
            if isinstance(step, Wait):
                await self._drop_finalizer(backup)
                return None if step.until is None else _requeue(step.until, now)
            try:
                if isinstance(step, Begin):
                    backup = await self._add_finalizer(backup)
                current = replace(backup, status=backup_status.without_retry(backup.status))
                status = await self._steps.execute(step, current, pod)
            except InvalidBackupError as error:
                if isinstance(step, Begin) and (requeue := self._next_time(backup, now)) is not None:
                    log.info("skipped", backup=str(key_of(backup)), reason=str(error))
                    return requeue
                status = backup_status.with_failure(backup, str(error), now)
            except StepError as error:
                if error.is_temporary and backup_status.may_retry(backup.status, now):
                    return await self._show_retry(backup, str(error))
                status = backup_status.with_failure(backup, str(error), now)
            written = await self._write(backup, status)
            if written is None:
                return Requeue(0.2)
            self._failures.pop(backup.metadata.uid, None)
            backup = written

    async def _show_retry(self, backup: CheckpointBackup, problem: str) -> Requeue:
        """Show in the status why the last step failed, and return when it is executed again."""
        uid = backup.metadata.uid
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        log.warning("step failed; retrying", backup=str(key_of(backup)), error=problem)
        status = replace(backup.status, message=f"{backup_status.RETRYING}{problem}")
        if status != backup.status:
            await self._write(backup, status)
        return Requeue(RETRY.delay(failures))

    def _next_time(self, backup: CheckpointBackup, now: datetime) -> Requeue | None:
        """Return when a repeated checkpoint that cannot be made now is due again.

        None if there was no checkpoint before, or none is due any more: then the backup fails.
        """
        if backup.status.phase not in (phases.COMPLETED, phases.COMPLETED_WITH_ERROR):
            return None
        try:
            due = parse_schedule(backup.spec.schedule).next_after(now)
        except InvalidScheduleError:
            return None
        return None if due is None else _requeue(due, now)

    async def _write(
        self, backup: CheckpointBackup, status: CheckpointBackupStatus
    ) -> CheckpointBackup | None:
        """Write the status; after a conflict once more, unless the backup is in another phase by now."""
        body = {"status": _status_patch(backup.status, status)}
        meta = backup.metadata
        for _ in range(2):
            guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            try:
                written = await self._client.patch(
                    CheckpointBackup,
                    meta.name,
                    {"metadata": guard, **body},
                    meta.namespace,
                    subresource="status",
                )
            except NotFound:
                return None
            except Conflict:
                current = await self._client.get(CheckpointBackup, meta.name, meta.namespace)
                if current.metadata.uid != meta.uid or current.status != backup.status:
                    return None
                meta = current.metadata
            else:
                self.backups.put(written, own=True)
                if status.phase != backup.status.phase:
                    log.info("checkpoint", backup=str(key_of(backup)), phase=status.phase)
                return written
        return None

    async def _add_finalizer(self, backup: CheckpointBackup) -> CheckpointBackup:
        finalizers = backup.metadata.finalizers
        if BACKUP_FINALIZER in finalizers:
            return backup
        return await self._write_finalizers(backup, [*finalizers, BACKUP_FINALIZER])

    async def _drop_finalizer(self, backup: CheckpointBackup) -> None:
        """Remove the finalizer from a backup that has ended for good and has no archives left."""
        finalizers, status = backup.metadata.finalizers, backup.status
        if BACKUP_FINALIZER not in finalizers or status.phase not in phases.TERMINAL_PHASES:
            return
        try:
            repeats = parse_schedule(backup.spec.schedule).repeats
        except InvalidScheduleError:
            repeats = False
        is_repeated = repeats and status.phase in (phases.COMPLETED, phases.COMPLETED_WITH_ERROR)
        if not is_repeated and not self._steps.has_archives(backup):
            await self._remove_finalizer(backup)

    async def _remove_finalizer(self, backup: CheckpointBackup) -> None:
        kept = [item for item in backup.metadata.finalizers if item != BACKUP_FINALIZER]
        try:
            await self._write_finalizers(backup, kept)
        except NotFound:
            return

    async def _write_finalizers(self, backup: CheckpointBackup, finalizers: list[str]) -> CheckpointBackup:
        meta = backup.metadata
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": {**guard, "finalizers": finalizers}}
        try:
            written = await self._client.patch(CheckpointBackup, meta.name, patch, meta.namespace)
        except Conflict:
            raise LaterError(0.2) from None
        self.backups.put(written, own=True)
        return written

    async def _release(self, backup: CheckpointBackup) -> Requeue | None:
        """Delete the archives of a backup that is being deleted, and remove the finalizer."""
        if BACKUP_FINALIZER not in backup.metadata.finalizers:
            return None
        if self._is_begun_here(backup):
            try:
                await self._steps.remove_archives(backup)
            except (InvalidBackupError, StepError) as error:
                log.warning("archives not deleted", backup=str(key_of(backup)), error=str(error))
        elif (wait := self._orphan_delay(backup, backup.metadata.deletion_timestamp)) > 0:
            return Requeue(wait)
        elif not await self._is_gone(backup):
            return Requeue(60.0)
        try:
            await self._remove_finalizer(backup)
        except LaterError as later:
            return Requeue(later.seconds)
        self._steps.forget(backup.metadata.uid)
        return None

    async def _is_gone(self, backup: CheckpointBackup) -> bool:
        """Return True if the node of the backup does not exist, or if neither it nor its pod has a node."""
        node = backup.status.node_name or await self._node_of_pod(backup)
        if not node:
            return True
        try:
            await self._client.get(OwnNode, node)
        except NotFound:
            return True
        return False

    async def _end_if_orphaned(self, backup: CheckpointBackup) -> Requeue | None:
        """End a backup that belongs to no node: no pod, a pod without a node, or a node that is gone."""
        if backup.status.phase in phases.TERMINAL_PHASES:
            return None
        if (wait := self._orphan_delay(backup, backup.metadata.creation_timestamp)) > 0:
            return Requeue(wait)
        if backup.status.phase:
            return await self._end_if_lost(backup)
        try:
            check_namespaces(backup, self._settings.trusted_namespaces)
        except InvalidBackupError as error:
            await self._write(backup, backup_status.with_failure(backup, str(error), self._clock.now()))
            return None
        node = await self._node_of_pod(backup)
        if node == self._settings.node:
            return Requeue(0.2)  # the cache of pods is behind
        if node:
            return None
        namespace, name = pod_key(backup)
        problem = "not found" if node is None else "is not Running: it is on no node"
        message = f"spec.podRef: pod {namespace}/{name} {problem}"
        try:
            check_backup(backup, None, self._settings.trusted_namespaces)
        except InvalidBackupError as error:
            message = str(error) if node is None else message
        await self._write(backup, backup_status.with_failure(backup, message, self._clock.now()))
        return None

    async def _end_if_lost(self, backup: CheckpointBackup) -> Requeue | None:
        """End a backup whose node is gone: as completed if only the last step is left, otherwise as failed.

        With a CRD without `status.nodeName`, the node is that of the pod. If there is no pod either, an agent
        that has archives of the backup continues it, so only the last step is executed here.
        """
        now = self._clock.now()
        if not await self._is_gone(backup):
            return Requeue(NODE_CHECK_SECONDS)
        if isinstance(next_step(backup, (), now), Finish):
            try:
                status = await self._steps.execute(Finish(), backup, None)
            except (InvalidBackupError, StepError) as error:
                status = backup_status.with_failure(backup, str(error), now)
        elif node := backup.status.node_name:
            status = backup_status.with_failure(backup, f"node {node} does not exist any more", now)
        else:
            return None
        await self._write(backup, status)
        return None

    async def _node_of_pod(self, backup: CheckpointBackup) -> str | None:
        """Return the name of the pod's node, empty if it has none, and None if there is no such pod."""
        namespace, name = pod_key(backup)
        if not name:
            return None
        try:
            return (await self._client.get(OwnPod, name, namespace)).spec.node_name
        except NotFound:
            return None

    def _orphan_delay(self, backup: CheckpointBackup, since: datetime | None) -> float:
        """Return the seconds until this agent looks at an orphaned backup; different for each agent."""
        text = f"{self._settings.node}/{backup.metadata.uid}"
        jitter = hashlib.sha256(text.encode()).digest()[0] / 256
        age = (self._clock.now() - since).total_seconds() if since else 0.0
        return self._settings.orphan_delay * (0.5 + jitter / 2) - age

    def _is_mine(self, backup: CheckpointBackup) -> bool:
        """Return True if this agent executes the next step."""
        if backup.status.phase in ("", *phases.TERMINAL_PHASES):
            has_pod = self._source(backup) is not None
            return has_pod or (bool(backup.status.phase) and self._is_begun_here(backup))
        return self._is_begun_here(backup)

    def _is_begun_here(self, backup: CheckpointBackup) -> bool:
        """Return True if the backup was begun on this node: by its status, or else by its pod or archives."""
        if backup.status.node_name:
            return backup.status.node_name == self._settings.node
        return self._source(backup) is not None or self._steps.has_archives(backup)

    def _source(self, backup: CheckpointBackup) -> SourcePod | None:
        pod = self._pods.get(*pod_key(backup))
        if pod is None:
            return None
        running = pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
        stopped = frozenset(
            status.name for status in pod.status.container_statuses if status.state.running is None
        )
        containers = {item.name: item.image for item in pod.spec.containers}
        return SourcePod(pod.metadata.uid, running, containers, stopped, pod.metadata.creation_timestamp)

    # The two methods of `NodeState`, by which the steps ask for this node and other backups.

    def node(self) -> OwnNode:
        node = self._nodes.get("", self._settings.node)
        if node is None:
            raise StepError(f"node {self._settings.node} not found", temporary=True)
        return node

    def archives_of_others(self, backup: CheckpointBackup) -> Collection[str]:
        return {
            file.file_path.rpartition("/")[2]
            for other in self.backups.by(BY_POD, "/".join(pod_key(backup)))
            if other.metadata.uid != backup.metadata.uid
            for file in other.status.checkpoint_files
        }

    def _on_backup(self, change: Change[CheckpointBackup]) -> None:
        if change.own:
            return
        if change.new is not None:
            self.controller.enqueue(key_of(change.new))
        elif change.old is not None:
            self.controller.discard(key_of(change.old))
            self._steps.forget(change.old.metadata.uid)
            self._failures.pop(change.old.metadata.uid, None)

    def _on_pod(self, change: Change[OwnPod]) -> None:
        pod = change.new or change.old
        if pod is not None:
            for backup in self.backups.by(BY_POD, f"{pod.metadata.namespace}/{pod.metadata.name}"):
                self.controller.enqueue(key_of(backup))


def _index_by_pod(backup: CheckpointBackup) -> tuple[str, ...]:
    return ("/".join(pod_key(backup)),)


def _requeue(until: datetime, now: datetime) -> Requeue:
    return Requeue(max((until - now).total_seconds(), 0.01))


def _status_patch(old: CheckpointBackupStatus, new: CheckpointBackupStatus) -> dict[str, object]:
    """Return the merge patch between two statuses."""
    return _merge_patch(msgspec.to_builtins(old), msgspec.to_builtins(new))


def _merge_patch(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    patch: dict[str, object] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            if changes := _merge_patch(old, value):
                patch[name] = changes
        elif value != old:
            patch[name] = value
    return patch
