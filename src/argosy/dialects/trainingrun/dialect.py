"""Translates `TrainingRun`, Argosy's own API, into the model.

Pods are named `<run>-<role>-<index>`, with one name for all pods of a replica: so the API server itself
rejects a second pod of a replica, and `kubectl logs RUN-worker-2` is right before and after a replacement.
"""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from argosy.dialects.base import JobApi, StatusInput
from argosy.dialects.checkpoints import CHILD_KINDS, on_demand_children
from argosy.dialects.trainingrun import status
from argosy.dialects.trainingrun.validation import job_problems, role_problems, scope_problems
from argosy.frameworks.base import Framework, Injection, list_bytes
from argosy.frameworks.options import option_problems
from argosy.frameworks.registry import find_framework, installed
from argosy.kinds.quantity import parse_duration
from argosy.kinds.text import unknown_name
from argosy.kinds.trainingrun import GangSpec, LimitsSpec, RoleSpec, TrainingRun, TrainingRunSpec
from argosy.kinds.trainingrun_status import TrainingRunStatus
from argosy.workload import elastic, pod_size
from argosy.workload.checkpoint_policy import checkpoint_policy
from argosy.workload.model import (
    DEFAULT_CLUSTER_DOMAIN,
    CleanupPolicy,
    Dependency,
    Escalation,
    Gang,
    Limits,
    Phase,
    Problem,
    Problems,
    Quantifier,
    RestartPolicy,
    RestartScope,
    Role,
    RolePolicy,
    Rules,
    Ttl,
    Workload,
)

Find = Callable[[str], Framework | None]
"""Returns the adapter of a framework by name; None if it is not installed."""

_COMPACT_TEMPLATE: dict[str, object] = {"spec": {"containers": [{"name": "finished"}]}}


def training_run_api(
    find: Find = find_framework, cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
) -> JobApi[TrainingRun]:
    """Return what is registered for TrainingRuns."""

    def inject(workload: Workload, role: Role, index: int) -> Injection | None:
        framework = find(workload.framework)
        return framework.inject(workload, role, index) if framework else None

    return JobApi(
        dialect=TrainingRunDialect(find, cluster_domain),
        inject=inject,
        compact_finished=_compact_finished,
        child_kinds=CHILD_KINDS,
        on_demand_children=on_demand_children(lambda run: run.spec.checkpoint),
        empty=lambda metadata: TrainingRun(metadata, TrainingRunSpec(framework="", roles={})),
    )


class TrainingRunDialect:
    kind = TrainingRun

    def __init__(self, find: Find = find_framework, cluster_domain: str = DEFAULT_CLUSTER_DOMAIN) -> None:
        self._find = find
        self._cluster_domain = cluster_domain

    def to_workload(self, obj: TrainingRun) -> Workload | Problems:
        framework = self._find(obj.spec.framework)
        if framework is None:
            error = unknown_name("framework", obj.spec.framework, installed())
            return Problems((Problem("spec.framework", error),))
        problems = option_problems(framework.name, obj.spec.options, framework.Options, "spec.options")
        if problems:
            return Problems(tuple(problems))
        workload = framework.defaults(_from_spec(obj, self._cluster_domain))
        problems = role_problems(workload) or scope_problems(obj) or list(framework.check(workload))
        if problems:
            return Problems(tuple(problems))
        rules = _with_user_rules(framework.rules(workload), obj.spec)
        workload = replace(workload, rules=rules, gang=_gang(workload, obj.spec.gang))
        workload = pod_size.with_pod_bytes(workload, partial(list_bytes, framework))
        problems = job_problems(workload) or list(pod_size.problems(workload))
        return Problems(tuple(problems)) if problems else workload

    def to_status(self, obj: TrainingRun, view: StatusInput) -> TrainingRunStatus:
        return status.to_status(obj, view)


def _compact_finished(run: TrainingRun) -> TrainingRun:
    if run.status.completion_time is None:
        return run
    roles = {name: replace(role, template=_COMPACT_TEMPLATE) for name, role in run.spec.roles.items()}
    return replace(run, spec=replace(run.spec, roles=roles))


def _from_spec(obj: TrainingRun, cluster_domain: str) -> Workload:
    """The workload as written, before the framework fills in what was left out."""
    spec, meta = obj.spec, obj.metadata
    limits = _limits(spec.limits)
    return Workload(
        kind=obj.resource.kind,
        api_version=obj.resource.api_version,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        framework=spec.framework,
        roles={name: _role(name, role, limits.escalation) for name, role in spec.roles.items()},
        options=spec.options,
        limits=limits,
        cleanup=CleanupPolicy(spec.cleanup.value),
        suspended=spec.suspend,
        deleting=meta.deletion_timestamp is not None,
        annotations=meta.annotations,
        cluster_domain=cluster_domain,
        checkpoint=checkpoint_policy(spec.checkpoint, meta.namespace, meta.name, meta.uid)
        if spec.checkpoint
        else None,
    )


def _role(name: str, spec: RoleSpec, escalation: Escalation) -> Role:
    restart = RestartPolicy(spec.restart.value)
    by_node = restart is RestartPolicy.ON_FAILURE and escalation.container is not None
    policy = spec.policy
    return Role(
        name=name,
        replicas=spec.replicas,
        template=spec.template,
        restart=restart,
        container_restart_policy=restart
        if by_node or restart is RestartPolicy.ALWAYS
        else RestartPolicy.NEVER,
        policy=RolePolicy(
            failed=Quantifier(policy.failed.value) if policy.failed else None,
            succeeded=Quantifier(policy.succeeded.value) if policy.succeeded else None,
            node_down_as_failed=policy.node_down_as_failed,
        )
        if policy
        else None,
        elastic=elastic.bounds(spec.elastic) if spec.elastic else None,
        depends_on=tuple(Dependency(want.role, Phase(want.phase.value)) for want in spec.depends_on),
        slots=spec.slots,
    )


def _limits(spec: LimitsSpec) -> Limits:
    escalation = spec.escalation
    return Limits(
        restarts=spec.restarts,
        escalation=Escalation(escalation.container, escalation.pod, escalation.role)
        if escalation
        else Escalation(),
        active_deadline=_seconds(spec.active_deadline),
        start_timeout=_seconds(spec.start_timeout),
        below_min_timeout=_seconds(spec.below_min_timeout),
        force_delete_after=_seconds(spec.force_delete_after),
        ttl=Ttl(succeeded=_seconds(spec.ttl_after_succeeded), failed=_seconds(spec.ttl_after_failed)),
    )


def _seconds(text: str | None) -> float | None:
    """Return the duration; the type of the field has validated the text."""
    return None if text is None else parse_duration(text)


def _gang(workload: Workload, spec: GangSpec | None) -> Gang | None:
    if spec is None:
        return None
    least = sum(role.elastic.min if role.elastic else role.replicas for role in workload.roles.values())
    return Gang(spec.min_available or least, spec.queue, spec.priority_class, _seconds(spec.timeout))


def _with_user_rules(rules: Rules, spec: TrainingRunSpec) -> Rules:
    """The framework's rules, where the user has not given their own."""
    if spec.restart_scope:
        rules = replace(rules, restart_scope=RestartScope(spec.restart_scope.value))
    policy = spec.job_policy
    if policy and policy.failed:
        rules = replace(rules, failed_when=tuple(tuple(names) for names in policy.failed))
    if policy and policy.succeeded:
        rules = replace(rules, succeeded_when=tuple(tuple(names) for names in policy.succeeded))
    return rules
