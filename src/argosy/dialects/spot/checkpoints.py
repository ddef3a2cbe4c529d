"""Makes checkpoints of running replicas: when they are due, and what becomes of them.

A replica is checkpointed at 1, 2, 3, … intervals after its pod has started, a little later by a share that
is fixed for each tick. Missed ticks give one checkpoint. A pod never has two unfinished ones. A checkpoint
counts when its images were found in the registry as they were recorded.
"""

import hashlib
import math
from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.checkpoint.image_requests import REGISTRY_DRIVER, DeleteImages, VerifyImages
from argosy.dialects.spot import reasons
from argosy.dialects.spot.backups import (
    backup_object,
    completed_at,
    good_images,
    is_terminal,
    surplus,
)
from argosy.dialects.spot.names import backup_name
from argosy.dialects.spot.observed import ObservedJob, Steps
from argosy.dialects.spot.pods import ClusterPod
from argosy.dialects.spot.record import Backup, Checkpoint, Replica, SpotJobRecord
from argosy.kinds.migration import CheckpointBackup
from argosy.plan.actions import Apply, Call, CallResult, CallStatus
from argosy.plan.diff import remove

MAX_JITTER_SECONDS = 60.0
JITTER_SHARE = 0.05
MIN_ADAPTIVE_SECONDS = 60.0
CALL_SECONDS = 30.0
"""A call about images is made again after this time if the registry did not answer."""

Replicas = tuple[Replica, ...]


def order_backup(
    record: SpotJobRecord,
    observed: ObservedJob,
    replica: Replica,
    pod: ClusterPod,
    steps: Steps,
    *,
    rescue: bool = False,
) -> tuple[SpotJobRecord, Backup]:
    """Record a new CheckpointBackup of a replica's pod; it is created from what is recorded."""
    stamp = next_stamp(record, observed.now)
    backup = Backup(
        backup_name(observed.job.name, pod.metadata.name, stamp),
        replica.index,
        pod.metadata.name,
        pod.metadata.uid,
        replica.current.job,
        stamp,
        observed.now,
        rescue,
    )
    steps.normal(reasons.CHECKPOINT_REQUESTED, f"checkpoint of pod {backup.pod} requested: {backup.name}")
    return replace(record, backups=(*record.backups, backup), last_stamp=stamp), backup


def next_stamp(record: SpotJobRecord, now: datetime) -> int:
    """Return a number of seconds that this job has not used yet."""
    return max(int(now.timestamp()), record.last_stamp + 1)


