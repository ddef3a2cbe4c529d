"""`TrainingRun`: our own API. Pods are named `<run>-<role>-<index>`, the same name for every pod of a place.

With one name a place the API server itself refuses a second pod there, and `kubectl logs RUN-worker-2` is
right before and after a replacement.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.base import bare_workload
from argosy.dialects.restart_history import restart_history
from argosy.dialects.trainingrun.conditions import conditions
from argosy.frameworks.base import Framework, Injection, list_bytes
from argosy.frameworks.options import option_problems
from argosy.frameworks.registry import find_framework, installed
from argosy.kinds import labels
from argosy.kinds.dns_names import label_problem, service_problem
from argosy.kinds.messages import unknown_name
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.quantity import parse_duration
from argosy.kinds.template import template_misfits
from argosy.kinds.trainingrun import (
    WORKER,
    GangSpec,
    LimitsSpec,
    RoleSpec,
    RoleStatus,
    TrainingRun,
    TrainingRunSpec,
    TrainingRunStatus,
)
from argosy.workload import dependencies, elastic, messages, pod_size
from argosy.workload.model import (
    MOST_PODS,
    Cleanup,
    Dependency,
    Elastic,
    Gang,
    Json,
    Ladder,
    Limits,
    Phase,
    Problem,
    Problems,
    Quorum,
    Restart,
    Role,
    RolePolicy,
    Rules,
    Scope,
    Ttl,
    Workload,
)
from argosy.workload.observed import Observed
from argosy.workload.phases import Counts, count
from argosy.workload.plan import Deed, Emit, Plan
from argosy.workload.record import Record, decode, encode
from argosy.workload.wait_reasons import sentence

_BARE: dict[str, object] = {"spec": {"containers": [{"name": "finished"}]}}


class TrainingRunDialect:
    kind = TrainingRun
    resource = TrainingRun.resource
    invalid_ends = False
    propagated_annotations: tuple[str, ...] = ()

    def __init__(self, find: Callable[[str], Framework | None] = find_framework) -> None:
        self.find = find

    def to_workload(self, obj: TrainingRun) -> Workload | Problems:
        framework = self.find(obj.spec.framework)
        if framework is None:
            return _one("spec.framework", unknown_name("framework", obj.spec.framework, installed()))
        wrong = option_problems(framework.name, obj.spec.options, framework.Options, "spec.options")
        if wrong:
            return Problems(tuple(wrong))
        workload = framework.defaults(_from_spec(obj))
        problems = _role_problems(workload) or _scope_problems(obj) or list(framework.check(workload))
        if problems:
            return Problems(tuple(problems))
        rules = framework.rules(workload)
        workload = replace(
            workload, rules=_with_user_rules(rules, obj.spec), gang=_gang(workload, obj.spec.gang)
        )
        workload = pod_size.with_pod_bytes(workload, partial(list_bytes, framework))
        problems = _job_problems(workload) or list(pod_size.problems(workload))
        return Problems(tuple(problems)) if problems else workload

    def spec_patch(self, obj: TrainingRun) -> Json | None:
        """The API server fills in defaults."""
        del obj
        return None

    def minimal_workload(self, obj: TrainingRun) -> Workload:
        return bare_workload(obj.metadata, self.resource)

    def inject(self, workload: Workload, role: Role, index: int) -> Injection | None:
        framework = self.find(workload.framework)
        return framework.inject(workload, role, index) if framework else None

    def placeholder(self, metadata: ObjectMeta, status: object) -> TrainingRun:
        try:
            told = msgspec.convert(status or {}, TrainingRunStatus)
        except msgspec.ValidationError:
            told = TrainingRunStatus()
        return TrainingRun(metadata, TrainingRunSpec(framework="", roles={}), told)

    def compact_finished(self, obj: TrainingRun) -> TrainingRun:
        if obj.status.completion_time is None:
            return obj
        roles = {name: replace(role, template=_BARE) for name, role in obj.spec.roles.items()}
        return replace(obj, spec=replace(obj.spec, roles=roles))

    def to_status(
        self, obj: TrainingRun, workload: Workload | None, record: Record, seen: Observed
    ) -> TrainingRunStatus:
        phase = record.phase
        waiting = record.waiting
        roles = workload.roles if workload else {}
        counts = {
            name: fold_running_into_succeeded(count(role, record, seen), record)
            for name, role in roles.items()
        }
        over = record.finished is not None and obj.status.completion_time is not None
        done, wanted = _workers(record, counts)
        return TrainingRunStatus(
            phase=phase.value,
            reason=waiting.reason if waiting else "" if phase is Phase.SUCCEEDED else record.reason,
            message=sentence(workload, record, seen, counts),
            observed_generation=record.generation,
            attempt=_attempt(obj.status.attempt, record, seen),
            restarts=record.restarts,
            workers=f"{done}/{wanted}" if wanted and not over else obj.status.workers,
            replicas=_existing(counts[WORKER]) if WORKER in counts else 0,
            selector=f"{labels.JOB}={obj.metadata.name},{labels.ROLE}={WORKER}",
            start_time=record.started,
            running_time=record.ran,
            completion_time=record.finished,
            waiting_since=waiting.since if waiting else None,
            conditions=conditions(obj.status.conditions, record),
            roles=_roles(record, counts) if workload and not over else obj.status.roles,
            restart_history=restart_history(record),
            argosy=encode(record),
        )

    def stamped(self, status: Struct, now: datetime) -> Struct:
        del now
        return status

    def status_events(self, before: TrainingRun, after: TrainingRun, plan: Plan) -> Sequence[Emit]:
        del before, after
        return [action for action in plan.actions if isinstance(action, Emit)]

    def action_events(self, obj: TrainingRun, done: Sequence[Deed]) -> Sequence[Emit]:
        """Restarts and sizes are told by the plan; what else is done can be seen."""
        del obj, done
        return ()

    def read_record(self, obj: TrainingRun) -> Record | None:
        return decode(obj.status.argosy)

    def adopted_record(self, obj: TrainingRun) -> Record | None:
        """There is no other operator of this API."""
        del obj
        return None

    def adopted_replica(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        del labels
        return None

    def pod_name(self, workload: Workload, role: str, index: int, attempt: int, replacement: int) -> str:
        del attempt, replacement
        return workload.hostname(role, index)


def _from_spec(obj: TrainingRun) -> Workload:
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
        roles={name: _role(name, role, limits.ladder) for name, role in spec.roles.items()},
        options=spec.options,
        limits=limits,
        cleanup=Cleanup(spec.cleanup.value),
        suspended=spec.suspend,
        deleting=meta.deletion_timestamp is not None,
        annotations=meta.annotations,
    )


def _role(name: str, spec: RoleSpec, ladder: Ladder) -> Role:
    restart = Restart(spec.restart.value)
    by_node = restart is Restart.ON_FAILURE and ladder.container is not None
    policy = spec.policy
    bounds = spec.elastic
    return Role(
        name=name,
        replicas=spec.replicas,
        template=spec.template,
        restart=restart,
        in_place=restart if by_node or restart is Restart.ALWAYS else Restart.NEVER,
        policy=RolePolicy(
            failed=Quorum(policy.failed.value) if policy.failed else None,
            succeeded=Quorum(policy.succeeded.value) if policy.succeeded else None,
            node_down_as_failed=policy.node_down_as_failed,
        )
        if policy
        else None,
        elastic=Elastic(bounds.min, bounds.max, bounds.multiple_of) if bounds else None,
        depends_on=tuple(Dependency(want.role, Phase(want.phase.value)) for want in spec.depends_on),
        slots=spec.slots,
    )


def _limits(spec: LimitsSpec) -> Limits:
    rungs = spec.ladder
    return Limits(
        restarts=spec.restarts,
        ladder=Ladder(rungs.container, rungs.pod, rungs.role) if rungs else Ladder(),
        active_deadline=_seconds(spec.active_deadline),
        start_timeout=_seconds(spec.start_timeout),
        below_min_timeout=_seconds(spec.below_min_timeout),
        force_delete_after=_seconds(spec.force_delete_after),
        ttl=Ttl(succeeded=_seconds(spec.ttl_after_succeeded), failed=_seconds(spec.ttl_after_failed)),
    )


def _seconds(text: str | None) -> float | None:
    """The type of the field has seen to it that the text is a duration."""
    return None if text is None else parse_duration(text)


def _gang(workload: Workload, spec: GangSpec | None) -> Gang | None:
    if spec is None:
        return None
    least = sum(role.elastic.min if role.elastic else role.replicas for role in workload.roles.values())
    return Gang(spec.min_available or least, spec.queue, spec.priority_class, _seconds(spec.timeout))


def _with_user_rules(rules: Rules, spec: TrainingRunSpec) -> Rules:
    """The framework's rules, where the user has not given his own."""
    if spec.restart_scope:
        rules = replace(rules, restart_scope=Scope(spec.restart_scope.value))
    policy = spec.job_policy
    if policy and policy.failed:
        rules = replace(rules, failed_when=tuple(tuple(names) for names in policy.failed))
    if policy and policy.succeeded:
        rules = replace(rules, succeeded_when=tuple(tuple(names) for names in policy.succeeded))
    return rules


