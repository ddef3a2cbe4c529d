"""Orders trainings that save themselves to do so, and takes up which checkpoints their pods acknowledge.

This concerns jobs of level App that have a storage. One order is in force at a time, for all
replicas: pods read it from the operator's endpoint. It is due by interval, and before a replica is lost; then
the survivors save too, so that the new incarnation continues from whichever copy is ahead. Checkpoints are
acknowledged by annotations of pods. Training never ends because a checkpoint is late.

A program whose storage is a bucket may write there by itself and know nothing of orders. As long as its pods
show no sign of them, nothing waits for an answer, and none is missed.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from argosy.dialects.spot import reasons
from argosy.dialects.spot.checkpoints import interval_seconds
from argosy.dialects.spot.names import copy_name
from argosy.dialects.spot.observed import ObservedJob, Steps
from argosy.dialects.spot.pods import ClusterPod
from argosy.dialects.spot.record import Checkpoint, Recovery, Replica, Source, SpotJobRecord
from argosy.kinds.labels import CHECKPOINT_ACK, CHECKPOINT_RESUMED, TRAINING_STEP
from argosy.workload import checkpoint_messages
from argosy.workload import reasons as common_reasons
from argosy.workload.checkpoint_record import SavedCheckpoint, SaveOrder
from argosy.workload.save_acks import read_ack, read_resumed
from argosy.workload.save_intervals import jitter
from argosy.workload.saves import INTERVAL_GRACE_SECONDS, INTERVAL_ID, MIN_TIMEOUT_SECONDS, SAVE_TIME_FACTOR

RESUMED_SECONDS: Final = 30.0
"""How long a pod that has started may take to report from which checkpoint."""
STEP_PREFIX: Final = "step "
"""Before the step of a checkpoint of the training's own, where a source is named."""
HINT_ID: Final = "hint/"
"""Before the name of a node that may be lost, in the id of an order."""


