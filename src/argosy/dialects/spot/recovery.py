"""Replaces a lost incarnation of a replica by the next one.

One status write records the loss and its successor. Its resourceVersion makes a recovery begin exactly once.
The search for a checkpoint goes through that of a surviving replica, the newest good backups, and the tags of
the repository. The first that the registry confirms is used; without any, training starts from the beginning.
A place for the new incarnation is chosen at the same time.
"""

from collections.abc import Iterator
from datetime import timedelta

from msgspec.structs import replace

from argosy.capacity.zone_rates import with_preemption
from argosy.checkpoint.image_requests import REGISTRY_DRIVER, FindNewest, FoundImages
from argosy.dialects.spot import app_saves, reasons
from argosy.dialects.spot.backups import good_images, newest_good
from argosy.dialects.spot.checkpoints import (
    CALL_SECONDS,
    call_key,
    describe,
    next_stamp,
    order_backup,
    verify_call,
)
from argosy.dialects.spot.dying_pods import SIGNAL_ANSWERED, begin_save
from argosy.dialects.spot.losses import TAKEN_CAUSES, Loss, default_deadline
from argosy.dialects.spot.observed import ObservedJob, Steps
from argosy.dialects.spot.places import is_ready
from argosy.dialects.spot.pods import ClusterPod
from argosy.dialects.spot.record import (
    APP_RESUME,
    CHECKPOINT_IMAGE,
    FRESH,
    Incarnation,
    Recovery,
    Replica,
    Source,
    SpotJobRecord,
)
from argosy.kinds.spot import RESTORE_CAPABILITY
from argosy.plan.actions import Call, CallStatus
from argosy.workload.announcements import find_announcement

FIRST_BACKOFF_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 300.0


def start_recovery(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, loss: Loss, steps: Steps
) -> tuple[SpotJobRecord, Replica]:
    """Record the loss of the current incarnation and begin the next one; save what can still be saved."""
    lost = replica.current
    number = lost.number + 1
    recovery = Recovery(
        f"{replica.index}/{number}",
        loss.cause,
        (loss.source,),
        loss.noticed or observed.now,
        default_deadline(loss, observed.now),
    )
    where = observed.node_name(lost) or lost.instance
    steps.warning(
        reasons.PREEMPTION_NOTICE,
        f"replica {replica.index}: node {where} is lost or will be: {loss.cause} ({loss.source})",
    )
    record, recovery = begin_save(record, observed, replica, recovery, steps)
    record, source = _begin_search(record, observed, replica, recovery, steps)
    steps.normal(
        reasons.RECOVERY_STARTED, f"replica {replica.index}: incarnation {number} replaces {number - 1}"
    )
    record = replace(record, last_stamp=next_stamp(record, observed.now))
    instance = observed.instance_of(lost)
    if instance is not None and instance.status.zone and loss.cause in TAKEN_CAUSES:
        rates = with_preemption(record.zone_rates, instance.status.zone, observed.now)
        record = replace(record, zone_rates=rates)
    replica = replace(
        replica,
        current=Incarnation(number, record.last_stamp),
        old=_with_old(replica.old, lost),
        recovery=replace(recovery, source=source),
        preemptions=replica.preemptions + 1,
        silent_since=None,
        app_only=False,
    )
    return record, replica


def restart_failed(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, why: str
) -> tuple[SpotJobRecord, Replica]:
    """Begin the next incarnation of a replica that failed by itself, at the same place, after a while."""
    failed = replica.current
    backoff = min(FIRST_BACKOFF_SECONDS * 2**replica.restarts, MAX_BACKOFF_SECONDS)
    recovery = Recovery(
        f"{replica.index}/{failed.number + 1}",
        reasons.FAILED,
        (why,),
        observed.now,
        failure=True,
        not_before=observed.now + timedelta(seconds=backoff),
    )
    record = replace(record, last_stamp=next_stamp(record, observed.now))
    following = Incarnation(
        failed.number + 1,
        record.last_stamp,
        node=failed.node,
        instance=failed.instance,
        instance_uid=failed.instance_uid,
    )
    # The VM goes on with the next incarnation, so the old one has none.
    left = replace(failed, instance="", instance_uid="")
    replica = replace(
        replica,
        current=following,
        old=_with_old(replica.old, left),
        recovery=recovery,
        restarts=replica.restarts + 1,
    )
    return record, replica


def resume_by_application(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica
) -> tuple[SpotJobRecord, Replica]:
    """Begin an incarnation with the original images, because the node cannot restore those of checkpoints."""
    record, replica = restart_failed(record, observed, replica, "RestoreUnsupported")
    assert replica.recovery is not None
    recovery = replace(replica.recovery, not_before=None, source=Source("Found"))
    restarts = replica.restarts - 1
    return record, replace(replica, recovery=recovery, restarts=restarts, app_only=True, quick_exits=())


