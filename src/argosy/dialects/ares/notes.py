"""Events of an AresJob, each for a change of what its status tells, so that none repeats."""

import itertools
from collections.abc import Iterator, Mapping

from argosy.dialects.ares import environment, spec
from argosy.dialects.ares.conditions import in_words
from argosy.dialects.ares.defaults import with_defaults
from argosy.dialects.ares.profiles import roles_of
from argosy.dialects.ares.templates import containers, pod_spec
from argosy.kinds.aresjob import AresJob, AresJobSpec, RoleStatus
from argosy.workload.model import Phase, Restart, Workload
from argosy.workload.plan import DeleteJob, Emit, Plan

_MOST = 10
"""Fields of one job that are told about."""


def events(before: AresJob, after: AresJob, plan: Plan, workload: Workload | None) -> list[Emit]:
    """What happened between two statuses of a job, and what its user should know of a new definition;
    `workload` is what that asks for, if it is new and valid."""
    told = [*_phases(before, after), *_roles(before, after), *_waits(before, after)]
    if after.status.observed_generation != before.status.observed_generation:
        told += _definition(after)
    if workload is not None:
        told += itertools.islice(_overwritten(workload), _MOST)
    if any(isinstance(one, DeleteJob) for one in plan.actions):
        told.append(Emit("Normal", "SuccessfulDeleteJob", "its time to live is over"))
    return told


def _phases(before: AresJob, after: AresJob) -> Iterator[Emit]:
    old, new = before.status.phase or Phase.PENDING.value, after.status.phase
    if old == new:
        return
    failed = next((one for one in after.status.conditions if one.type == new and one.status == "True"), None)
    why = f": {failed.reason}: {failed.message}" if new == Phase.FAILED.value and failed else ""
    kind = "Warning" if new == Phase.FAILED.value else "Normal"
    yield Emit("Warning" if kind == "Warning" else "Normal", "JobPhaseTransition", f"{old} -> {new}{why}")


def _roles(before: AresJob, after: AresJob) -> Iterator[Emit]:
    last: Mapping[str, RoleStatus] = before.status.role_statuses
    for name, role in after.status.role_statuses.items():
        known = last.get(name, RoleStatus(phase=Phase.PENDING.value))
        if known.phase != role.phase:
            why = f": {role.reason}: {role.message}" if role.reason else ""
            yield Emit("Normal", "RolePhaseTransition", f"role {name}: {known.phase} -> {role.phase}{why}")
        failed = role.failed - known.failed + role.restarts - known.restarts
        if failed > 0:
            said = role.message or f"{failed} more, {role.restarts} replaced or restarted so far"
            yield Emit("Warning", "PodFailed", f"role {name}: {said}")
        if role.reason == "CreateError" and known.reason != "CreateError":
            yield Emit("Warning", "FailedCreatePod", f"role {name}: {role.message}")


def _waits(before: AresJob, after: AresJob) -> Iterator[Emit]:
    old, new = _waiting(before), _waiting(after)
    if new is not None and old != new and new[0] in ("PodNameTaken", "ServiceNameTaken"):
        yield Emit("Warning", "NameConflict", in_words(new[1]))


def _waiting(obj: AresJob) -> tuple[str, str] | None:
    waiting = obj.status.argosy.get("waiting")
    return (str(waiting.get("reason")), str(waiting.get("message"))) if isinstance(waiting, dict) else None


def _definition(obj: AresJob) -> Iterator[Emit]:
    for path in itertools.islice(spec.unknown(obj.spec), _MOST):
        yield Emit("Warning", "UnknownField", f"{path}: there is no such field; it is kept and not looked at")
    written = spec.read(obj.spec)
    if not isinstance(written, AresJobSpec):
        return
    full = with_defaults(written)
    for path, why in ignored(full):
        yield Emit("Warning", "FieldIgnored", f"{path}: {why}")
    for name, role in sorted(roles_of(full).items()):
        wanted = pod_spec(role.template).get("restartPolicy")
        policy = role.restart_policy
        given = policy if policy in (Restart.ALWAYS.value, Restart.ON_FAILURE.value) else Restart.NEVER.value
        if wanted not in (None, given):
            said = f"spec.roleSpecs.{name}.template.spec.restartPolicy: {wanted} becomes {given}"
            yield Emit("Warning", "RestartPolicyOverwritten", said)


def _overwritten(workload: Workload) -> Iterator[Emit]:
    """Variables of the user's that the framework sets to something else."""
    for name, role in workload.roles.items():
        forced = environment.inject(workload, role, 0).forced
        for number, container in enumerate(containers(role.template)):
            listed = container.get("env")
            given = (
                [one.get("name") for one in listed if isinstance(one, dict)]
                if isinstance(listed, list)
                else []
            )
            for variable in given:
                if variable in forced:
                    path = f"spec.roleSpecs.{name}.template.spec.containers[{number}].env"
                    yield Emit("Warning", "EnvOverwritten", f"{path}: {variable} is set by the framework")


def ignored(full: AresJobSpec) -> Iterator[tuple[str, str]]:
    """Valid fields that have no use in this job."""
    framework = full.framework
    if full.available_ports and full.framework_type != "bagua":
        yield "spec.availablePorts", "only Bagua shares out ports"
    files = any(role.dependence and role.dependence.mpi_host_file for role in roles_of(full).values())
    if framework and framework.mpi and not files:
        yield "spec.framework.mpi", "no role writes a host file"
    bagua = framework.bagua if framework else None
    if bagua and not bagua.enable_elastic:
        for name, value in (("minReplicas", bagua.min_replicas), ("maxReplicas", bagua.max_replicas)):
            if value is not None:
                yield f"spec.framework.bagua.{name}", "training is not elastic"
    policy = full.run_policy.scheduling_policy if full.run_policy else None
    if policy and policy.min_available is None:
        for name, given in (
            ("queue", policy.queue),
            ("minResources", policy.min_resources),
            ("priorityClass", policy.priority_class),
        ):
            if given:
                yield f"spec.runPolicy.schedulingPolicy.{name}", "there is no gang without minAvailable"
