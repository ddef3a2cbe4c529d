"""Everything that makes a job invalid, with the path of each field, in a fixed order."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from argosy.dialects.ares.profiles import (
    LAUNCHER,
    LEADWORKER,
    PROFILES,
    SCHEDULER,
    WORKER,
    Profile,
    elastic,
    profile_of,
    roles_of,
    services_of,
)
from argosy.dialects.ares.templates import container_named, containers, init_containers, port_numbers
from argosy.kinds import labels
from argosy.kinds.aresjob import AresJobSpec, RoleSpec, RunPolicySpec
from argosy.kinds.dns_names import dns_label_error, service_name_error
from argosy.kinds.messages import did_you_mean, quote_value, truncate
from argosy.kinds.template import template_errors
from argosy.workload import dependencies, messages
from argosy.workload.model import (
    MAX_PODS,
    CleanupPolicy,
    Dependency,
    Phase,
    Problem,
    Quantifier,
    RestartPolicy,
)

_ROLE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUORUMS = tuple(one.value for one in Quantifier)
_RESTARTS = tuple(one.value for one in RestartPolicy)
_PHASES = tuple(one.value for one in Phase if one not in (Phase.RESTARTING, Phase.SUSPENDED))
_CLEANUPS = (*(one.value for one in CleanupPolicy), "")


def problems(name: str, spec: AresJobSpec) -> list[Problem]:
    """What is wrong with a job of this name, whose defaults are filled in."""
    profile = profile_of(spec)
    if profile is None:
        known = ", ".join(sorted(PROFILES))
        given = spec.framework_type or ""
        hint = did_you_mean(given, PROFILES)
        said = f"unknown framework: {given or quote_value(given)}{hint} (known frameworks: {known})"
        return [Problem("spec.frameworkType", said)]
    if not spec.role_specs:
        return [Problem("spec.roleSpecs", "there must be at least one role")]
    found = list(_roles(name, spec, profile))
    found += _waits(spec)
    found += _asked_for(spec, profile)
    found += _job(spec)
    found += _run(spec)
    return found


def _roles(job: str, spec: AresJobSpec, profile: Profile) -> Iterator[Problem]:
    served = services_of(spec, profile)
    for name in sorted(spec.role_specs or {}):
        path, role = f"spec.roleSpecs.{name}", (spec.role_specs or {})[name]
        if not _ROLE.fullmatch(name):
            said = "the name of a role has lower-case letters, digits and '-', none of these at its ends"
            yield Problem(path, f"{name!r}: {said}")
        if role is None:
            yield Problem(path, "is null; write the role or take its name away")
            continue
        yield from _role(job, name, role, path)
        wanted = profile.container if profile.container_required and name in served else ""
        if wanted and containers(role.template) and container_named(role.template, wanted) is None:
            said = f"there must be a container {wanted!r} for {spec.framework_type}"
            yield Problem(f"{path}.template.spec.containers", said)
        if name in served and _ROLE.fullmatch(name) and (said := service_name_error(f"{job}-{name}") or ""):
            yield Problem("metadata.name", f"the name of the service of role {truncate(name)}, {said}")


def _role(job: str, name: str, role: RoleSpec, path: str) -> Iterator[Problem]:
    replicas = role.replicas or 0
    if not 0 < replicas <= MAX_PODS:
        yield Problem(f"{path}.replicas", f"invalid value {replicas}: must be from 1 to {MAX_PODS}")
    elif _ROLE.fullmatch(name) and (said := dns_label_error(f"{job}-{name}-{replicas - 1}") or ""):
        yield Problem("metadata.name", f"the name of its last pod of role {truncate(name)}, {said}")
    yield from _one_of(role.restart_policy, _RESTARTS, f"{path}.restartPolicy")
    if role.controller not in (None, "", "Pod"):
        yield Problem(f"{path}.controller", f"controller {role.controller} is not supported; write Pod")
    policy = role.role_phase_policy
    if policy is not None:
        yield from _one_of(policy.failed, _QUORUMS, f"{path}.rolePhasePolicy.failed")
        yield from _one_of(policy.succeeded, _QUORUMS, f"{path}.rolePhasePolicy.succeeded")
    yield from _template(role, path)


def _template(role: RoleSpec, path: str) -> Iterator[Problem]:
    if not containers(role.template):
        yield Problem(f"{path}.template.spec.containers", "there must be at least one container")
    yield from (Problem(*misfit) for misfit in template_errors(role.template or {}, f"{path}.template"))
    names = [one.get("name") for one in init_containers(role.template)]
    if role.dependence is not None and labels.INITIALIZER_CONTAINER in names:
        name = labels.INITIALIZER_CONTAINER
        said = f"{name!r} is the name of the container that waits for other roles; take another"
        yield Problem(f"{path}.template.spec.initContainers[{names.index(name)}].name", said)


def _waits(spec: AresJobSpec) -> Iterator[Problem]:
    wants: dict[str, tuple[Dependency, ...]] = {}
    for name, role in sorted(roles_of(spec).items()):
        wants[name] = ()
        path, dependence = f"spec.roleSpecs.{name}.dependence", role.dependence
        if dependence is None:
            continue
        if not dependence.role_names and not dependence.mpi_host_file:
            yield Problem(f"{path}.roleNames", "there must be a role to wait for, or an mpiHostFile to write")
        yield from _one_of(dependence.role_phase, _PHASES, f"{path}.rolePhase")
        wants[name] = tuple(Dependency(other) for other in dependence.role_names or ())
        for part in dependence.mpi_host_file.split(",") if dependence.mpi_host_file else ():
            if said := _not_a_file(part):
                yield Problem(f"{path}.mpiHostFile", f"{part!r} {said}")
    for one in dependencies.problems(wants, "spec.roleSpecs"):
        yield Problem(one.path.replace(".dependsOn", ".dependence.roleNames"), one.message)


def _not_a_file(path: str) -> str:
    whole = PurePosixPath(path)
    if not path.startswith("/") or ".." in whole.parts or path.endswith("/"):
        return "is not the absolute path of a file"
    return "has no folder of its own, which a volume needs" if str(whole.parent) == "/" else ""


def _asked_for(spec: AresJobSpec, profile: Profile) -> Iterator[Problem]:
    """What the framework needs."""
    present = roles_of(spec)
    framework = spec.framework_type
    for name in profile.required:
        if name not in (spec.role_specs or {}):
            yield Problem("spec.roleSpecs", f"framework {framework} needs a role {name!r}")
    if profile.one_of and not any(name in present for name in profile.one_of):
        yield Problem("spec.roleSpecs", f"framework {framework} needs a role {' or '.join(profile.one_of)}")
    for name in profile.single:
        if name in present and (present[name].replicas or 0) > 1:
            said = f"there is one {name}, not {present[name].replicas}; write 1"
            yield Problem(f"spec.roleSpecs.{name}.replicas", said)
    if framework == "dask":
        yield from _dask(present, profile)
    if framework == "bagua":
        yield from _bagua(spec)
    yield from _mpi(spec)


def _dask(present: Mapping[str, RoleSpec], profile: Profile) -> Iterator[Problem]:
    if WORKER in present and LEADWORKER not in present:
        yield Problem("spec.roleSpecs", "framework dask needs a role 'leadworker' beside 'worker'")
    for name, least, most in ((SCHEDULER, 2, 2), (LEADWORKER, 1, 1), (LAUNCHER, 1, None)):
        if name not in present:
            continue
        ports = port_numbers(container_named(present[name].template, profile.container) or {})
        if len(ports) < least or (most and len(ports) > most):
            many = messages.many(least, "port") if most else "a port"
            path = f"spec.roleSpecs.{name}.template.spec.containers"
            yield Problem(path, f"container 'dask' of {name} must have {many}; it has {len(ports)}")


def _bagua(spec: AresJobSpec) -> Iterator[Problem]:
    ports, worker = spec.available_ports or [], roles_of(spec).get(WORKER)
    workers = (worker.replicas or 0) if worker else 0
    needed = 2 + workers if elastic(spec) else 2
    if wrong := [port for port in ports if not 1 <= port <= 65535]:
        yield Problem("spec.availablePorts", f"{wrong[0]} is no port; must be from 1 to 65535")
    if len(set(ports)) != len(ports):
        yield Problem("spec.availablePorts", "a port is named twice")
    if len(ports) < needed:
        yield Problem("spec.availablePorts", f"there must be at least {needed} ports; there are {len(ports)}")
    bagua = spec.framework.bagua if spec.framework else None
    if bagua is None or not bagua.enable_elastic or not workers:
        return
    least = workers if bagua.min_replicas is None else bagua.min_replicas
    most = workers if bagua.max_replicas is None else bagua.max_replicas
    if not 1 <= least <= workers <= most:
        said = f"1 ≤ minReplicas {least} ≤ {messages.many(workers, 'worker')} ≤ maxReplicas {most} must hold"
        yield Problem("spec.framework.bagua", said)


def _mpi(spec: AresJobSpec) -> Iterator[Problem]:
    mpi = spec.framework.mpi if spec.framework else None
    if mpi is None:
        return
    if mpi.replicas_per_node is not None and mpi.replicas_per_node < 1:
        said = f"invalid value {mpi.replicas_per_node}: must be at least 1"
        yield Problem("spec.framework.mpi.replicasPerNode", said)
    if mpi.implementation not in (None, "ompi", "mpich"):
        said = f"unsupported mpi implementation {mpi.implementation!r}; write ompi or mpich"
        yield Problem("spec.framework.mpi.implementation", said)


def _job(spec: AresJobSpec) -> Iterator[Problem]:
    policy = spec.job_phase_policy
    for word in ("failed", "succeeded"):
        lists: Sequence[Sequence[str]] = getattr(policy, word, None) or []
        if any(not names for names in lists):
            yield Problem(f"spec.jobPhasePolicy.{word}", "an empty list of roles would be true at once")
        absent = sorted({name for names in lists for name in names} - set(spec.role_specs or {}))
        if absent:
            yield Problem(f"spec.jobPhasePolicy.{word}", f"there is no role {messages.listed(absent)}")
    if spec.ttl_seconds_after_failed is not None and spec.ttl_seconds_after_failed < 0:
        yield _negative("spec.ttlSecondsAfterFailed", spec.ttl_seconds_after_failed)


def _run(spec: AresJobSpec) -> Iterator[Problem]:
    run = spec.run_policy or RunPolicySpec()
    path = "spec.runPolicy"
    if run.clean_pod_policy is not None and run.clean_pod_policy not in _CLEANUPS:
        yield from _one_of(run.clean_pod_policy, _CLEANUPS[:-1], f"{path}.cleanPodPolicy")
    for name, number in (
        ("ttlSecondsAfterFinished", run.ttl_seconds_after_finished),
        ("activeDeadlineSeconds", run.active_deadline_seconds),
        ("backoffLimit", run.backoff_limit),
    ):
        if number is not None and number < 0:
            yield _negative(f"{path}.{name}", number)
    yield from _one_of(run.restart_scope, ("Pod", "Job"), f"{path}.restartScope")
    always = [name for name, role in sorted(roles_of(spec).items()) if role.restart_policy == "Always"]
    if run.restart_scope == "Job" and always:
        said = f"invalid value Job: not supported while role {always[0]} has restartPolicy Always"
        yield Problem(f"{path}.restartScope", said)
    least = run.scheduling_policy.min_available if run.scheduling_policy else None
    sizes = [max(role.replicas or 0, 0) for role in roles_of(spec).values()]
    total = sum(sizes)
    if max(sizes, default=0) <= MAX_PODS < total:
        said = f"{total} pods in all are not possible; must be at most {MAX_PODS}"
        yield Problem("spec.roleSpecs", said)
    if least is not None and not 0 <= least <= total:
        said = f"{least} is not from 0 to {total}, the number of all pods"
        yield Problem(f"{path}.schedulingPolicy.minAvailable", said)


def _one_of(value: str | None, choice: Sequence[str], path: str) -> Iterator[Problem]:
    if value and value not in choice:
        yield Problem(path, f"invalid value {value!r}: must be {' or '.join(choice)}")


def _negative(path: str, number: int) -> Problem:
    return Problem(path, f"invalid value {number}: must be at least 0")