def add_source(replica: Replica, losses: list[Loss]) -> Replica:
    """Return the replica with further sources of the loss that is being recovered."""
    recovery = replica.recovery
    if recovery is None or recovery.failure:
        return replica
    known = dict.fromkeys((*recovery.sources, *(loss.source for loss in losses if not loss.hint)))
    return replace(replica, recovery=replace(recovery, sources=tuple(known)[:8]))


def search(replica: Replica, observed: ObservedJob, record: SpotJobRecord, steps: Steps) -> Replica:
    """Take the search for a checkpoint as far as possible; it has ended when its step is Found."""
    recovery = replica.recovery
    if recovery is None:
        return replica
    source = recovery.source
    if observed.job.saves_by_order and source.step != "Found":
        source = app_saves.search(record, observed, replica, source, steps)
    elif starts_by_application(replica, observed) and source.step != "Found":
        source = Source("Found")
    while not observed.job.saves_by_order:
        before = source
        match source.step:
            case "Rescue":
                source = _after_rescue(source, observed, record, steps)
            case "Backups":
                source = _next_backup(replica, recovery, source, observed, steps)
            case "Registry":
                source = _newest_tags(replica, recovery, source, observed, steps)
            case "Found":
                break
        if source == before or source.step == before.step:
            break
    return replace(replica, recovery=replace(recovery, source=source))


def starts_by_application(replica: Replica, observed: ObservedJob) -> bool:
    """Return True if the training itself resumes, instead of containers being restored."""
    if observed.job.level == "App" or replica.app_only:
        return True
    node = observed.node_of(replica.current)
    if observed.job.level != "auto" or node is None:
        return False
    return node.metadata.labels.get(RESTORE_CAPABILITY) == "none"


def with_source(incarnation: Incarnation, replica: Replica, observed: ObservedJob) -> Incarnation:
    """Return the incarnation with the images that the search has found, and the way it starts."""
    recovery = replica.recovery
    if recovery is None:
        return incarnation
    source = recovery.source
    if starts_by_application(replica, observed):
        return replace(incarnation, mode=APP_RESUME)
    if not source.images:
        return replace(incarnation, mode=APP_RESUME if observed.job.storage_uri else FRESH)
    return replace(incarnation, mode=CHECKPOINT_IMAGE, images=source.images, source=source.found)


def end_outcome(incarnation: Incarnation, recovery: Recovery) -> str:
    """Return what a replica has kept that runs again.

    Nothing shows what a training that resumes by itself has saved. It has lost the steps since its own last
    checkpoint if it was not asked to save before its node was lost, or did not end in time.
    """
    if incarnation.mode == FRESH:
        return reasons.PROGRESS_LOST
    if incarnation.mode == CHECKPOINT_IMAGE:
        return reasons.RECOVERED
    if recovery.source.found.startswith(app_saves.STEP_PREFIX):
        return _resumed_outcome(incarnation.resumed_step, recovery)
    may_have_saved = recovery.failure or recovery.action == SIGNAL_ANSWERED
    return reasons.UNKNOWN if may_have_saved else reasons.PROGRESS_LOST


def _resumed_outcome(resumed: int | None, recovery: Recovery) -> str:
    """Return the same of a training that has acknowledged a checkpoint, by the step that it started from."""
    if resumed is None:
        return reasons.UNKNOWN
    wanted = int(recovery.source.found.removeprefix(app_saves.STEP_PREFIX))
    return reasons.RECOVERED if resumed >= wanted else reasons.PROGRESS_LOST


def report_end(replica: Replica, recovery: Recovery, steps: Steps) -> None:
    """Emit the events of a recovery after which the replica runs."""
    current = replica.current
    steps.normal(
        reasons.RECOVERY_COMPLETED,
        f"replica {replica.index}: incarnation {current.number} runs on node {current.node}",
    )
    if current.mode == APP_RESUME and end_outcome(current, recovery) == reasons.PROGRESS_LOST:
        steps.warning(
            reasons.PROGRESS_LOST,
            f"replica {replica.index}: the training resumes from its own last checkpoint, without the steps"
            " after that",
        )


def survivors(
    record: SpotJobRecord, observed: ObservedJob, index: int
) -> Iterator[tuple[Replica, ClusterPod]]:
    """Yield the other replicas that run on a Ready node without a notice, with their pods."""
    for replica in record.replicas:
        pod = observed.running_pod(replica.current)
        node = observed.node_of(replica.current)
        if replica.index == index or pod is None or node is None or not is_ready(node):
            continue
        instance = observed.instance_of(replica.current)
        announced = find_announcement(node, observed.rules)
        if announced is None and not (instance is not None and instance.status.preemption_notice):
            yield replica, pod


