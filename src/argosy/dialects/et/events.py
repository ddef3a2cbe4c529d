"""The events of TrainingJobs: for each condition that becomes True with a reason, for lost workers and for
checkpoints.

A job that is resumed has the condition Suspended False, which is an event too. The begin and the success of
what a scaler asked for are events of the scaler only.
"""

from collections.abc import Iterator, Sequence

from argosy.dialects.base import StatusChange
from argosy.dialects.checkpoints import CHECKPOINT_READY, PROGRESS_LOST
from argosy.dialects.et import conditions as listed
from argosy.dialects.et import messages, names, reasons
from argosy.dialects.et.spec import needs_network_interfaces, read_job_spec
from argosy.dialects.et.status import PHASES, scaler_name
from argosy.dialects.et.validation import replicas_problem
from argosy.kinds.trainingjob import WORKER, TrainingJob
from argosy.plan.actions import ActionResult, ActionStatus, EmitEvent
from argosy.workload import reasons as common
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Problem
from argosy.workload.notice import NoticeResponse
from argosy.workload.observed import ObservedPod
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from argosy.workload.release import is_release

_WARNINGS = frozenset({listed.FAILED, listed.SCALE_FAILED, listed.RESTARTING})
_OF_SCALERS = frozenset({listed.SCALING, listed.SCALE_SUCCEEDED})
_OF_CHECKPOINTS = frozenset({common.CHECKPOINT_COMPLETED, common.CHECKPOINT_TIMEOUT})
_REJECTIONS = frozenset(
    {ActionStatus.FORBIDDEN, ActionStatus.INVALID, ActionStatus.RETRY, ActionStatus.SPEC_REJECTED}
)


def status_events(change: StatusChange[TrainingJob]) -> Sequence[EmitEvent]:
    """Return the events of a status that was written."""
    if change.after is change.before:
        return ()
    before = decode(change.before.status.argosy)
    return (
        *_condition_events(change),
        *_worker_events(change, before),
        *_limit_events(change, before or Record()),
        *_release_events(change, before or Record()),
        *_name_conflict_events(change, before),
        *_spec_events(change),
        *(event for event in change.plan.events if event.reason in _OF_CHECKPOINTS),
    )


def action_events(job: TrainingJob, results: Sequence[ActionResult]) -> Sequence[EmitEvent]:
    """Return one warning for all objects of a kind whose creation was rejected for the same reason."""
    del job
    rejected: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result.verb == "Create" and result.status in _REJECTIONS:
            is_pod = result.kind == "Pod"
            reason = reasons.POD_CREATE_FAILED if is_pod else common.action_failed(result)
            rejected.setdefault((reason, result.message), []).append(result.name)
    return [
        EmitEvent("Warning", reason, messages.create_failed(objects, message))
        for (reason, message), objects in rejected.items()
    ]


def _condition_events(change: StatusChange[TrainingJob]) -> Iterator[EmitEvent]:
    before = change.before.status.conditions
    of_scalers = _OF_SCALERS if _is_scaled_by_object(change.plan.record) else frozenset()
    for item in change.after.status.conditions:
        changed = item not in before and item.type not in (*of_scalers, CHECKPOINT_READY, PROGRESS_LOST)
        resumed = item.reason == reasons.TRAINING_JOB_RESUMED
        if not changed or not item.reason or not (item.status == "True" or resumed):
            continue
        yield EmitEvent("Warning" if item.type in _WARNINGS else "Normal", item.reason, item.message)


def _is_scaled_by_object(record: Record) -> bool:
    """Return True if the last scale operation is one of a ScaleIn or ScaleOut."""
    last = record.operations[-1] if record.operations else None
    return last is not None and bool(last.name) and not is_release(last)