def _role_problems(workload: Workload) -> list[Problem]:
    problems: list[Problem] = []
    for name, role in workload.roles.items():
        path = f"spec.roles.{name}"
        said = label_problem(name)
        largest = max(role.replicas, role.elastic.max if role.elastic else 0)
        host = label_problem(workload.hostname(name, largest - 1))
        service = service_problem(workload.service(name))
        if said:
            problems.append(Problem(path, f"the role's name {said}"))
        elif host:
            problems.append(Problem("metadata.name", f"the name of its last pod of role {name}, {host}"))
        elif service:
            problems.append(Problem("metadata.name", f"the name of its service, {service}"))
        if not _containers(role):
            problems.append(
                Problem(f"{path}.template.spec.containers", "there must be at least one container")
            )
        problems += [Problem(*misfit) for misfit in template_misfits(role.template, f"{path}.template")]
        problems += elastic.problems(path, role.replicas, role.elastic)
    wants = {name: role.depends_on or () for name, role in workload.roles.items()}
    return problems + dependencies.problems(wants, "spec.roles")


def _scope_problems(obj: TrainingRun) -> list[Problem]:
    if obj.spec.restart_scope is None or obj.spec.limits.ladder is None:
        return []
    return [Problem("spec.limits.ladder", "restartScope says what starts anew; take one of them away")]


