"""Saves the processes of a job's only pod: an order becomes a CheckpointBackup, executed by the node agent.

The order is in the Record before the CheckpointBackup exists, and the name of the backup follows from it: an
operator that is killed makes the same one. A backup that is complete answers the order, as a program's
acknowledgement does, so what waits for a checkpoint need not know which kind it is. Pods that are created
while its image is the last good checkpoint are restored from it.

One pod with one container is the limit. Pods are dumped one after the other, so the processes of several
would remember different moments, with messages between them lost or sent twice.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from argosy.kinds import migration as phases
from argosy.kinds.checkpoint_spec import CheckpointLevel
from argosy.kinds.migration import IMMEDIATELY, CheckpointBackup
from argosy.kinds.text import shorten
from argosy.plan.actions import Apply, Remove
from argosy.plan.children import Child
from argosy.plan.diff import remove
from argosy.workload import checkpoint_messages, reasons
from argosy.workload.checkpoint_policy import ImageTarget
from argosy.workload.checkpoint_record import PROCESS, SavedCheckpoint, SaveOrder
from argosy.workload.current_pods import all_current_pods
from argosy.workload.model import Json, RestartPolicy, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from argosy.workload.restarts.causes import RestartCause

MAX_RESTORE_FAILURES: Final = 2
"""How often restored processes may fail before a program that can resume by itself does that instead."""
MAX_TAG_CHARS: Final = 128
MAX_NAME_CHARS: Final = 253
_IN_PLACE: Final = "the container is restarted in its place, from the beginning"
SPARE_TAGS: Final = 2
"""Tags besides those of the checkpoints to keep: for the image that is being pushed, and for a late one."""


def obstacle(workload: Workload) -> str:
    """Return why the processes of a job cannot be saved; empty if they can."""
    if workload.total_pods != 1 or any(role.elastic for role in workload.roles.values()):
        return "the job has more than one pod, or may get more: their processes cannot be saved at one moment"
    role = _role(workload)
    if len(_containers(role)) != 1:
        return "the pod has more than one container, which cannot be saved at one moment"
    if role.restart is RestartPolicy.ALWAYS:
        return f"with restart Always, {_IN_PLACE}"
    if workload.limits.escalation.container is not None:
        return f"with limits.escalation.container, {_IN_PLACE}"
    return ""


def with_failed_backup(record: Record, observed: Observed, now: datetime) -> Record:
    """Return the record in which nothing waits any more for a backup that has failed."""
    order, backup = record.order_in_force, _backup_in_force(record, observed)
    if order is None or order.late or backup is None or not _has_failed(backup):
        return record
    message = checkpoint_messages.failed(backup.metadata.name, backup.status.message)
    record = record.with_history(now, reasons.CHECKPOINT_FAILED, message)
    return replace(record, order=replace(order, by=min(order.by, now), late=True))


def completed_checkpoints(
    workload: Workload, record: Record, observed: Observed
) -> Iterator[SavedCheckpoint]:
    """Yield the checkpoint that the backup of the order in force has made."""
    policy, order, backup = workload.checkpoint, record.order, _backup_in_force(record, observed)
    if policy is None or policy.images is None or order is None or backup is None:
        return
    status, at = backup.status, backup.status.last_checkpoint_time
    pushed = {image.container_name for image in status.built_images if image.pushed}
    is_of_pod = status.source_pod_uid == order.pod_uid
    if status.phase not in _GOOD or not pushed or at is None or not is_of_pod:
        return
    digests = {name: digest for name, digest in status.digests.items() if name in pushed}
    if len(digests) != len(pushed):
        return  # without a digest nothing says which image is meant once its tag is used again
    ended = status.completion_time or at
    yield SavedCheckpoint(
        step=0,
        digest=next(iter(digests.values())),
        at=at,
        size=status.size,
        seconds=max((ended - order.since).total_seconds(), 0.0),
        epoch=order.epoch,
        level=PROCESS,
        images={name: _reference(policy.images, digest) for name, digest in digests.items()},
    )


def with_backups(workload: Workload, before: Record, plan: Plan, observed: Observed, now: datetime) -> Plan:
    """Return the plan in which a new order has its level, and what creates and removes CheckpointBackups."""
    policy = workload.checkpoint
    if policy is None or policy.level is CheckpointLevel.APP:
        return plan
    record = _without_unusable_images(workload, plan.record, now)
    order = record.order_in_force
    if order is not None and last_order_epoch(before) != order.epoch:
        order = _with_level(workload, before, order, record, observed)
        record = replace(record, order=order)
    actions: list[Apply | Remove] = []
    name = backup_name(workload, order) if order is not None and order.level == PROCESS else ""
    existing = [child for child in observed.children if isinstance(child, CheckpointBackup)]
    is_there = order is not None and any(_is_of(backup, order) for backup in existing)
    if order is not None and name and not is_there and not order.late and policy.images is not None:
        actions.append(Apply(_backup(workload, policy.images, order, name)))
    last = record.order
    kept = last if last is not None and last.level == PROCESS else None
    actions += [remove(backup) for backup in existing if kept is None or not _is_of(backup, kept)]
    return replace(plan, record=record).with_actions(actions)


def last_order_epoch(record: Record) -> int:
    return record.order.epoch if record.order else 0


def backup_name(workload: Workload, order: SaveOrder) -> str:
    """Return the name of the order's CheckpointBackup. A job of another kind may have the same name."""
    suffix = f"-{workload.kind.lower()}-{order.epoch}"
    return f"{shorten(workload.name, MAX_NAME_CHARS - len(suffix))}{suffix}"


