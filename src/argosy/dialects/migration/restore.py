"""Reconciles CheckpointRestores: waits for a good backup, then creates the pod once.

A restore ends as Restored when its pod runs, or as Failed, and is a record from then on: whatever happens to
the pod later, it is not created again.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.migration import reasons
from argosy.dialects.migration.conditions import with_ready
from argosy.dialects.migration.restored_pod import InvalidRestoreError, restored_pod
from argosy.kinds import migration as phases
from argosy.kinds.kubernetes import Pod
from argosy.kinds.migration import CheckpointBackup, CheckpointRestore, CheckpointRestoreStatus
from argosy.plan.actions import ActionResult, ActionStatus, Apply, EmitEvent
from argosy.plan.children import Child, KubernetesObject
from argosy.plan.contract import Decision, Inputs, Ref

PENDING, RESTORING, RESTORED, FAILED = "Pending", "Restoring", "Restored", "Failed"
FINISHED: Final = frozenset({RESTORED, FAILED})


class RestoreReconciler:
    """Reconciles CheckpointRestores."""

    record = None
    owns: tuple[type[KubernetesObject], ...] = (Pod,)
    finalizer = ""

    def needs(self, obj: CheckpointRestore, record: Struct | None) -> Iterable[Ref[CheckpointBackup]]:
        """Return the backup; a finished restore needs none."""
        del record
        name = obj.spec.backup_ref.name
        if obj.status.phase in FINISHED or not name:
            return ()
        return (Ref(CheckpointBackup, name, obj.metadata.namespace),)

    def decide(
        self, obj: CheckpointRestore, record: Struct | None, inputs: Inputs, now: datetime
    ) -> Decision:
        del record
        if obj.status.phase in FINISHED or obj.metadata.deletion_timestamp is not None:
            return Decision(obj.status)
        pod = next((pod for pod in inputs.owned(Pod) if pod.metadata.name == obj.spec.pod_name), None)
        if pod is not None:
            return _follow(obj, pod, now)
        if obj.status.pod_uid:
            return _end(obj, FAILED, reasons.POD_LOST, f"pod {obj.spec.pod_name} was deleted", now)
        refused = next((item for item in inputs.failures if item.kind == Pod.resource.kind), None)
        if refused is not None and refused.status in _FINAL:
            return _refuse(obj, refused, now)
        needs = tuple(self.needs(obj, None))
        backup = inputs.get(needs[0]) if needs else None
        if backup is None:
            message = f"CheckpointBackup {obj.metadata.namespace}/{obj.spec.backup_ref.name} not found"
            return _wait(obj, PENDING, reasons.BACKUP_NOT_FOUND, message, now)
        if backup.status.phase == phases.FAILED:
            message = f"the backup failed: {backup.status.message}"
            return _end(obj, FAILED, reasons.BACKUP_FAILED, message, now)
        if backup.status.phase not in phases.GOOD_PHASES:
            message = f"the backup is in phase {backup.status.phase or 'Pending'!r}"
            return _wait(obj, PENDING, reasons.BACKUP_NOT_READY, message, now)
        return _create(obj, backup, refused, now)


_FINAL: Final = frozenset({ActionStatus.NAME_CONFLICT, ActionStatus.INVALID, ActionStatus.SPEC_REJECTED})


def _create(
    obj: CheckpointRestore, backup: CheckpointBackup, refused: ActionResult | None, now: datetime
) -> Decision:
    try:
        body = restored_pod(obj, backup)
    except InvalidRestoreError as error:
        return _end(obj, FAILED, reasons.POD_INVALID, str(error), now)
    message = refused.message if refused is not None else "the pod is created"
    decision = _wait(obj, RESTORING, reasons.POD_PENDING, message, now)
    return replace(decision, actions=(Apply(Child(Pod, obj.spec.pod_name, body)),))


def _follow(obj: CheckpointRestore, pod: Pod, now: datetime) -> Decision:
    """Return the status for the pod that was created."""
    obj = _with_pod(obj, pod.metadata.uid)
    phase = pod.status.phase
    if phase in ("Running", "Succeeded"):
        return _end(obj, RESTORED, reasons.RESTORED, f"pod {pod.metadata.name} runs", now)
    if phase == "Failed":
        message = pod.status.message or pod.status.reason or "it failed"
        return _end(obj, FAILED, reasons.POD_LOST, f"pod {pod.metadata.name}: {message}", now)
    waiting = (status.state.waiting for status in pod.status.container_statuses)
    reason = next((item.reason for item in waiting if item is not None and item.reason), "")
    message = f"pod {pod.metadata.name} does not run yet{': ' + reason if reason else ''}"
    return _wait(obj, RESTORING, reasons.POD_PENDING, message, now)


def _refuse(obj: CheckpointRestore, refused: ActionResult, now: datetime) -> Decision:
    if refused.status is ActionStatus.NAME_CONFLICT:
        message = f"spec.podName: pod {obj.metadata.namespace}/{obj.spec.pod_name} exists already"
        return _end(obj, FAILED, reasons.POD_EXISTS, message, now)
    return _end(obj, FAILED, reasons.POD_INVALID, refused.message, now)


def _with_pod(obj: CheckpointRestore, uid: str) -> CheckpointRestore:
    return replace(obj, status=replace(obj.status, pod_uid=uid))


def _wait(obj: CheckpointRestore, phase: str, reason: str, message: str, now: datetime) -> Decision:
    return Decision(_status(obj, phase, "False", reason, message, now))


def _end(obj: CheckpointRestore, phase: str, reason: str, message: str, now: datetime) -> Decision:
    succeeded = phase == RESTORED
    status = _status(obj, phase, "True" if succeeded else "False", reason, message, now)
    status = replace(status, completion_time=now.replace(microsecond=0))
    event = EmitEvent("Normal" if succeeded else "Warning", reason, message)
    return Decision(status, events=(event,))


def _status(
    obj: CheckpointRestore, phase: str, ready: str, reason: str, message: str, now: datetime
) -> CheckpointRestoreStatus:
    listed = with_ready(obj.status.conditions, ready, reason, message, obj.metadata.generation, now)
    return replace(obj.status, phase=phase, message=message, conditions=listed)
