"""Reconciles a SpotInstanceJob.

1. Read the spec and its template, and ask the API server whether it accepts the Job, before anything is made.
2. Note what was created, and settle the checkpoints that are being made.
3. Find lost and failed replicas and begin their next incarnations. No replica waits for another.
4. Give replicas places, and create Jobs where place and checkpoint are ready.
5. Order checkpoints that are due, and remove what is not needed any more.

Everything is recorded with the status before it is done.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import cast

import msgspec
from msgspec.structs import replace

from argosy.dialects.spot import (
    app_saves,
    checkpoints,
    completion,
    conditions,
    dying_pods,
    ending,
    launch,
    losses,
    pull_secret,
    reasons,
    recovery,
    roles,
    status,
    usage,
)
from argosy.dialects.spot.job_spec import Rejection, SpotJob, Template, gpu_count, read_job, template_ref
from argosy.dialects.spot.names import label_value
from argosy.dialects.spot.observed import ObservedJob, Steps
from argosy.dialects.spot.places import Cluster
from argosy.dialects.spot.pods import (
    ALL,
    ALL_INDEX,
    JOB_INDEX,
    USAGE_INDEX,
    USING,
    ClusterPod,
    job_value,
)
from argosy.dialects.spot.record import FRESH, Incarnation, Recovery, Replica, SpotJobRecord
from argosy.dialects.spot.replica_job import Completion, check_job, unchanged, with_whole_pod
from argosy.dialects.spot.reservations import reserved_by_others
from argosy.dialects.spot.settings import SpotSettings
from argosy.kinds.kubernetes import Job, Node, SecretMetadata
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.spot import FINALIZER, SpotInstanceJob
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import ActionStatus, Check
from argosy.plan.children import KubernetesObject
from argosy.plan.contract import Decision, Inputs, Matching, Need, Ref
from argosy.workload.announcements import NoticeRules

_EVERY_NODE = Matching(Node, ALL_INDEX, ALL)
_USING_PODS = Matching(ClusterPod, USAGE_INDEX, USING)
_EVERY_JOB = Matching(SpotInstanceJob, ALL_INDEX, ALL)
_PLACE_NEEDS: tuple[Need, ...] = (_EVERY_NODE, _USING_PODS, _EVERY_JOB)


class SpotInstanceJobReconciler:
    """Decides about one SpotInstanceJob at a time."""

    record = SpotJobRecord
    owns: tuple[type[KubernetesObject], ...] = (Job, CheckpointBackup, ProvisionedInstance, SecretMetadata)
    finalizer = FINALIZER

    def __init__(
        self,
        settings: SpotSettings = SpotSettings(),
        rules: NoticeRules = NoticeRules(),
        complete: Completion = unchanged,
    ) -> None:
        self._settings = settings
        self._rules = rules
        self._complete = complete

    def needs(self, obj: SpotInstanceJob, record: SpotJobRecord | None) -> Iterable[Need]:
        """Name its template, its pods and nodes, and all nodes while a replica has no place."""
        meta = obj.metadata
        if meta.deletion_timestamp is not None or (record is not None and record.ended):
            return
        template = template_ref(obj)
        if template.name:
            yield template
        yield Matching(ClusterPod, JOB_INDEX, job_value(meta.namespace, label_value(meta.name)))
        for incarnation in _incarnations(record):
            for name in {incarnation.node, incarnation.instance} - {""}:
                yield Ref(Node, name)
        if _is_placing(obj, record):
            yield from _PLACE_NEEDS
        job = read_job(obj)
        view = pull_secret.needed_view(job, record) if isinstance(job, SpotJob) and record else None
        if view is not None:
            yield view

    def decide(
        self, obj: SpotInstanceJob, record: SpotJobRecord | None, inputs: Inputs, now: datetime
    ) -> Decision:
        now = now.replace(microsecond=0)
        if obj.metadata.deletion_timestamp is not None:
            return ending.delete_job(obj, inputs)
        job = read_job(obj)
        if record is not None and record.ended:
            ttl = job.ttl if isinstance(job, SpotJob) else None
            return ending.finish_job(obj, record, ttl, inputs, now)
        if isinstance(job, Rejection):
            return _refuse(obj, job, record, now)
        template = cast("Template | None", inputs.get(job.template))
        if template is None and (record is None or not record.replicas):
            where = f"{job.template.kind.__name__} {job.namespace}/{job.template.name}"
            rejection = Rejection(reasons.TEMPLATE_NOT_FOUND, f"{where} does not exist")
            return _refuse(obj, rejection, record, now)
        before = record or SpotJobRecord(started=now)
        observed = self._observe(obj, job, template, before, inputs, now)
        return _decide(obj, before, observed, inputs)

    def _observe(
        self,
        obj: SpotInstanceJob,
        job: SpotJob,
        template: Template | None,
        record: SpotJobRecord,
        inputs: Inputs,
        now: datetime,
    ) -> ObservedJob:
        placing = _EVERY_NODE in inputs.found
        nodes = inputs.all(_EVERY_NODE) if placing else ()
        named = [
            node for need in inputs.found if need.kind is Node for node in inputs.all(cast("Ref[Node]", need))
        ]
        by_name = {node.metadata.name: node for node in (*named, *nodes)}
        using = inputs.all(_USING_PODS) if placing else ()
        meta = obj.metadata
        own = Matching(ClusterPod, JOB_INDEX, job_value(meta.namespace, label_value(meta.name)))
        reserved = reserved_by_others(obj, inputs.all(_EVERY_JOB), using) if placing else {}
        return ObservedJob(
            now=now,
            job=with_whole_pod(job, self._complete) if placing else job,
            settings=self._settings,
            rules=self._rules,
            template=template,
            gpus=gpu_count(template) if template is not None else record.gpus,
            pods=inputs.all(own),
            nodes=by_name,
            node_pods=using,
            cluster=Cluster(nodes, using, reserved) if placing else None,
            jobs={child.metadata.name: child for child in inputs.owned(Job)},
            backups={child.metadata.name: child for child in inputs.owned(CheckpointBackup)},
            instances={child.metadata.name: child for child in inputs.owned(ProvisionedInstance)},
            backups_served=CheckpointBackup not in inputs.unserved,
            complete=self._complete,
            calls=inputs.call_results,
            failures=inputs.failures,
        )


def _decide(obj: SpotInstanceJob, before: SpotJobRecord, observed: ObservedJob, inputs: Inputs) -> Decision:
    steps = Steps()
    record, accepted = _check_template(before, observed, inputs, steps)
    record = _note_children(record, observed)
    record = checkpoints.settle_backups(record, observed, steps)
    record = app_saves.record_acks(record, observed, steps)
    record = _handle_losses(record, observed, steps)
    record = completion.end_job(record, observed, steps)
    if record.ended:
        return _end(obj, before, record, observed, inputs, steps)
    record = _scale(record, observed)
    secret = pull_secret.prepare(observed.job, record, inputs)
    steps.actions.extend(secret.actions)
    if accepted:
        record = launch.assign_places(record, observed, steps)
        record = launch.create_instances(record, observed, steps)
    record = _advance(record, observed, steps, launching=accepted, secret=secret.ready)
    record = app_saves.without_stops_of_next_pods(record)
    launch.create_jobs(record, observed, steps)
    record = checkpoints.order_due_backups(record, observed, steps)
    record = app_saves.order_due(record, observed, steps)
    record = _answer_hints(record, observed, steps)
    checkpoints.create_new_backups(before, record, observed, steps)
    checkpoints.prune_backups(record, observed, steps)
    launch.remove_stale_children(record, observed, steps)
    record = roles.assign_roles(record, observed, steps)
    record = usage.with_usage(before, record, observed)
    return _decision(obj, before, record, observed, steps, secret.problem)


def _decision(
    obj: SpotInstanceJob,
    before: SpotJobRecord,
    record: SpotJobRecord,
    observed: ObservedJob,
    steps: Steps,
    secret_problem: str,
) -> Decision:
    recoveries = status.update_recoveries(obj.status.recoveries, before, record, observed.now)
    new = status.job_status(obj.status, record, observed, recoveries)
    stated = []
    if record.check_problem:
        stated.append(conditions.rejected(Rejection(reasons.INVALID_JOB_TEMPLATE, record.check_problem)))
    if secret_problem:
        stated.append(
            conditions.Stated(reasons.CREDENTIALS_READY, "False", reasons.SECRET_NOT_FOUND, secret_problem)
        )
    if stated:
        updated = conditions.update_conditions(new.conditions, stated, observed.job.generation, observed.now)
        new = replace(new, conditions=updated)
    return Decision(new, tuple(steps.actions), tuple(steps.events), min(steps.wake_times, default=None))


def _refuse(
    obj: SpotInstanceJob, rejection: Rejection, record: SpotJobRecord | None, now: datetime
) -> Decision:
    stated = conditions.rejected(rejection)
    new = status.refused_status(obj.status, stated, record, obj.metadata.generation, now)
    return Decision(new)


def _end(
    obj: SpotInstanceJob,
    before: SpotJobRecord,
    record: SpotJobRecord,
    observed: ObservedJob,
    inputs: Inputs,
    steps: Steps,
) -> Decision:
    """Record the end; what is left is removed from this reconcile on."""
    record = replace(
        record,
        backups=(),
        replicas=tuple(replace(replica, recovery=None) for replica in record.replicas),
    )
    record = usage.with_usage(before, record, observed)
    recoveries = status.update_recoveries(obj.status.recoveries, before, record, observed.now)
    ended = replace(obj, status=status.job_status(obj.status, record, observed, recoveries))
    decision = ending.finish_job(ended, record, observed.job.ttl, inputs, observed.now)
    return replace(decision, events=tuple(steps.events))


def _check_template(
    record: SpotJobRecord, observed: ObservedJob, inputs: Inputs, steps: Steps
) -> tuple[SpotJobRecord, bool]:
    """Return whether the API server accepts the Job; ask it after every change of the template."""
    job = observed.job
    templates = _templates_hash(observed)
    if templates and record.template_hash and record.template_hash != templates:
        text = "the Job template or the template of VMs has changed; the next incarnations use it"
        steps.normal(reasons.TEMPLATE_CHANGED, text)
    record = replace(record, template_hash=templates or record.template_hash, gpus=observed.gpus)
    if record.checked == job.template_hash:
        return record, not record.check_problem
    child = check_job(job, observed.complete)
    result = inputs.checked(child)
    if result is None or result.status is ActionStatus.RETRY:
        steps.actions.append(Check(child))
        return record, False
    if result.status is ActionStatus.DONE:
        return replace(record, checked=job.template_hash, check_problem=""), True
    steps.actions.append(Check(child))  # asked again later: a quota or a policy may change
    return replace(record, check_problem=result.message), False


def _templates_hash(observed: ObservedJob) -> str:
    if observed.template is None:
        return ""
    raw = msgspec.json.encode(observed.template.spec)
    return hashlib.sha256(observed.job.template_hash.encode() + raw).hexdigest()[:16]


def _note_children(record: SpotJobRecord, observed: ObservedJob) -> SpotJobRecord:
    """Remember the uids of Jobs that were created, and since when nodes are silent."""
    replicas: list[Replica] = []
    for replica in record.replicas:
        current, job = replica.current, observed.job_of(replica.current)
        if job is not None and not current.uid:
            replica = replace(replica, current=replace(current, uid=job.metadata.uid))
        replicas.append(replace(replica, silent_since=losses.silent_since(replica, observed)))
    return replace(record, replicas=tuple(replicas))


def _handle_losses(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Begin the recovery of replicas whose node is lost, and restart those that failed."""
    for index in [replica.index for replica in record.replicas]:
        replica = next(replica for replica in record.replicas if replica.index == index)
        found = losses.find_losses(replica, replica.current, observed, steps)
        certain = [loss for loss in found if not loss.hint]
        is_done = completion.is_complete(observed.job_of(replica.current))
        if certain and not replica.failure_message and not is_done:
            record, replica = recovery.start_recovery(record, observed, replica, certain[0], steps)
            replica = recovery.add_source(replica, certain)
        else:
            record, replica = completion.handle_ended_job(record, observed, replica, steps)
        if replica.old:
            late = losses.find_losses(replica, replica.old[-1], observed, steps)
            replica = recovery.add_source(replica, late)
        record = _with_replica(record, replica)
    return record