def _with_old(old: tuple[Incarnation, ...], lost: Incarnation) -> tuple[Incarnation, ...]:
    return (*old, lost) if lost.job or lost.instance else old


def _begin_search(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, recovery: Recovery, steps: Steps
) -> tuple[SpotJobRecord, Source]:
    """Order a checkpoint of a survivor, or wait for the one that is being made of it."""
    if observed.job.saves_by_order:
        return app_saves.begin_search(record, observed, replica, recovery, steps)
    if not observed.backups_served or observed.job.level == "App":
        return record, Source()
    rescue_by = observed.now + timedelta(seconds=observed.settings.rescue_timeout)
    for survivor, pod in survivors(record, observed, replica.index):
        running = next((b for b in record.backups if b.pod_uid == pod.metadata.uid), None)
        if running is None:
            record, running = order_backup(record, observed, survivor, pod, steps, rescue=True)
        return record, Source("Rescue", rescue=running.name, rescue_by=rescue_by)
    return record, Source()


def _after_rescue(source: Source, observed: ObservedJob, record: SpotJobRecord, steps: Steps) -> Source:
    """Go on to the finished backups once that of the survivor is among them, or cannot be waited for."""
    assert source.rescue_by is not None
    backup = next((backup for backup in record.backups if backup.name == source.rescue), None)
    if backup is None or backup.finished is not None or observed.now >= source.rescue_by:
        return replace(source, step="Backups")
    survivor = next((replica for replica in record.replicas if replica.index == backup.index), None)
    if survivor is None or survivor.current.job != backup.job:
        return replace(source, step="Backups")  # lost as well: it counts only if it is completed in time
    steps.wake(source.rescue_by)
    return source


def _next_backup(
    replica: Replica, recovery: Recovery, source: Source, observed: ObservedJob, steps: Steps
) -> Source:
    """Ask the registry for the images of the newest good backup, then of the one before it, and so on."""
    job = observed.job
    good = newest_good(observed.backups.values(), job.containers, job.repository)
    candidates = [backup for backup in good if backup.metadata.name not in source.rejected]
    if not candidates:
        return replace(source, step="Registry")
    backup = candidates[0]
    name = backup.metadata.name
    images = good_images(backup, job.containers, job.repository)
    key = call_key(f"restore/{replica.index}/{name}", recovery.notice_time, observed.now)
    result = observed.calls.get(key)
    if result is None or (result.status is CallStatus.UNAVAILABLE and not _is_late(recovery, observed)):
        steps.actions.append(verify_call(key, backup, images, observed))
        steps.wake(observed.now + timedelta(seconds=CALL_SECONDS))
        return source
    if result.status is CallStatus.DONE and isinstance(result.value, FoundImages):
        digest = result.value.digests.get(job.containers[0], "")
        return replace(source, step="Found", found=name, images=images, digest=digest)
    return _next_backup(
        replica,
        recovery,
        replace(source, rejected=(*source.rejected, name), message=describe(result)),
        observed,
        steps,
    )


def _newest_tags(
    replica: Replica, recovery: Recovery, source: Source, observed: ObservedJob, steps: Steps
) -> Source:
    """Ask the registry for the newest complete set of tags; without one, training starts at step 0."""
    job = observed.job
    key = call_key(f"tags/{replica.index}/{recovery.id}", recovery.notice_time, observed.now)
    result = observed.calls.get(key)
    if result is None or (result.status is CallStatus.UNAVAILABLE and not _is_late(recovery, observed)):
        request = FindNewest(str(job.repository), job.containers, f"{job.namespace}/{job.name}")
        steps.actions.append(Call(key, REGISTRY_DRIVER, request, job.registry_credentials))
        steps.wake(observed.now + timedelta(seconds=CALL_SECONDS))
        return source
    value = result.value
    if isinstance(value, FoundImages) and value.images:
        digest = value.digests.get(job.containers[0], "")
        images = dict(value.images)
        return replace(source, step="Found", found=str(value.stamp), images=images, digest=digest)
    reason = reasons.CHECKPOINT_INVALID if source.rejected else reasons.NO_CHECKPOINT_FOUND
    message = source.message if result.status is CallStatus.DONE else describe(result)
    return replace(source, step="Found", loss_reason=reason, message=message)


def _is_late(recovery: Recovery, observed: ObservedJob) -> bool:
    """Return True if a registry that does not answer is not waited for any more."""
    return observed.now >= recovery.notice_time + timedelta(seconds=observed.settings.rescue_timeout)