def _is_of(backup: CheckpointBackup, order: SaveOrder) -> bool:
    """Return True if this backup of the job was made for the order."""
    return backup.metadata.name.endswith(f"-{order.epoch}")


def chooses_by_node(workload: Workload) -> bool:
    """Return True if it depends on the labels of nodes how the job saves checkpoints."""
    policy = workload.checkpoint
    return policy is not None and policy.level is CheckpointLevel.AUTO and not obstacle(workload)


def restored_checkpoint(workload: Workload, record: Record) -> SavedCheckpoint | None:
    """Return the checkpoint from whose images pods are restored that are created now, if there is one."""
    policy, saved = workload.checkpoint, record.saved
    if policy is None or policy.images is None or saved is None or obstacle(workload):
        return None
    return saved if saved.level == PROCESS else None


def _with_level(
    workload: Workload, before: Record, order: SaveOrder, record: Record, observed: Observed
) -> SaveOrder:
    """Return a new order with its level, and what an order for processes says besides."""
    policy = workload.checkpoint
    assert policy is not None
    pods = all_current_pods(record, observed)
    pod = next((pod for pod in pods if pod.phase == "Running"), None)
    # More than one has run if the others leave because of a new size.
    if pod is None or len(pods) > 1 or obstacle(workload):
        return order
    if policy.level is CheckpointLevel.AUTO and not _should_save_processes(workload, record, observed, pod):
        return order
    slots = policy.keep_last + SPARE_TAGS
    slot = (before.order.slot + 1) % slots if before.order else 0
    return replace(order, level=PROCESS, pod=pod.name, pod_uid=pod.uid, slot=slot)


def _should_save_processes(workload: Workload, record: Record, observed: Observed, pod: ObservedPod) -> bool:
    """Return True if the program has not shown that it saves checkpoints, and two nodes can."""
    if pod.saved is not None or (record.saved is not None and not record.saved.level):
        return False
    users = observed.dump_nodes.get(pod.node)
    can_dump = users == "" or (users is not None and _runs_as_root(_role(workload).template))
    return can_dump and observed.can_restore


def _without_unusable_images(workload: Workload, record: Record, now: datetime) -> Record:
    """Return the record without an image whose processes keep failing, if the program can resume itself."""
    policy, saved = workload.checkpoint, record.saved
    if policy is None or policy.level is not CheckpointLevel.AUTO or saved is None or not saved.level:
        return record
    failures = [entry for entry in record.restart_history if entry.at > saved.at and entry.cause in _FAILURES]
    if len(failures) < MAX_RESTORE_FAILURES:
        return record
    message = checkpoint_messages.unusable(len(failures))
    return replace(record.with_history(now, reasons.CHECKPOINT_INVALID, message), saved=None)


_FAILURES: Final = frozenset(
    {RestartCause.NON_ZERO_EXIT, RestartCause.SIGNAL, RestartCause.OOM_KILLED, RestartCause.FAILED}
)
_GOOD: Final = frozenset({phases.COMPLETED, phases.COMPLETED_POD_DELETED, phases.COMPLETED_WITH_ERROR})


def _has_failed(backup: CheckpointBackup) -> bool:
    status = backup.status
    is_pushed = any(image.pushed for image in status.built_images)
    return status.phase == phases.FAILED or (status.phase == phases.COMPLETED_WITH_ERROR and not is_pushed)


def _backup_in_force(record: Record, observed: Observed) -> CheckpointBackup | None:
    """Return the backup of the order in force, if there is one."""
    order = record.order_in_force
    if order is None or order.level != PROCESS:
        return None
    found = (child for child in observed.children if isinstance(child, CheckpointBackup))
    return next((backup for backup in found if _is_of(backup, order)), None)


def _backup(workload: Workload, images: ImageTarget, order: SaveOrder, name: str) -> Child:
    [container] = _containers(_role(workload))
    own = f"{workload.name}-{workload.uid[:8]}-{container.get('name', '')}"
    tag = f"{shorten(own, MAX_TAG_CHARS - 8)}-{order.slot}"
    registry: dict[str, object] = {"url": images.registry, "repository": images.repository}
    if images.secret:
        registry["secretRef"] = {"name": images.secret}
    spec = {
        "schedule": IMMEDIATELY,
        "podRef": {"name": order.pod},
        "resourceRef": {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name},
        "registry": registry,
        "containers": [{"name": container.get("name", ""), "image": f"{images.repository}:{tag}"}],
    }
    return Child(CheckpointBackup, name, {"spec": spec})


def _reference(images: ImageTarget, digest: str) -> str:
    return f"{images.registry}/{images.repository}@{digest}"


def _role(workload: Workload) -> Role:
    return next(role for role in workload.roles.values() if role.replicas)


def _containers(role: Role) -> list[Mapping[str, object]]:
    containers = _mapping(role.template.get("spec")).get("containers")
    return [item for item in containers if isinstance(item, dict)] if isinstance(containers, list) else []


def _runs_as_root(template: Json) -> bool:
    """Return True unless the pod's template says that it runs as another user."""
    spec = _mapping(template.get("spec"))
    holders = [spec, *(_mapping(item) for item in _list(spec.get("containers")))]
    contexts = [_mapping(holder.get("securityContext")) for holder in holders]
    return not any(context.get("runAsUser") or context.get("runAsNonRoot") for context in contexts)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