def _answer_hints(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Make one checkpoint of a replica whose node may be lost."""
    for replica in record.replicas:
        pod, node = observed.running_pod(replica.current), observed.node_name(replica.current)
        hinted = any(loss.hint for loss in losses.find_losses(replica, replica.current, observed, Steps()))
        if not hinted or pod is None or node in record.hints:
            continue
        record = replace(record, hints=(*record.hints, node)[-16:])
        if observed.job.saves_by_order:
            record = app_saves.order_for_hint(record, observed, node, steps)
        elif observed.job.level == "App" or not observed.backups_served:
            continue
        elif not any(backup.pod_uid == pod.metadata.uid for backup in record.backups):
            record, _ = checkpoints.order_backup(record, observed, replica, pod, steps)
    return record


def _scale(record: SpotJobRecord, observed: ObservedJob) -> SpotJobRecord:
    """Add and drop replicas, so that there are the indexes below the wanted number."""
    wanted = observed.job.replicas
    kept = [replica for replica in record.replicas if replica.index < wanted]
    dropped = sum(replica.preemptions for replica in record.replicas if replica.index >= wanted)
    record = replace(
        record,
        replicas=tuple(kept),
        backups=tuple(backup for backup in record.backups if backup.index < wanted),
        removed_preemptions=record.removed_preemptions + dropped,
    )
    present = {replica.index for replica in kept}
    for index in range(wanted):
        if index in present:
            continue
        stamp = checkpoints.next_stamp(record, observed.now)
        started = None
        if record.checkpoint is not None:
            started = Recovery(f"{index}/0", "", (), observed.now, failure=True)
        replica = Replica(index, Incarnation(0, stamp), recovery=started)
        record = replace(record, replicas=(*record.replicas, replica), last_stamp=stamp)
    in_order = tuple(sorted(record.replicas, key=lambda replica: replica.index))
    return replace(record, replicas=in_order)


def _advance(
    record: SpotJobRecord, observed: ObservedJob, steps: Steps, *, launching: bool, secret: bool
) -> SpotJobRecord:
    """Take every replica as far as it can come: find its checkpoint, record its Job, end its recovery."""
    for replica in record.replicas:
        replica = dying_pods.follow_save(replica, observed, steps)
        replica = recovery.search(replica, observed, record, steps)
        if launching:
            replica = launch.launch(observed, replica, secret, steps)
        record, replica = _end_recovery(record, observed, replica, steps)
        replica = launch.release_old(observed, replica, steps)
        record = _with_replica(record, replica)
    return record


def _end_recovery(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, steps: Steps
) -> tuple[SpotJobRecord, Replica]:
    """End the recovery of a replica that runs again."""
    going, current = replica.recovery, replica.current
    if going is None or not current.job:
        return record, replica
    if going.cause and going.source.loss_reason and current.mode == FRESH and record.progress_lost is None:
        message = going.source.message or "no checkpoint was found; training starts from the beginning"
        steps.warning(reasons.PROGRESS_LOST, f"replica {replica.index}: {message}")
        record = replace(record, progress_lost=(going.source.loss_reason, message))
    pod = observed.running_pod(current)
    if pod is None or app_saves.await_resumed(going, pod, observed, steps):
        return record, replica
    replica = replace(replica, current=replace(current, resumed_step=app_saves.resumed_step(pod)))
    if going.cause:
        recovery.report_end(replica, going, steps)
    return record, replace(replica, recovery=None)


def _with_replica(record: SpotJobRecord, replica: Replica) -> SpotJobRecord:
    replicas = (replica if other.index == replica.index else other for other in record.replicas)
    return replace(record, replicas=tuple(replicas))


def _incarnations(record: SpotJobRecord | None) -> Iterator[Incarnation]:
    for replica in record.replicas if record is not None else ():
        yield replica.current
        yield from replica.old


def _is_placing(obj: SpotInstanceJob, record: SpotJobRecord | None) -> bool:
    """Return True while a replica has no Job, so that nodes and what is free on them are looked at."""
    if record is None or len(record.replicas) != obj.spec.replicas:
        return True
    return any(not replica.current.job and not replica.failure_message for replica in record.replicas)
