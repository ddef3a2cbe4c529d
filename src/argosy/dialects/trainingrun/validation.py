"""Finds what is wrong with a TrainingRun beyond what its CRD rejects already."""

from argosy.dialects.checkpoints import checkpoint_problems
from argosy.kinds.dns_names import dns_label_error, service_name_error
from argosy.kinds.template import template_errors
from argosy.kinds.text import join_names, pluralize
from argosy.kinds.trainingrun import TrainingRun
from argosy.workload import dependencies, elastic
from argosy.workload.model import MAX_PODS, Escalation, Problem, RestartScope, Role, Workload


def role_problems(workload: Workload) -> list[Problem]:
    """Return what is wrong with roles, each by itself and in their dependencies."""
    problems = [
        problem
        for name, role in workload.roles.items()
        for problem in _problems_of_role(workload, name, role)
    ]
    wants = {name: role.depends_on or () for name, role in workload.roles.items()}
    return problems + dependencies.problems(wants, "spec.roles")


def _problems_of_role(workload: Workload, name: str, role: Role) -> list[Problem]:
    path = f"spec.roles.{name}"
    largest = max(role.replicas, role.elastic.max if role.elastic else 0)
    problems: list[Problem] = []
    if error := dns_label_error(name):
        problems.append(Problem(path, f"the role's name {error}"))
    elif error := dns_label_error(workload.hostname(name, largest - 1)):
        problems.append(Problem("metadata.name", f"the name of its last pod of role {name}, {error}"))
    elif error := service_name_error(workload.service(name)):
        problems.append(Problem("metadata.name", f"the name of its service, {error}"))
    if not _containers(role):
        problems.append(Problem(f"{path}.template.spec.containers", "must have at least one container"))
    problems += [Problem(*misfit) for misfit in template_errors(role.template, f"{path}.template")]
    return problems + elastic.problems(path, role.replicas, role.elastic)


def scope_problems(run: TrainingRun) -> list[Problem]:
    """Return a problem if two fields that exclude each other are both set."""
    if run.spec.restart_scope is None or run.spec.limits.escalation is None:
        return []
    return [
        Problem("spec.limits.escalation", "not supported together with spec.restartScope; remove one of them")
    ]


def job_problems(workload: Workload) -> list[Problem]:
    """Return what is wrong with the job as a whole, once its framework's rules are known."""
    problems: list[Problem] = []
    lists = {"failed": workload.rules.failed_when, "succeeded": workload.rules.succeeded_when}
    for word, alternatives in lists.items():
        unknown = sorted({name for names in alternatives for name in names} - set(workload.roles))
        if unknown:
            role_names = ", ".join(sorted(workload.roles))
            error = f"unknown role {join_names(unknown)} (known roles: {role_names})"
            problems.append(Problem(f"spec.jobPolicy.{word}", error))
    if workload.total_pods > MAX_PODS:
        error = f"invalid value: {workload.total_pods} pods in total; must be at most {MAX_PODS}"
        problems.append(Problem("spec.roles", error))
    if workload.limits.escalation != Escalation() and workload.rules.restart_scope is not RestartScope.POD:
        scope = workload.rules.restart_scope.value.lower()
        error = f"not supported with framework {workload.framework}"
        why = f"which already restarts the whole {scope} when a pod is lost"
        problems.append(Problem("spec.limits.escalation", f"{error}, {why}"))
    problems += checkpoint_problems(workload)
    if workload.gang and workload.gang.min_available > workload.total_pods:
        pods = pluralize(workload.total_pods, "pod")
        error = f"invalid value {workload.gang.min_available}: the job has only {pods}"
        problems.append(Problem("spec.gang.minAvailable", error))
    return problems


def _containers(role: Role) -> bool:
    spec = role.template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(containers, list) and bool(containers)