def record_acks(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Return the record with what pods have acknowledged, and without an order that is answered or late."""
    if not observed.job.saves_by_order:
        return record
    for replica in record.replicas:
        if acknowledged := list(_acknowledged(replica, observed)):
            answered = max(saved.epoch for saved in acknowledged)
            record = _with_saved(record, replica.index, acknowledged[-1], answered, observed, steps)
    return _settle_order(record, observed, steps)


def order_due(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Order a checkpoint of all replicas if one is due by interval."""
    if not observed.job.saves_by_order or record.order is not None:
        return record
    pods = [pod for _, pod in _running(record, observed)]
    started = max((pod.started_at for pod in pods if pod.started_at is not None), default=None)
    if started is None:
        return record
    interval = interval_seconds(record, observed)
    late = max(jitter(observed.job.uid, record.last_epoch, interval), INTERVAL_GRACE_SECONDS)
    last = (started, record.ordered_at, record.saved.at if record.saved else None)
    since = max(min(time, observed.now) for time in last if time is not None)
    due = since + timedelta(seconds=interval + late)
    if observed.now < due:
        steps.wake(due)
        return record
    by = observed.now + timedelta(seconds=max(interval, MIN_TIMEOUT_SECONDS))
    return with_order(record, INTERVAL_ID, common_reasons.INTERVAL, by, observed, steps)


def order_for_hint(record: SpotJobRecord, observed: ObservedJob, node: str, steps: Steps) -> SpotJobRecord:
    """Order a checkpoint because a node may be lost, unless one is under way already."""
    if record.order is not None:
        return record
    by = observed.now + timedelta(seconds=_seconds_needed(record))
    return with_order(record, f"{HINT_ID}{node}", reasons.PREEMPTION_NOTICE, by, observed, steps)


def may_answer(record: SpotJobRecord, observed: ObservedJob) -> bool:
    """Return False for a training that may know of nothing but SIGTERM.

    Its storage is a bucket, and it has neither acknowledged a checkpoint nor reported a step.
    """
    if not observed.job.has_bucket or record.has_saved:
        return True
    return any(TRAINING_STEP in pod.metadata.annotations for pod in observed.pods)


def begin_save(
    record: SpotJobRecord,
    observed: ObservedJob,
    replica: Replica,
    recovery: Recovery,
    left: float,
    steps: Steps,
) -> tuple[SpotJobRecord, Recovery]:
    """Order a checkpoint before a replica is lost; half of the time is for its signal.

    A training that has never acknowledged a checkpoint may not know of orders, and only of SIGTERM.
    """
    by = observed.now + timedelta(seconds=left if record.saved is not None else left / 2)
    stop = {copy_name(replica.index): "0"}
    record = with_shared_order(record, recovery, by, observed, steps, [replica], stop)
    return record, replace(recovery, last_save=str(record.last_epoch), save_by=by)


def is_saved(replica: Replica, recovery: Recovery) -> bool:
    """Return True if the replica has answered the order that was made before it is lost."""
    return recovery.last_save.isdecimal() and replica.answered_epoch >= int(recovery.last_save)


def begin_search(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, recovery: Recovery, steps: Steps
) -> tuple[SpotJobRecord, Source]:
    """Return the search for the checkpoint from which a lost replica continues.

    It waits for survivors only if the training has ever acknowledged a checkpoint. The dying pod may answer
    until it gets SIGTERM.
    """
    if record.saved is None and recovery.last_save:
        return record, Source("Rescue", rescue=recovery.last_save, rescue_by=recovery.save_by)
    if record.saved is None:
        return record, _found(record)
    rescue_by = observed.now + timedelta(seconds=_seconds_needed(record))
    if not recovery.last_save:
        survivors = [other for other, _ in _running(record, observed) if other.index != replica.index]
        if not survivors:
            return record, _found(record)
        record = with_shared_order(record, recovery, rescue_by, observed, steps, survivors, {})
    return record, Source("Rescue", rescue=str(record.last_epoch), rescue_by=rescue_by)


def search(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, source: Source, steps: Steps
) -> Source:
    """Wait until any copy has answered the order that was made for a loss, as long as one can.

    The lost pod may be ahead of the others, so its answer is waited for too while it has time.
    """
    if source.step == "Rescue" and source.rescue_by is not None and observed.now < source.rescue_by:
        answered = any(other.answered_epoch >= int(source.rescue) for other in record.replicas)
        lost = map(observed.running_pod, replica.old if _awaits_stop(replica, observed) else ())
        if any(lost) or (not answered and any(_pods(record, observed))):
            steps.wake(source.rescue_by)
            return source
    return _found(record)


def with_order(
    record: SpotJobRecord,
    identity: str,
    reason: str,
    by: datetime,
    observed: ObservedJob,
    steps: Steps,
    stop: dict[str, str] | None = None,
) -> SpotJobRecord:
    """Return the record with an order, in the place of the last one. Its number grows with each order."""
    epoch = max(int(observed.now.timestamp()), record.last_epoch + 1)
    order = SaveOrder(epoch, identity, reason, observed.now, by, stop or {})
    steps.normal(reasons.CHECKPOINT_REQUESTED, f"all replicas are ordered to save a checkpoint ({reason})")
    steps.wake(by)
    return replace(record, order=order, last_epoch=epoch, ordered_at=observed.now)


def with_shared_order(
    record: SpotJobRecord,
    recovery: Recovery,
    by: datetime,
    observed: ObservedJob,
    steps: Steps,
    savers: Sequence[Replica],
    stop: dict[str, str],
) -> SpotJobRecord:
    """Return the record with an order for a recovery that these replicas answer: that in force, or a new one.

    Replicas that were asked to stop still are, by the time that they were given. Pods only read an order with
    a higher number, so one that asks for more than that in force is a new one.
    """
    order, identity = record.order, f"recovery/{recovery.id}"
    if order is None:
        return with_order(record, identity, recovery.cause, by, observed, steps, stop)
    is_answered = any(saver.answered_epoch >= order.epoch for saver in savers)
    if not is_answered and order.by <= by and stop.keys() <= order.stop.keys():
        return record
    by = min(order.by, by) if order.stop else by
    return with_order(record, identity, recovery.cause, by, observed, steps, {**order.stop, **stop})


def without_stops_of_next_pods(record: SpotJobRecord) -> SpotJobRecord:
    """Return the record in which no pod that is created now is asked to stop.

    One that was asked may end before it has saved. Whoever answers its successor must not ask that too, and
    nothing would replace it when it has stopped.
    """
    if record.order is None:
        return record
    recorded = {copy_name(replica.index) for replica in record.replicas if replica.current.job}
    stop = {name: indexes for name, indexes in record.order.stop.items() if name not in recorded}
    return replace(record, order=replace(record.order, stop=stop))


def resumed_step(pod: ClusterPod) -> int | None:
    """Return the step from which a pod has started, as its sidecar reports it; None if it has not yet."""
    return read_resumed(pod.metadata.annotations.get(CHECKPOINT_RESUMED, ""))


def await_resumed(recovery: Recovery, pod: ClusterPod, observed: ObservedJob, steps: Steps) -> bool:
    """Return True while a recovery waits for the report of the pod that has started for it."""
    if not observed.job.saves_by_order or not recovery.source.found or resumed_step(pod) is not None:
        return False
    limit = (pod.started_at or observed.now) + timedelta(seconds=RESUMED_SECONDS)
    steps.wake(limit)
    return observed.now < limit


def _found(record: SpotJobRecord) -> Source:
    if record.saved is None:
        return Source("Found")
    return Source("Found", found=f"{STEP_PREFIX}{record.saved.step}", digest=record.saved.digest)


def _acknowledged(replica: Replica, observed: ObservedJob) -> Iterator[SavedCheckpoint]:
    """Yield what the pods of a replica have acknowledged, those of its newest incarnation last."""
    for incarnation in (*replica.old, replica.current):
        for pod in observed.pods_of(incarnation):
            saved = read_ack(pod.metadata.annotations.get(CHECKPOINT_ACK, ""))
            if saved is not None:
                yield saved


def _with_saved(
    record: SpotJobRecord,
    index: int,
    saved: SavedCheckpoint,
    answered: int,
    observed: ObservedJob,
    steps: Steps,
) -> SpotJobRecord:
    """Return the record with this checkpoint of a replica, and as the newest one if none has more steps.

    The time of its pod counts as ours if it is in the future.
    """
    position = next(at for at, replica in enumerate(record.replicas) if replica.index == index)
    replica = record.replicas[position]
    replica = replace(replica, answered_epoch=max(replica.answered_epoch, answered))
    is_new = replica.saved is None or replica.saved.digest != saved.digest
    if is_new:
        saved = replace(saved, at=min(saved.at, observed.now))
        replica = replace(replica, saved=saved)
    others = (*record.replicas[:position], replica, *record.replicas[position + 1 :])
    record = replace(record, replicas=others)
    if not is_new or record.saved != saved:
        return record
    steps.normal(reasons.CHECKPOINT_COMPLETED, f"replica {index}: {checkpoint_messages.completed(saved)}")
    checkpoint = Checkpoint("", index, saved.at, "", saved.digest, saved.seconds)
    return replace(record, checkpoint=checkpoint, checkpoint_problem=None, progress_lost=None)


def _settle_order(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Drop the order that all running replicas have answered, or that is late.

    Recoveries that share it may have more time: then it is late at the next one's time. A replica's next pod
    is not asked to stop.
    """
    order = record.order
    if order is None:
        return record
    stopping = [replica for replica in record.replicas if _awaits_stop(replica, observed)]
    running = [replica for replica, _ in _running(record, observed)]
    if not stopping and all(replica.answered_epoch >= order.epoch for replica in running):
        return replace(record, order=None)
    limits = [replica.recovery.save_by for replica in stopping if replica.recovery is not None]
    by = order.by
    if observed.now >= by:
        by = min((limit for limit in limits if limit is not None), default=by)
    names = {copy_name(replica.index) for replica in stopping}
    stop = {name: indexes for name, indexes in order.stop.items() if name in names}
    record = replace(record, order=replace(order, by=by, stop=stop))
    if observed.now < by:
        steps.wake(by)
        return record
    record = replace(record, order=None)
    is_answered = any(replica.answered_epoch >= order.epoch for replica in record.replicas)
    if is_answered or not may_answer(record, observed):
        return record
    problem = checkpoint_messages.late(order)
    steps.warning(reasons.CHECKPOINT_TIMEOUT, problem)
    return replace(record, checkpoint_problem=(reasons.CHECKPOINT_TIMEOUT, problem))


def _awaits_stop(replica: Replica, observed: ObservedJob) -> bool:
    """Return True if a lost pod of the replica still has time to save and stop."""
    recovery = replica.recovery
    if recovery is None or recovery.save_by is None or replica.current.job:
        return False
    return observed.now < recovery.save_by and not is_saved(replica, recovery)


def _running(record: SpotJobRecord, observed: ObservedJob) -> Iterator[tuple[Replica, ClusterPod]]:
    """Yield the replicas that run and are not being replaced, with their pods."""
    for replica in record.replicas:
        pod = observed.running_pod(replica.current)
        if pod is not None and replica.recovery is None:
            yield replica, pod


def _pods(record: SpotJobRecord, observed: ObservedJob) -> Iterator[ClusterPod]:
    """Yield the running pods of all incarnations, also of lost ones."""
    for replica in record.replicas:
        for incarnation in (*replica.old, replica.current):
            if (pod := observed.running_pod(incarnation)) is not None:
                yield pod


def _seconds_needed(record: SpotJobRecord) -> float:
    seconds = record.saved.seconds if record.saved is not None else 0.0
    return max(seconds * SAVE_TIME_FACTOR, MIN_TIMEOUT_SECONDS)
