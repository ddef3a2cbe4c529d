"""Finds what is wrong with the `elastic` of an AresJob's roles.

Whether a role may have it depends on the framework, as in TrainingRuns. A role that could never change its
size, because lost pods are not replaced one by one, is rejected too: the field would promise what does not
happen.
"""

from collections.abc import Iterator

from argosy.dialects.ares.profiles import MASTER, WORKER, Profile, has_elastic_workers, roles_of
from argosy.kinds.aresjob import AresJobSpec, BaguaSpec, RoleSpec, RunPolicySpec
from argosy.kinds.elastic_spec import ElasticSpec
from argosy.kinds.text import join_names
from argosy.workload import elastic
from argosy.workload.model import Problem, RestartPolicy, RestartScope

_REPLACING = " or ".join(policy.value for policy in RestartPolicy if policy is not RestartPolicy.NEVER)


def problems(spec: AresJobSpec, profile: Profile) -> Iterator[Problem]:
    """Yield the problems of all elastic roles; `spec` has its defaults."""
    for name, role in sorted(roles_of(spec).items()):
        if role.elastic is None:
            continue
        path = f"spec.roleSpecs.{name}"
        if reason := _not_supported(spec, profile, name):
            yield Problem(f"{path}.elastic", f"not supported {reason}")
            continue
        yield from elastic.problems(path, role.replicas or 0, elastic.bounds(role.elastic))
        yield from _replacement_problems(spec, role, path)
    if spec.framework_type == "pytorch" and has_elastic_workers(spec) and MASTER in roles_of(spec):
        error = "not supported with elastic workers: one of them is rank 0"
        yield Problem(f"spec.roleSpecs.{MASTER}", error)
    if spec.framework_type == "bagua":
        yield from _bagua_problems(spec)


def _not_supported(spec: AresJobSpec, profile: Profile, role: str) -> str:
    """Return why the framework does not support an elastic role of this name; empty if it does."""
    allowed, framework = profile.elastic_roles, spec.framework_type
    if allowed is None or role in allowed:
        return ""
    if allowed:
        return f"for role {role} of framework {framework}; only {join_names(allowed)} may be elastic"
    if profile.elastic_option:
        return f"with framework {framework} unless spec.{profile.elastic_option} is true"
    return f"with framework {framework}, whose number of pods is fixed while it runs"


def _replacement_problems(spec: AresJobSpec, role: RoleSpec, path: str) -> Iterator[Problem]:
    run = spec.run_policy or RunPolicySpec()
    if role.restart_policy == RestartPolicy.NEVER:
        error = f"with which lost pods are not replaced; must be {_REPLACING}"
        yield Problem(f"{path}.elastic", f"not supported with restartPolicy Never, {error}")
    if run.restart_scope == RestartScope.JOB:
        error = "not supported with spec.runPolicy.restartScope Job, which replaces all pods when one is lost"
        yield Problem(f"{path}.elastic", error)


def _bagua_problems(spec: AresJobSpec) -> Iterator[Problem]:
    """Yield a problem if the role may have a size with which Bagua does not train."""
    worker, bagua = roles_of(spec).get(WORKER), spec.framework.bagua if spec.framework else None
    if worker is None or worker.elastic is None or bagua is None or not bagua.enable_elastic:
        return
    bounds, path = worker.elastic, f"spec.roleSpecs.{WORKER}.elastic"
    least, most = bagua_sizes(bagua, worker.replicas or 1, bounds)
    if bounds.min < least:
        yield Problem(path, f"min {bounds.min} is less than spec.framework.bagua.minReplicas {least}")
    if bounds.max > most:
        yield Problem(path, f"max {bounds.max} is greater than spec.framework.bagua.maxReplicas {most}")


def bagua_sizes(bagua: BaguaSpec | None, workers: int, bounds: ElasticSpec | None) -> tuple[int, int]:
    """Return the sizes between which Bagua trains: its own fields, else those of the role, else the number of
    workers."""
    least, most = (bagua.min_replicas, bagua.max_replicas) if bagua else (None, None)
    if least is None:
        least = bounds.min if bounds else workers
    if most is None:
        most = bounds.max if bounds else workers
    return least, most