def order_due_backups(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Order a backup of every running replica for which one is due."""
    if not observed.backups_served or observed.job.level == "App":
        return record
    for position, replica in enumerate(record.replicas):
        pod = observed.running_pod(replica.current)
        if pod is None or pod.started_at is None or replica.recovery is not None:
            continue
        replica, due = _count_intervals(record, observed, replica, pod, steps)
        if due:
            record, _ = order_backup(record, observed, replica, pod, steps)
        replicas = (*record.replicas[:position], replica, *record.replicas[position + 1 :])
        record = replace(record, replicas=replicas)
    return record


def settle_backups(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Create backups that were recorded, and draw the conclusions from those that have ended."""
    pending: list[Backup] = []
    for backup in record.backups:
        kept, record = _settle(backup, record, observed, steps)
        if kept is not None:
            pending.append(kept)
    return replace(record, backups=tuple(pending))


def create_new_backups(
    before: SpotJobRecord, record: SpotJobRecord, observed: ObservedJob, steps: Steps
) -> None:
    """Create the backups that were ordered after the known ones were settled."""
    known = {backup.name for backup in before.backups}
    for backup in record.backups:
        if backup.name not in known:
            steps.actions.append(Apply(backup_object(observed.job, backup)))
            steps.wake(backup.created + timedelta(seconds=observed.settings.backup_pickup_timeout))


def prune_backups(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> None:
    """Remove finished backups beyond those that are kept, and their images if the job says so."""
    used = set(_used(record))
    retention = observed.job.delete_images
    for backup in surplus(observed.backups.values(), observed.job.keep_last, used):
        images = good_images(backup, observed.job.containers, observed.job.repository)
        key = f"delete/{backup.metadata.name}"
        if retention and images and key not in observed.calls:
            request = DeleteImages(tuple(images.values()))
            steps.actions.append(Call(key, REGISTRY_DRIVER, request, observed.job.registry_credentials))
        else:
            steps.actions.append(remove(backup))


def verify_call(key: str, backup: CheckpointBackup, images: dict[str, str], observed: ObservedJob) -> Call:
    """Return the question to the registry whether the images of a backup are there."""
    digests = {name: digest for name, digest in backup.status.digests.items() if name in images}
    return Call(key, REGISTRY_DRIVER, VerifyImages(images, digests), observed.job.registry_credentials)


def call_key(subject: str, since: datetime, now: datetime) -> str:
    """Return a key that changes from time to time, so that an unanswered call is made again."""
    return f"{subject}/{int((now - since).total_seconds() // CALL_SECONDS)}"


def interval_seconds(record: SpotJobRecord, observed: ObservedJob) -> float:
    """Return the time between checkpoints: shorter where preemptions are frequent and checkpoints cheap."""
    interval, checkpoint = observed.job.interval, record.checkpoint
    losses = sum(replica.preemptions for replica in record.replicas)
    if not observed.job.adaptive or checkpoint is None or not losses or record.started is None:
        return interval
    replica_seconds = (observed.now - record.started).total_seconds() * len(record.replicas)
    best = math.sqrt(2 * checkpoint.seconds * replica_seconds / losses)
    return min(interval, max(MIN_ADAPTIVE_SECONDS, best))


def _count_intervals(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, pod: ClusterPod, steps: Steps
) -> tuple[Replica, bool]:
    """Return the replica with the ticks that have passed, and whether a backup is due."""
    started = pod.started_at
    assert started is not None
    uid = pod.metadata.uid
    if replica.interval_pod_uid != uid:
        replica = replace(replica, interval_pod_uid=uid, intervals_passed=0, last_interval_at=started)
    if any(backup.pod_uid == uid for backup in record.backups):
        return replica, False
    if observed.job.adaptive:
        due = (replica.last_interval_at or started) + timedelta(seconds=interval_seconds(record, observed))
        if observed.now < due:
            steps.wake(due)
            return replica, False
        return replace(replica, last_interval_at=observed.now), True
    passed = _intervals_passed(observed, started, uid)
    if passed <= replica.intervals_passed:
        steps.wake(_due(observed, started, uid, replica.intervals_passed + 1))
        return replica, False
    return replace(replica, intervals_passed=passed, last_interval_at=observed.now), True


def _intervals_passed(observed: ObservedJob, started: datetime, uid: str) -> int:
    intervals_passed = int((observed.now - started).total_seconds() // observed.job.interval)
    return (
        intervals_passed
        if intervals_passed <= 0 or _due(observed, started, uid, intervals_passed) <= observed.now
        else intervals_passed - 1
    )


def _due(observed: ObservedJob, started: datetime, uid: str, tick: int) -> datetime:
    """Return when a tick is due: at its time, or a little later, so that not all are made at once."""
    interval = observed.job.interval
    share = int(hashlib.sha256(f"{uid}/{tick}".encode()).hexdigest()[:8], 16) / 2**32
    jitter = share * min(JITTER_SHARE * interval, MAX_JITTER_SECONDS)
    return started + timedelta(seconds=tick * interval + jitter)


def _settle(
    backup: Backup, record: SpotJobRecord, observed: ObservedJob, steps: Steps
) -> tuple[Backup | None, SpotJobRecord]:
    """Return the backup if it is not settled yet, and the record with what follows from it."""
    if not observed.backups_served:
        return None, replace(record, checkpoint_problem=_unavailable())
    existing = observed.backups.get(backup.name)
    if problem := _timeout(backup, existing, observed, steps):
        if existing is not None:
            steps.actions.append(remove(existing))
        steps.warning(reasons.CHECKPOINT_TIMEOUT, problem)
        return None, replace(record, checkpoint_problem=(reasons.CHECKPOINT_TIMEOUT, problem))
    if existing is None:
        steps.actions.append(Apply(backup_object(observed.job, backup)))
        return backup, record
    if not is_terminal(existing):
        return backup, record
    images = good_images(existing, observed.job.containers, observed.job.repository)
    if not images:
        return None, _failed(record, steps, backup, existing.status.message or "not all images were pushed")
    return _verified(backup, existing, images, record, observed, steps)


def _verified(
    backup: Backup,
    existing: CheckpointBackup,
    images: dict[str, str],
    record: SpotJobRecord,
    observed: ObservedJob,
    steps: Steps,
) -> tuple[Backup | None, SpotJobRecord]:
    if backup.finished is None:
        backup = replace(backup, finished=observed.now)
    assert backup.finished is not None
    key = call_key(f"verify/{backup.name}", backup.finished, observed.now)
    result = observed.calls.get(key)
    if result is None or result.status is CallStatus.UNAVAILABLE:
        steps.actions.append(verify_call(key, existing, images, observed))
        steps.wake(observed.now + timedelta(seconds=CALL_SECONDS))
        return (backup if result is None else replace(backup, problem=describe(result))), record
    if result.status is not CallStatus.DONE:
        return None, _failed(record, steps, backup, describe(result))
    time = completed_at(existing)
    image = images[observed.job.containers[0]]
    digest = existing.status.digests.get(observed.job.containers[0], "")
    seconds = (backup.finished - backup.created).total_seconds()
    checkpoint = Checkpoint(backup.name, backup.index, time, image, digest, seconds)
    steps.normal(reasons.CHECKPOINT_COMPLETED, f"checkpoint {backup.name} completed: {image}")
    newest = record.checkpoint
    if newest is None or newest.time <= time:
        record = replace(record, checkpoint=checkpoint)
    replicas = tuple(
        replace(replica, image=image) if replica.index == backup.index else replica
        for replica in record.replicas
    )
    return None, replace(record, replicas=replicas, checkpoint_problem=None, progress_lost=None)


def _timeout(backup: Backup, existing: CheckpointBackup | None, observed: ObservedJob, steps: Steps) -> str:
    """Return what took too long; empty if there is time left."""
    if backup.finished is not None:
        limit = backup.finished + timedelta(seconds=observed.settings.backup_timeout)
        if observed.now >= limit:
            why = f": {backup.problem}" if backup.problem else ""
            return f"checkpoint {backup.name}: the registry did not answer{why}"
        return ""
    settings = observed.settings
    phase = existing.status.phase if existing is not None else ""
    seconds = settings.backup_timeout if phase else settings.backup_pickup_timeout
    limit = backup.created + timedelta(seconds=seconds)
    if existing is not None and is_terminal(existing):
        return ""
    if observed.now < limit:
        steps.wake(limit)
        return ""
    if not phase:
        return f"checkpoint {backup.name}: no agent has begun it within {seconds:g} s"
    return f"checkpoint {backup.name}: still {phase} after {seconds:g} s"


def _failed(record: SpotJobRecord, steps: Steps, backup: Backup, why: str) -> SpotJobRecord:
    message = f"checkpoint {backup.name} failed: {why}"
    steps.warning(reasons.CHECKPOINT_FAILED, message)
    return replace(record, checkpoint_problem=(reasons.CHECKPOINT_FAILED, message))


def describe(result: CallResult) -> str:
    """Return why a call was not done."""
    return f"{result.code}: {result.message}" if result.code else result.message


def _unavailable() -> tuple[str, str]:
    message = f"kind {CheckpointBackup.resource.kind} is not served by this cluster"
    return reasons.CHECKPOINT_UNAVAILABLE, message


def _used(record: SpotJobRecord) -> Iterator[str]:
    """Yield the backups that must not be removed."""
    if record.checkpoint is not None:
        yield record.checkpoint.backup
    for backup in record.backups:
        yield backup.name
    for replica in record.replicas:
        yield replica.current.source
        if replica.recovery is not None:
            yield replica.recovery.source.rescue
            yield replica.recovery.source.found