def _job_problems(workload: Workload) -> list[Problem]:
    problems: list[Problem] = []
    lists = {"failed": workload.rules.failed_when, "succeeded": workload.rules.succeeded_when}
    for word, alternatives in lists.items():
        unknown = sorted({name for names in alternatives for name in names} - set(workload.roles))
        if unknown:
            problems.append(Problem(f"spec.jobPolicy.{word}", f"there is no role {messages.listed(unknown)}"))
    if workload.total > MOST_PODS:
        said = f"{workload.total} pods in all are not possible; must be at most {MOST_PODS}"
        problems.append(Problem("spec.roles", said))
    if workload.limits.ladder != Ladder() and workload.rules.restart_scope is not Scope.POD:
        scope = workload.rules.restart_scope.value.lower()
        said = f"a lost pod starts the {scope} anew with {workload.framework}; there is nothing to climb"
        problems.append(Problem("spec.limits.ladder", said))
    if workload.gang and workload.gang.min_available > workload.total:
        said = f"{workload.gang.min_available} is more than all {messages.many(workload.total, 'pod')}"
        problems.append(Problem("spec.gang.minAvailable", said))
    return problems


def _containers(role: Role) -> bool:
    spec = role.template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(containers, list) and bool(containers)


def _roles(record: Record, counts: Mapping[str, Counts]) -> dict[str, RoleStatus]:
    statuses: dict[str, RoleStatus] = {}
    for name, numbers in counts.items():
        last = record.role(name)
        statuses[name] = RoleStatus(
            phase=last.phase.value,
            reason=last.reason,
            message=last.message,
            replicas=last.size,
            pending=numbers.pending,
            active=numbers.active,
            succeeded=numbers.succeeded,
            failed=numbers.failed,
            unknown=numbers.unknown,
            terminating=numbers.terminating,
            restarts=last.restarts,
        )
    return statuses


def _attempt(told: int, record: Record, seen: Observed) -> int:
    """None before the first pods; a run whose first pods were refused has not been started after all."""
    refused = bool(seen.outcomes) and record.attempt == 1 and record.ran is None
    return record.attempt if seen.pods or (told and not refused) else 0


def _workers(record: Record, counts: Mapping[str, Counts]) -> tuple[int, int]:
    names = [WORKER] if WORKER in counts else list(counts)
    done = sum(counts[name].active + counts[name].succeeded for name in names)
    return done, sum(record.role(name).size for name in names)


def fold_running_into_succeeded(numbers: Counts, record: Record) -> Counts:
    """What still ran when the run succeeded has done its part; the numbers then stay as they were."""
    if record.phase is not Phase.SUCCEEDED:
        return numbers
    return replace(numbers, active=0, succeeded=numbers.succeeded + numbers.active)


def _existing(numbers: Counts) -> int:
    return numbers.pending + numbers.active + numbers.succeeded + numbers.failed + numbers.unknown


def _one(path: str, message: str) -> Problems:
    return Problems((Problem(path, message),))