def _worker_events(change: StatusChange[TrainingJob], before: Record | None) -> Iterator[EmitEvent]:
    """Yield one warning for every worker that was lost, one event for their replacements, and one for workers
    that were scaled in."""
    after = change.plan.record
    if before is None or before.attempt != after.attempt:
        return
    namespace, name = change.after.metadata.namespace, change.after.metadata.name
    was, now = before.role(WORKER), after.role(WORKER)
    pods = {pod.index: pod for pod in change.plan.transitions.retired_pods if pod.role == WORKER}
    for index in now.retired - was.retired:
        pod, worker = pods.get(index), names.worker_name(name, index)
        if pod is not None and pod.reason == "Evicted":
            message = messages.worker_evicted(namespace, name, worker)
        else:
            message = messages.worker_lost(namespace, name, worker, _lost_phase(pod))
        yield EmitEvent("Warning", reasons.TRAINING_JOB_WORKER_FAILED, message)
    gone, leaving = was.members - now.members, before.leaving(WORKER)
    if before.operation and gone & leaving:
        removed = [names.worker_name(name, index) for index in gone & leaving]
        message = messages.workers_deleted(removed, scaler_name(change.after, before.operation))
        yield EmitEvent("Normal", reasons.WORKER_DELETED, message)
    if (gone - leaving) & now.retired:
        added = [names.worker_name(name, index) for index in now.members - was.members - was.joining]
        message = messages.workers_replaced(namespace, name, added)
        yield EmitEvent("Normal", reasons.TRAINING_JOB_WORKER_CREATED, message)


def _lost_phase(pod: ObservedPod | None) -> str:
    """Return what is said about the phase of a lost worker; a pod that has not ended is on a lost node."""
    if pod is None or pod.terminating:
        return "Deleted"
    return pod.phase if pod.ended else "Unknown"


def _limit_events(change: StatusChange[TrainingJob], before: Record) -> Iterator[EmitEvent]:
    was, now = before.role(WORKER), change.plan.record.role(WORKER)
    if now.budget_exhausted and not was.budget_exhausted:
        reason, history = common.REPLACEMENT_LIMIT_REACHED, change.plan.record.history
        message = next((item.message for item in reversed(history) if item.reason == reason), "")
        yield EmitEvent("Warning", reasons.WORKER_REPLACEMENT_LIMIT_REACHED, message)
    shown = {item.id for item in before.operations if item.drain_timed_out}
    for operation in change.plan.record.operations:
        if operation.drain_timed_out and operation.id not in shown:
            removed = (was.members - now.members) & operation.index_set
            workers = [names.worker_name(change.after.metadata.name, index) for index in removed]
            yield EmitEvent("Warning", reasons.DRAIN_TIMEOUT, messages.drain_timed_out(workers))


def _release_events(change: StatusChange[TrainingJob], before: Record) -> Iterator[EmitEvent]:
    """Yield a warning for every node or pod whose announced end the job has begun to answer."""
    known = {notice.id for notice in before.notices if notice.response == NoticeResponse.SCALE_IN}
    for notice in change.plan.record.notices:
        if notice.response == NoticeResponse.SCALE_IN and notice.id not in known:
            indexes = IndexSet.decode(notice.replicas[WORKER])
            workers = [names.worker_name(change.after.metadata.name, index) for index in indexes]
            message = messages.node_releasing(notice.node, notice.source, notice.deadline, workers)
            yield EmitEvent("Warning", reasons.NODE_RELEASING, message)


def _name_conflict_events(change: StatusChange[TrainingJob], before: Record | None) -> Iterator[EmitEvent]:
    """Yield a warning about an object of another owner for which the job has begun to wait."""
    waiting = change.plan.record.waiting
    if waiting is None or not waiting.reason.endswith(_NAME_CONFLICT):
        return
    was = before.waiting if before else None
    if was is None or (was.reason, was.message) != (waiting.reason, waiting.message):
        kind, name = waiting.reason.removesuffix(_NAME_CONFLICT), waiting.message.partition(":")[0]
        message = messages.not_managed_by(kind, name, change.after.metadata.name)
        yield EmitEvent("Warning", reasons.NOT_MANAGED_BY, message)


_NAME_CONFLICT = common.name_conflict("")


def _spec_events(change: StatusChange[TrainingJob]) -> Iterator[EmitEvent]:
    """Yield warnings about what a user should know of a new spec, or of a status that others wrote."""
    before, after = change.before.status, change.after.status
    if before.phase not in PHASES:
        yield EmitEvent("Warning", reasons.UNKNOWN_PHASE, messages.unknown_phase(before.phase))
    spec = read_job_spec(change.after.spec)
    if isinstance(spec, Problem) or change.workload is None:
        return
    if before.observed_generation == after.observed_generation:
        return
    if before.start_time is None and needs_network_interfaces(spec):
        message = messages.single_worker(change.after.metadata.name)
        yield EmitEvent("Warning", reasons.SINGLE_WORKER_ELASTIC, message)
    problem = replicas_problem(spec)
    if before.start_time is not None and problem is not None:
        message = messages.replicas_ignored(str(problem), len(after.target_workers))
        yield EmitEvent("Warning", reasons.REPLICAS_OUT_OF_RANGE, message)
