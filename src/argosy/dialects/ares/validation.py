"""Finds everything that makes an AresJob invalid, with the path of each field, in a fixed order."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from argosy.dialects.ares import elastic_validation
from argosy.dialects.ares.elastic_validation import bagua_sizes
from argosy.dialects.ares.profiles import (
    LAUNCHER,
    LEADWORKER,
    PROFILES,
    SCHEDULER,
    WORKER,
    Profile,
    is_elastic_bagua,
    profile_of,
    roles_of,
    services_of,
)
from argosy.dialects.checkpoints import spec_problems
from argosy.dialects.templates import container_named, containers, init_containers, port_numbers
from argosy.kinds import labels
from argosy.kinds.aresjob import AresJobSpec, RoleSpec, RunPolicySpec
from argosy.kinds.dns_names import dns_label_error, service_name_error
from argosy.kinds.template import template_errors
from argosy.kinds.text import did_you_mean, join_names, pluralize, quote_value, truncate
from argosy.workload import dependencies
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
_QUANTIFIERS = tuple(quantifier.value for quantifier in Quantifier)
_RESTARTS = tuple(policy.value for policy in RestartPolicy)
_PHASES = tuple(phase.value for phase in Phase if phase not in (Phase.RESTARTING, Phase.SUSPENDED))
_CLEANUPS = (*(policy.value for policy in CleanupPolicy), "")


def problems(name: str, spec: AresJobSpec) -> list[Problem]:
    """Return what is wrong with a job of this name; `spec` has its defaults."""
    profile = profile_of(spec)
    if profile is None:
        names = ", ".join(sorted(PROFILES))
        name = spec.framework_type or ""
        hint = did_you_mean(name, PROFILES)
        error = f"unknown framework: {name or quote_value(name)}{hint} (known frameworks: {names})"
        return [Problem("spec.frameworkType", error)]
    if not spec.role_specs:
        return [Problem("spec.roleSpecs", "must have at least one role")]
    return [
        *_role_problems(name, spec, profile),
        *_dependency_problems(spec),
        *_framework_problems(spec, profile),
        *elastic_validation.problems(spec, profile),
        *_job_policy_problems(spec),
        *_run_policy_problems(spec),
        *spec_problems(spec.checkpoint),
    ]


def _role_problems(job: str, spec: AresJobSpec, profile: Profile) -> Iterator[Problem]:
    served = services_of(spec, profile)
    for name in sorted(spec.role_specs or {}):
        path, role = f"spec.roleSpecs.{name}", (spec.role_specs or {})[name]
        if not _ROLE.fullmatch(name):
            error = (
                "must consist of lower case letters, digits or '-', and start and end with a letter or digit"
            )
            yield Problem(path, f"{name!r}: {error}")
        if role is None:
            yield Problem(path, "must not be null; define the role or remove its name")
            continue
        yield from _problems_of_role(job, name, role, path)
        wanted = profile.container if profile.container_required and name in served else ""
        if wanted and containers(role.template) and container_named(role.template, wanted) is None:
            error = f"framework {spec.framework_type} requires a container {wanted!r}"
            yield Problem(f"{path}.template.spec.containers", error)
        if name in served and _ROLE.fullmatch(name) and (error := service_name_error(f"{job}-{name}") or ""):
            yield Problem("metadata.name", f"the name of the service of role {truncate(name)}, {error}")


def _problems_of_role(job: str, name: str, role: RoleSpec, path: str) -> Iterator[Problem]:
    replicas = role.replicas or 0
    if not 0 < replicas <= MAX_PODS:
        yield Problem(f"{path}.replicas", f"invalid value {replicas}: must be from 1 to {MAX_PODS}")
    elif _ROLE.fullmatch(name) and (error := dns_label_error(f"{job}-{name}-{_highest(role)}") or ""):
        yield Problem("metadata.name", f"the name of its last pod of role {truncate(name)}, {error}")
    yield from _one_of(role.restart_policy, _RESTARTS, f"{path}.restartPolicy")
    if role.controller not in (None, "", "Pod"):
        yield Problem(f"{path}.controller", f"controller {role.controller} is not supported; must be Pod")
    policy = role.role_phase_policy
    if policy is not None:
        yield from _one_of(policy.failed, _QUANTIFIERS, f"{path}.rolePhasePolicy.failed")
        yield from _one_of(policy.succeeded, _QUANTIFIERS, f"{path}.rolePhasePolicy.succeeded")
    yield from _template_problems(role, path)


def _highest(role: RoleSpec) -> int:
    """Return the highest index that a pod of the role may have."""
    return max(role.replicas or 0, role.elastic.max if role.elastic else 0) - 1


def _template_problems(role: RoleSpec, path: str) -> Iterator[Problem]:
    if not containers(role.template):
        yield Problem(f"{path}.template.spec.containers", "must have at least one container")
    yield from (Problem(*problem) for problem in template_errors(role.template or {}, f"{path}.template"))
    names = [container.get("name") for container in init_containers(role.template)]
    if role.dependence is not None and labels.INITIALIZER_CONTAINER in names:
        name = labels.INITIALIZER_CONTAINER
        error = f"invalid value {name!r}: reserved for the container that waits for other roles"
        yield Problem(f"{path}.template.spec.initContainers[{names.index(name)}].name", error)


def _dependency_problems(spec: AresJobSpec) -> Iterator[Problem]:
    wants: dict[str, tuple[Dependency, ...]] = {}
    for name, role in sorted(roles_of(spec).items()):
        wants[name] = ()
        path, dependence = f"spec.roleSpecs.{name}.dependence", role.dependence
        if dependence is None:
            continue
        if not dependence.role_names and not dependence.mpi_host_file:
            yield Problem(f"{path}.roleNames", "must name a role to wait for, unless mpiHostFile is set")
        yield from _one_of(dependence.role_phase, _PHASES, f"{path}.rolePhase")
        wants[name] = tuple(Dependency(other) for other in dependence.role_names or ())
        for part in dependence.mpi_host_file.split(",") if dependence.mpi_host_file else ():
            if error := _file_path_error(part):
                yield Problem(f"{path}.mpiHostFile", f"{part!r} {error}")
    for problem in dependencies.problems(wants, "spec.roleSpecs"):
        yield Problem(problem.path.replace(".dependsOn", ".dependence.roleNames"), problem.message)


def _file_path_error(path: str) -> str:
    whole = PurePosixPath(path)
    if not path.startswith("/") or ".." in whole.parts or path.endswith("/"):
        return "is not the absolute path of a file"
    return "has no folder of its own, which a volume needs" if str(whole.parent) == "/" else ""


def _framework_problems(spec: AresJobSpec, profile: Profile) -> Iterator[Problem]:
    """Return what the framework requires and the job lacks."""
    present = roles_of(spec)
    framework = spec.framework_type
    for name in profile.required:
        if name not in (spec.role_specs or {}):
            yield Problem("spec.roleSpecs", f"framework {framework} requires a role {name!r}")
    if profile.one_of and not any(name in present for name in profile.one_of):
        yield Problem(
            "spec.roleSpecs", f"framework {framework} requires a role {' or '.join(profile.one_of)}"
        )
    for name in profile.single:
        if name in present and (present[name].replicas or 0) > 1:
            error = f"invalid value {present[name].replicas}: must be 1 for role {name}"
            yield Problem(f"spec.roleSpecs.{name}.replicas", error)
    if framework == "dask":
        yield from _dask_problems(present, profile)
    if framework == "bagua":
        yield from _bagua_problems(spec)
    yield from _mpi_problems(spec)


def _dask_problems(present: Mapping[str, RoleSpec], profile: Profile) -> Iterator[Problem]:
    if WORKER in present and LEADWORKER not in present:
        yield Problem(
            "spec.roleSpecs", "framework dask requires a role 'leadworker' if there is a role 'worker'"
        )
    for name, least, most in ((SCHEDULER, 2, 2), (LEADWORKER, 1, 1), (LAUNCHER, 1, None)):
        if name not in present:
            continue
        ports = port_numbers(container_named(present[name].template, profile.container) or {})
        if len(ports) < least or (most and len(ports) > most):
            many = pluralize(least, "port") if most else "a port"
            path = f"spec.roleSpecs.{name}.template.spec.containers"
            yield Problem(path, f"container 'dask' of {name} must have {many}; it has {len(ports)}")


def _bagua_problems(spec: AresJobSpec) -> Iterator[Problem]:
    ports, worker = spec.available_ports or [], roles_of(spec).get(WORKER)
    workers = (worker.replicas or 0) if worker else 0
    needed = 2 + workers if is_elastic_bagua(spec) else 2
    if wrong := [port for port in ports if not 1 <= port <= 65535]:
        yield Problem("spec.availablePorts", f"invalid value {wrong[0]}: must be between 1 and 65535")
    if len(set(ports)) != len(ports):
        yield Problem("spec.availablePorts", "must not contain a port twice")
    if len(ports) < needed:
        yield Problem("spec.availablePorts", f"must have at least {needed} ports; has {len(ports)}")
    bagua = spec.framework.bagua if spec.framework else None
    if bagua is None or not bagua.enable_elastic or not workers:
        return
    least, most = bagua_sizes(bagua, workers, worker.elastic if worker else None)
    if not 1 <= least <= workers <= most:
        pods = pluralize(workers, "worker")
        error = f"1 ≤ minReplicas {least} ≤ {pods} ≤ maxReplicas {most} must hold"
        yield Problem("spec.framework.bagua", error)


def _mpi_problems(spec: AresJobSpec) -> Iterator[Problem]:
    mpi = spec.framework.mpi if spec.framework else None
    if mpi is None:
        return
    if mpi.replicas_per_node is not None and mpi.replicas_per_node < 1:
        error = f"invalid value {mpi.replicas_per_node}: must be at least 1"
        yield Problem("spec.framework.mpi.replicasPerNode", error)
    if mpi.implementation not in (None, "ompi", "mpich"):
        error = f"unsupported mpi implementation {mpi.implementation!r}; must be ompi or mpich"
        yield Problem("spec.framework.mpi.implementation", error)


def _job_policy_problems(spec: AresJobSpec) -> Iterator[Problem]:
    policy = spec.job_phase_policy
    for word in ("failed", "succeeded"):
        lists: Sequence[Sequence[str]] = getattr(policy, word, None) or []
        if any(not names for names in lists):
            yield Problem(
                f"spec.jobPhasePolicy.{word}",
                "must not contain an empty list, which would be fulfilled at once",
            )
        absent = sorted({name for names in lists for name in names} - set(spec.role_specs or {}))
        if absent:
            known_names = ", ".join(sorted(spec.role_specs or {}))
            yield Problem(
                f"spec.jobPhasePolicy.{word}",
                f"unknown role {join_names(absent)} (known roles: {known_names})",
            )
    if spec.ttl_seconds_after_failed is not None and spec.ttl_seconds_after_failed < 0:
        yield _negative("spec.ttlSecondsAfterFailed", spec.ttl_seconds_after_failed)


def _run_policy_problems(spec: AresJobSpec) -> Iterator[Problem]:
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
        error = f"invalid value Job: not supported while role {always[0]} has restartPolicy Always"
        yield Problem(f"{path}.restartScope", error)
    least = run.scheduling_policy.min_available if run.scheduling_policy else None
    sizes = [max(role.replicas or 0, 0) for role in roles_of(spec).values()]
    total = sum(sizes)
    if max(sizes, default=0) <= MAX_PODS < total:
        error = f"invalid value: {total} pods in total; must be at most {MAX_PODS}"
        yield Problem("spec.roleSpecs", error)
    if least is not None and not 0 <= least <= total:
        error = f"invalid value {least}: must be between 0 and {total}, the number of all pods"
        yield Problem(f"{path}.schedulingPolicy.minAvailable", error)


def _one_of(value: str | None, choice: Sequence[str], path: str) -> Iterator[Problem]:
    if value and value not in choice:
        yield Problem(path, f"invalid value {value!r}: must be {' or '.join(choice)}")


def _negative(path: str, number: int) -> Problem:
    return Problem(path, f"invalid value {number}: must be at least 0")
