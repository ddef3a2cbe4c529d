"""Makes the events of AresJobs: for changes of the status and for executed actions, so that none repeats.

What happens to many pods of a role in one reconcile is one event, which names the first of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice

from argosy.dialects.ares import injection, spec
from argosy.dialects.ares import reasons as ares_reasons
from argosy.dialects.ares.conditions import with_ares_field_names
from argosy.dialects.ares.defaults import with_defaults
from argosy.dialects.ares.profiles import roles_of
from argosy.dialects.ares.status import describe_failed_pod
from argosy.dialects.base import StatusChange
from argosy.dialects.templates import containers, pod_spec
from argosy.kinds.aresjob import AresJob, AresJobSpec, RoleStatus
from argosy.kinds.text import join_names
from argosy.plan.actions import ActionResult, ActionStatus, EmitEvent
from argosy.workload import reasons
from argosy.workload.model import Phase, Workload
from argosy.workload.transitions import Transitions

_REPORTED_KINDS = ("Pod", "Service", "Job")
_REPORTED_VERBS = ("Create", "Delete")
_NAME_CONFLICTS = (reasons.name_conflict("Pod"), reasons.name_conflict("Service"))
_REPORTED_HISTORY = frozenset(
    {
        reasons.DISRUPTION_NOTICE,
        reasons.RESIZED,
        reasons.CHECKPOINT_COMPLETED,
        reasons.CHECKPOINT_TIMEOUT,
        reasons.CHECKPOINT_FAILED,
        reasons.CHECKPOINT_INVALID,
    }
)
MAX_FIELD_EVENTS = 10
"""Fields of one job that get an event."""


def status_events(change: StatusChange[AresJob]) -> list[EmitEvent]:
    """Return events for what changed in the status, and for what a user should know of a new spec."""
    before, after, plan = change.before, change.after, change.plan
    emitted = [
        *_phase_events(before, after),
        *_role_events(before, after),
        *_failure_events(plan.transitions),
        *_history_events(plan.events),
        *_name_conflict_events(before, after),
        *(_stale_event(role) for role in plan.transitions.stale_roles),
        *_invalid_label_events(before, after),
    ]
    if after.status.observed_generation != before.status.observed_generation:
        emitted += _spec_events(after)
        if change.workload is not None:
            emitted += islice(_overwrite_events(change.workload), MAX_FIELD_EVENTS)
            emitted += islice(_address_list_events(change.workload), MAX_FIELD_EVENTS)
    return emitted


def action_events(obj: AresJob, results: Sequence[ActionResult]) -> list[EmitEvent]:
    """Return one event for all objects of a role, or of a reason, that were created, deleted or rejected."""
    emitted: list[EmitEvent] = []
    reported = sorted(
        (result for result in results if result.kind in _REPORTED_KINDS and result.verb in _REPORTED_VERBS),
        key=_group_key,
    )
    for (verb, kind, role, reason, failed), group in groupby(reported, _group_key):
        status = obj.status.role_statuses.get(role)
        if failed and status is not None and status.reason == ares_reasons.CREATE_ERROR:
            continue  # emitted when it was rejected first
        first, *others = group
        names = sorted((result.name for result in (first, *others)), key=_by_index)
        parts = (join_names(names), reason, first.message)
        message = ": ".join(part for part in parts if part)
        event = ares_reasons.action_executed(verb, kind, failed=failed)
        emitted.append(EmitEvent("Warning" if failed else "Normal", event, message))
    return emitted


def _group_key(result: ActionResult) -> tuple[str, str, str, str, bool]:
    failed = result.status is not ActionStatus.DONE
    return result.verb, result.kind, result.role, result.reason, failed


def _by_index(name: str) -> tuple[int, str]:
    """Return a sort key: of names that end with a number, the shorter one has the smaller number."""
    return len(name), name


def _history_events(written: Sequence[EmitEvent]) -> Iterator[EmitEvent]:
    """Yield the entries of the history that this API reports; phases and pods have events of their own."""
    for event in written:
        if event.reason in _REPORTED_HISTORY:
            yield EmitEvent(event.type, event.reason, with_ares_field_names(event.message))


def _phase_events(before: AresJob, after: AresJob) -> Iterator[EmitEvent]:
    old, new = before.status.phase or Phase.PENDING.value, after.status.phase or Phase.PENDING.value
    if old == new:
        return
    has_failed = new == Phase.FAILED.value
    conditions = (
        condition
        for condition in after.status.conditions
        if condition.type == new and condition.status == "True"
    )
    condition = next(conditions, None)
    cause = f": {condition.reason}: {condition.message}" if has_failed and condition else ""
    message = f"{old} -> {new}{cause}"
    yield EmitEvent("Warning" if has_failed else "Normal", ares_reasons.JOB_PHASE_TRANSITION, message)


def _role_events(before: AresJob, after: AresJob) -> Iterator[EmitEvent]:
    last: Mapping[str, RoleStatus] = before.status.role_statuses
    for name, role in after.status.role_statuses.items():
        old = last.get(name, RoleStatus(phase=Phase.PENDING.value))
        if old.phase != role.phase:
            cause = f": {role.reason}: {role.message}" if role.reason else ""
            yield EmitEvent(
                "Normal",
                ares_reasons.ROLE_PHASE_TRANSITION,
                f"role {name}: {old.phase} -> {role.phase}{cause}",
            )


def _failure_events(transitions: Transitions) -> Iterator[EmitEvent]:
    for role, group in groupby(transitions.failed_pods, lambda pod: pod.role):
        first, *others = group
        more = f" (and {join_names([pod.name for pod in others])})" if others else ""
        yield EmitEvent("Warning", reasons.POD_FAILED, f"role {role}: {describe_failed_pod(first)}{more}")


def _stale_event(role: str) -> EmitEvent:
    message = "existing pods keep the template that they were created from; the edit applies to new pods only"
    return EmitEvent("Warning", ares_reasons.STALE_CLUSTER_SPEC, f"role {role}: {message}")


def _invalid_label_events(before: AresJob, after: AresJob) -> Iterator[EmitEvent]:
    """Yield events about annotations that cannot be propagated as labels."""
    old, new = (str(obj.status.argosy.get("invalidLabelKeys", "")).split(",") for obj in (before, after))
    for key in new:
        if key and key not in old:
            message = f"{key}: not a valid label value; pods have it as an annotation only"
            yield EmitEvent("Warning", ares_reasons.INVALID_LABEL_VALUE, message)


def _name_conflict_events(before: AresJob, after: AresJob) -> Iterator[EmitEvent]:
    old, new = _waiting(before), _waiting(after)
    if new is not None and old != new and new[0] in _NAME_CONFLICTS:
        yield EmitEvent("Warning", ares_reasons.NAME_CONFLICT, with_ares_field_names(new[1]))


def _waiting(obj: AresJob) -> tuple[str, str] | None:
    waiting = obj.status.argosy.get("waiting")
    return (str(waiting.get("reason")), str(waiting.get("message"))) if isinstance(waiting, dict) else None


def _spec_events(obj: AresJob) -> Iterator[EmitEvent]:
    for path, hint in islice(spec.unknown(obj.spec), MAX_FIELD_EVENTS):
        yield EmitEvent(
            "Warning", ares_reasons.UNKNOWN_FIELD, f"{path}: unknown field, kept and ignored{hint}"
        )
    written = spec.read(obj.spec)
    if not isinstance(written, AresJobSpec):
        return
    full = with_defaults(written)
    for path, reason in ignored(full):
        yield EmitEvent("Warning", ares_reasons.FIELD_IGNORED, f"{path}: {reason}")


def _overwrite_events(workload: Workload) -> Iterator[EmitEvent]:
    """Yield events about values of the template that the operator or the framework overwrites."""
    for name, role in workload.roles.items():
        path = f"{workload.semantics.roles_path}.{name}.template.spec"
        policy = pod_spec(role.template).get("restartPolicy")
        if policy not in (None, role.container_restart_policy.value):
            message = f"{path}.restartPolicy: {policy} becomes {role.container_restart_policy.value}"
            yield EmitEvent("Warning", ares_reasons.RESTART_POLICY_OVERWRITTEN, message)
        injected = injection.inject(workload, role, 0)
        for number, container in enumerate(containers(role.template)):
            if injected.env_container not in ("", container.get("name")):
                continue
            listed = container.get("env")
            variables = (
                [entry.get("name") for entry in listed if isinstance(entry, dict)]
                if isinstance(listed, list)
                else []
            )
            for variable in variables:
                if variable in injected.override_env:
                    message = f"{path}.containers[{number}].env: {variable} is set by the framework"
                    yield EmitEvent("Warning", ares_reasons.ENV_OVERWRITTEN, message)


def _address_list_events(workload: Workload) -> Iterator[EmitEvent]:
    """Yield events about variables with lists of addresses that are not set because they are too long."""
    for name in injection.roles_without_address_list(workload):
        missing, service = " and ".join(injection.list_variables(name)), workload.service_address(name)
        message = f"{workload.roles[name].replicas} addresses do not fit into an environment variable"
        instead = f"pods start without {missing}; resolve {service} instead"
        yield EmitEvent("Warning", ares_reasons.ADDRESS_LIST_TOO_LONG, f"role {name}: {message}; {instead}")


def ignored(full: AresJobSpec) -> Iterator[tuple[str, str]]:
    """Yield the paths of valid fields that this job ignores, with the reason."""
    framework = full.framework
    if full.available_ports and full.framework_type != "bagua":
        yield "spec.availablePorts", "only Bagua shares out ports"
    files = any(role.dependence and role.dependence.mpi_host_file for role in roles_of(full).values())
    mpi = framework.mpi if framework else None
    if mpi and mpi.ssh_keys and full.framework_type != "mpi":
        yield "spec.framework.mpi.sshKeys", "only jobs of type mpi have keys"
    elif mpi and not mpi.ssh_keys and not files:
        yield "spec.framework.mpi", "no role writes a host file"
    bagua = framework.bagua if framework else None
    if bagua and not bagua.enable_elastic:
        for name, value in (("minReplicas", bagua.min_replicas), ("maxReplicas", bagua.max_replicas)):
            if value is not None:
                yield f"spec.framework.bagua.{name}", "training is not elastic"
    is_elastic = any(role.elastic for role in roles_of(full).values())
    if full.run_policy and full.run_policy.below_min_timeout and not is_elastic:
        yield "spec.runPolicy.belowMinTimeout", "no role is elastic"
    policy = full.run_policy.scheduling_policy if full.run_policy else None
    if policy and policy.min_available is None:
        for name, setting in (
            ("queue", policy.queue),
            ("minResources", policy.min_resources),
            ("priorityClass", policy.priority_class),
        ):
            if setting:
                yield f"spec.runPolicy.schedulingPolicy.{name}", "there is no gang without minAvailable"
