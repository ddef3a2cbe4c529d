"""Adds replicas to a running job and removes them, as objects of its API or a changed spec ask for.

One operation is under way at a time, the oldest request first. Its replicas are chosen once, and nothing is
done before the Record has them and the request shows them: until then `scale_request.hidden_indexes` keeps
new pods from being created. Adding is all or nothing: new pods become members when all of them run, and all
are deleted if one does not in time. Removing takes replicas out of the host list first, after a checkpoint if
the job keeps any, and deletes each when the launcher has left it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds import labels
from argosy.plan.actions import Exec, ExecResult, ExecStatus
from argosy.workload import declared_scale, hosts, messages, release, scale_script
from argosy.workload.children import pod_services
from argosy.workload.clock_skew import deadline
from argosy.workload.current_pods import current_pods
from argosy.workload.host_list import HostList
from argosy.workload.index_set import EMPTY, MAX_INDEX, IndexSet
from argosy.workload.launchers import launcher_pod, usable_indexes
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.operation import MAX_OPERATIONS, Operation, ScaleStep
from argosy.workload.record import Record
from argosy.workload.record_sync import without_shown_operations
from argosy.workload.scale_in_saves import save_before_scale_in, with_scale_in_begun
from argosy.workload.scale_request import ScaleRequest, ScaleState

DRAIN_CHECK_SECONDS = 1.0
"""Seconds between two questions to a launcher whether it has left a replica."""


class ScalePlan(Struct, frozen=True):
    record: Record
    calls: tuple[Exec, ...] = ()
    """Commands in the launcher whose answers the operation waits for."""
    requeue_at: datetime | None = None


class _Step(Struct, frozen=True):
    """What a step of the operation is decided from."""

    workload: Workload
    rule: HostList
    record: Record
    observed: Observed
    now: datetime
    operation: Operation
    request: ScaleRequest

    @property
    def indexes(self) -> IndexSet:
        return self.operation.index_set

    def names(self, indexes: IndexSet) -> list[str]:
        """Return the host names of replicas."""
        return [self.workload.hostname(self.rule.role, index) for index in indexes]

    def at(self, step: ScaleStep, message: str = "", **fields: Any) -> Record:
        """Return the record with the operation at another step, and with other fields of its role."""
        operation = self.operation.at(step, self.now, message)
        if step is ScaleStep.SUCCEEDED and not release.is_release(operation):
            fields |= declared_scale.NO_RETRY
        last = replace(self.record.role(self.rule.role), **fields)
        return self.record.with_operation(operation).with_role(self.rule.role, last)

    def fail(self, message: str) -> "ScalePlan":
        """Fail and undo: new pods are deleted, and replicas that were not removed yet are listed again."""
        undone: dict[str, Any] = {"joining": EMPTY, "draining": EMPTY}
        if not declared_scale.is_declared(self.operation):
            return ScalePlan(self.at(ScaleStep.FAILED, message, **undone))
        retry = declared_scale.after_failure(self.record.role(self.rule.role), self.now)
        message = messages.scale_retried(message, retry.seconds)
        record = self.at(ScaleStep.FAILED, message, **undone, **retry.fields)
        return ScalePlan(record, requeue_at=retry.at)

    @property
    def timeout_at(self) -> datetime | None:
        """When the current wait is over; None for never."""
        if self.request.deadline is not None:
            return self.request.deadline
        timeout = self.request.timeout
        since = self.operation.started_at if self.operation.kind == "Out" else self.operation.step_since
        return None if timeout is None or since is None else deadline(since, timeout)

    @property
    def held_until(self) -> datetime | None:
        """When the host list may be changed, if the launcher still takes up the last change."""
        held = hosts.held_until(self.record, self.rule)
        return held if held is not None and self.now < held else None

    @property
    def timed_out(self) -> bool:
        return self.timeout_at is not None and self.now >= self.timeout_at


def advance(workload: Workload, record: Record, observed: Observed, now: datetime) -> ScalePlan:
    """Return the record after the next step of the operation under way, or with the next one picked."""
    rule = workload.rules.host_list
    if rule is None:
        return ScalePlan(record)
    record = without_shown_operations(record, observed)
    operation = record.operation
    if operation is None:
        picked = _pick(workload, rule, record, observed, now)
        plan = ScalePlan(picked, requeue_at=declared_scale.retry_at(rule, picked, now))
        if len(picked.operations) < MAX_OPERATIONS:
            return plan
        # That a request shows its result does not wake the job.
        poll_at = now + timedelta(seconds=DRAIN_CHECK_SECONDS)
        return replace(plan, requeue_at=min(plan.requeue_at or poll_at, poll_at))
    request = _request(operation, record, observed)
    if request is None:
        return ScalePlan(cancel(workload, record, now, messages.SCALER_DELETED))
    if declared_scale.is_outdated(workload, rule, record, operation):
        return ScalePlan(cancel(workload, record, now, messages.REPLICAS_CHANGED), requeue_at=now)
    step = _Step(workload, rule, record, observed, now, operation, request)
    return _STEPS[operation.step](step)


def cancel(workload: Workload, record: Record, now: datetime, message: str) -> Record:
    """Return the record with the operation under way failed and undone; unchanged if there is none."""
    rule, operation = workload.rules.host_list, record.operation
    if rule is None or operation is None:
        return record
    last = replace(record.role(rule.role), joining=EMPTY, draining=EMPTY)
    failed = operation.at(ScaleStep.FAILED, now, message)
    return record.with_operation(failed).with_role(rule.role, last)


def _pick(workload: Workload, rule: HostList, record: Record, observed: Observed, now: datetime) -> Record:
    """Return the record with the next operation, with its replicas chosen or failed."""
    if record.role(rule.launcher).phase is not Phase.RUNNING or len(record.operations) >= MAX_OPERATIONS:
        return record
    record = declared_scale.without_reached(workload, rule, record)
    done = {operation.id for operation in record.operations}
    waiting = [request for request in observed.scale_requests if request.id not in done]
    if declared := declared_scale.declared_request(workload, rule, record, now):
        waiting.append(declared)
    if released := release.release_request(workload, rule, record, observed):
        waiting.append(released)
    request = min(waiting, key=lambda item: item.order, default=None)
    if request is None:
        return record
    if request is declared:
        record = declared_scale.with_declared(workload, rule, record)
    chosen = _choose(request, rule, _state(workload, rule, record, observed))
    operation = Operation(request.id, request.kind, rule.role, now, request.name, step_since=now)
    if isinstance(chosen, str):
        return record.with_operation(operation.at(ScaleStep.FAILED, now, chosen))
    if request is released:
        record = release.with_substitutes(rule, record, observed, chosen)
    operation = replace(operation, indexes=chosen.encode())
    return _with_joining(record, operation) if operation.kind == "Out" else record.with_operation(operation)


def _with_joining(record: Record, operation: Operation) -> Record:
    """Return the record with an operation that adds replicas, which get pods from now on."""
    last = replace(record.role(operation.role), joining=operation.index_set)
    adding = replace(operation, step=ScaleStep.ADDING)
    return record.with_operation(adding).with_role(operation.role, last)


def _choose(request: ScaleRequest, rule: HostList, state: ScaleState) -> IndexSet | str:
    """Return the replicas of an operation that is picked now, or why it is not possible.

    A request that shows some was picked before by another operator, or before the Record was lost, and may be
    partly executed: choosing again would scale the job twice.
    """
    if not request.shown:
        return request.select(state)
    if request.kind == "In":
        is_allowed = len(state.members - request.shown) >= rule.min_listed
    else:
        is_allowed = len(state.members | request.shown) <= (rule.max_members or MAX_INDEX)
    return request.shown if is_allowed else request.select(state)


def _state(workload: Workload, rule: HostList, record: Record, observed: Observed) -> ScaleState:
    last = record.role(rule.role)
    live = [
        pod
        for pod in current_pods(record, rule.role, observed)
        if pod.phase in ("Pending", "Running") and not pod.terminating and pod.index in last.members
    ]
    services = (service.metadata.labels for service in pod_services(workload, observed))
    named = [
        int(values[labels.INDEX])
        for values in services
        if values.get(labels.ROLE) == rule.role and values[labels.INDEX].isdecimal()
    ]
    existing = [pod.index for pod in observed.by_role.get(rule.role, ())]
    return ScaleState(
        members=last.members,
        live=IndexSet.of(pod.index for pod in live),
        unavailable=IndexSet.of((*named, *existing)) | last.retired,
        deletion_costs={pod.index: pod.deletion_cost for pod in live if pod.deletion_cost},
    )


def _request(operation: Operation, record: Record, observed: Observed) -> ScaleRequest | None:
    """Return the request of the operation under way; None if its object was deleted."""
    if release.is_release(operation):
        return release.request_of(operation, record)
    if declared_scale.is_declared(operation):
        return declared_scale.request_of(operation)
    return next((item for item in observed.scale_requests if item.id == operation.id), None)


def _start(step: _Step) -> ScalePlan:
    """Wait until the request shows the chosen replicas, then begin to remove them."""
    if step.operation.kind == "Out":  # recorded by an earlier version of the operator
        return ScalePlan(_with_joining(step.record, step.operation))
    if step.request.shown != step.indexes:
        return ScalePlan(step.record)
    if saving := _save_first(step):
        return saving
    if step.request.script:
        begun = with_scale_in_begun(step.at(ScaleStep.RUNNING_SCRIPT), step.operation, step.now)
        return ScalePlan(begun, requeue_at=step.now)
    if not _may_unlist(step):
        if step.timed_out and not release.is_announced(step.operation, step.record):
            return step.fail(messages.NO_HOST_LEFT)
        times = (step.request.min_hosts_until, step.timeout_at)
        return ScalePlan(
            step.record, requeue_at=min((at for at in times if at and at > step.now), default=None)
        )
    is_late = step.request.urgent and step.timed_out
    if (held_until := step.held_until) and not is_late:
        return ScalePlan(step.record, requeue_at=held_until)
    draining = _host_updated(step, ScaleStep.DRAINING, draining=step.indexes)
    return ScalePlan(with_scale_in_begun(draining, step.operation, step.now), requeue_at=step.now)


def _save_first(step: _Step) -> ScalePlan | None:
    """Return the plan of an operation that waits for a checkpoint. Urgent ones have waited as notices."""
    if step.request.urgent:
        return None
    times = (step.now, step.timeout_at)
    saving = save_before_scale_in(step.workload, step.record, step.observed, step.operation, *times)
    return ScalePlan(saving, requeue_at=saving.order.by) if saving and saving.order else None


def _may_unlist(step: _Step) -> bool:
    """Return True if enough hosts stay in the list: one at least, for an urgent request first the minimum.

    Fewer hosts would end the training, so that it is waited for others to be listed. Replicas that are gone
    already are not waited for.
    """
    listed = step.record.role(step.rule.role).listed
    left = len(listed - step.indexes)
    until = step.request.min_hosts_until
    least = step.rule.min_listed if until is not None and step.now < until else 1
    if left >= min(least, len(listed)):
        return True
    usable = usable_indexes(step.workload, step.rule, step.record, step.observed)
    return not usable & step.indexes


def _add(step: _Step) -> ScalePlan:
    """Wait until every new pod runs and can be attached."""
    rule = step.rule
    usable = usable_indexes(step.workload, rule, step.record, step.observed)
    attachable = hosts.attachable_indexes(step.workload, rule, step.record, step.observed)
    ready = usable & (attachable | step.record.role(rule.role).listed)
    if not step.indexes - ready:
        if step.request.script:
            return ScalePlan(step.at(ScaleStep.RUNNING_SCRIPT), requeue_at=step.now)
        if held_until := step.held_until:
            return ScalePlan(step.record, requeue_at=held_until)
        return _join(step)
    if step.timed_out:
        return step.fail(messages.scale_out_timeout(step.names(step.indexes - ready)))
    return ScalePlan(step.record, requeue_at=step.timeout_at)


def _join(step: _Step) -> ScalePlan:
    """Make the new replicas members, and list them."""
    last = step.record.role(step.rule.role)
    listed = last.with_listed(last.listed | step.indexes, step.now)
    record = _host_updated(
        replace(step, record=step.record.with_role(step.rule.role, listed)),
        ScaleStep.SUCCEEDED,
        members=last.members | step.indexes,
        joining=EMPTY,
        created=last.created | step.indexes,
    )
    return ScalePlan(record)


def _host_updated(step: _Step, to: ScaleStep, **fields: Any) -> Record:
    updated = replace(step, operation=replace(step.operation, script_done=True))
    return updated.at(to, **fields)


def _run_script(step: _Step) -> ScalePlan:
    """Run the script in the launcher, again if it failed and may be repeated."""
    script, launcher = step.request.script, launcher_pod(step.record, step.rule, step.observed)
    if script is None or launcher is None:
        return _after_script(step)
    operation, rule = step.operation, step.rule
    slots = step.workload.roles[rule.role].slots or 1
    names = [f"{name}:{slots}" for name in step.names(step.indexes)]
    container, folder = rule.launcher_container, rule.launcher_folder
    call = scale_script.script_call(operation, script, launcher, container, folder, names)
    result = step.observed.exec_results.get(call.key)
    if result is None:
        return ScalePlan(step.record, (call,))
    if result.status is ExecStatus.DONE and result.exit_code == 0:
        return _after_script(step)
    until = (operation.step_since or step.now) + scale_script.unreachable_limit(script)
    if result.status in _NOT_RUN and step.now < until:
        # Without the call its answer is dropped, and the next reconcile asks again.
        return ScalePlan(step.record, requeue_at=step.now + timedelta(seconds=DRAIN_CHECK_SECONDS))
    failed_tries = operation.failed_tries + 1
    if failed_tries <= script.retries:
        again = replace(operation, failed_tries=failed_tries, step_since=step.now)
        return ScalePlan(step.record.with_operation(again), requeue_at=step.now)
    return step.fail(messages.script_failed(script.path, _describe(result)))


_NOT_RUN = (ExecStatus.NOT_REACHABLE, ExecStatus.POD_GONE)
"""The script may not have run; a launcher that is gone is not observed for long."""


def _after_script(step: _Step) -> ScalePlan:
    if step.operation.kind == "Out":
        return _join(step)
    record = _host_updated(step, ScaleStep.REMOVING, draining=step.indexes)
    return ScalePlan(_without_members(step.rule, record, step.indexes), requeue_at=step.now)


def _describe(result: ExecResult) -> str:
    if result.status is ExecStatus.DONE:
        output = (result.stderr or result.stdout).decode(errors="replace").strip()[-200:]
        return f"exit code {result.exit_code}" + (f": {output}" if output else "")
    return result.message or result.status.value


def _drain(step: _Step) -> ScalePlan:
    """Delete each replica when the launcher has left it, and all of them when time is up."""
    last = step.record.role(step.rule.role)
    left = step.indexes & last.members
    launcher = launcher_pod(step.record, step.rule, step.observed)
    if launcher is None:
        return ScalePlan(_without_members(step.rule, step.at(ScaleStep.REMOVING), left), requeue_at=step.now)
    if step.timed_out:
        timed_out = replace(step, operation=replace(step.operation, drain_timed_out=True))
        record = _without_members(step.rule, timed_out.at(ScaleStep.REMOVING), left)
        return ScalePlan(record, requeue_at=step.now)
    # Before it has read the list the launcher may leave a replica and come back.
    if until := hosts.wait_for_files_until(step.rule, step.record, step.observed, step.now):
        return ScalePlan(step.record, requeue_at=min(until, step.timeout_at or until))
    if not step.rule.drain_check:
        return ScalePlan(_without_members(step.rule, step.at(ScaleStep.REMOVING), left), requeue_at=step.now)
    names = {step.workload.hostname(step.rule.role, index): index for index in left}
    key = f"drain/{step.operation.id}"
    container, command = step.rule.launcher_container, (*step.rule.drain_check, *names)
    call = Exec(key, launcher.name, launcher.uid, container, command, read_only=True)
    result = step.observed.exec_results.get(key)
    if result is None:
        return ScalePlan(step.record, (call,), step.timeout_at)
    requeue_at = step.now + timedelta(seconds=DRAIN_CHECK_SECONDS)
    if result.status is not ExecStatus.DONE or result.exit_code != 0:
        return ScalePlan(step.record, requeue_at=requeue_at)
    attached = {names[name] for name in result.stdout.decode(errors="replace").split() if name in names}
    drained = left - IndexSet.of(attached)
    record = _without_members(step.rule, step.record, drained)
    if drained == left:
        record = replace(step, record=record).at(ScaleStep.REMOVING)
    return ScalePlan(record, requeue_at=requeue_at)


def _without_members(rule: HostList, record: Record, indexes: IndexSet) -> Record:
    last = record.role(rule.role)
    return record.with_role(rule.role, last.with_members(last.members - indexes))


def _remove(step: _Step) -> ScalePlan:
    """Wait until the pods of removed replicas are gone."""
    existing = IndexSet.of(pod.index for pod in step.observed.by_role.get(step.rule.role, ()))
    if existing & step.indexes:
        return ScalePlan(step.record)
    return ScalePlan(step.at(ScaleStep.SUCCEEDED))


_STEPS: dict[ScaleStep, Callable[[_Step], ScalePlan]] = {
    ScaleStep.PICKED: _start,
    ScaleStep.ADDING: _add,
    ScaleStep.RUNNING_SCRIPT: _run_script,
    ScaleStep.DRAINING: _drain,
    ScaleStep.REMOVING: _remove,
}
