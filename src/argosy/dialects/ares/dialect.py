"""`AresJob` into the model and back.

Pods that are never replaced are named `<job>-<role>-<index>`; those of other roles have five letters more,
made from what the pod is for, so that a new pod can stand beside an old one that is still going.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.ares import adoption, events, injection, spec, status, validation
from argosy.dialects.ares.defaults import mpi_of, with_defaults
from argosy.dialects.ares.profiles import Profile, elastic, profile_of, roles_of, services_of
from argosy.dialects.ares.templates import bare, default_container, ports
from argosy.dialects.base import bare_workload
from argosy.frameworks.base import Injection
from argosy.kinds.aresjob import (
    FINALIZER,
    GROUP,
    GROUP_LABEL,
    HANDED_ON,
    INDEX_LABEL,
    JOB_LABEL,
    ROLE_LABEL,
    AresJob,
    AresJobSpec,
    AresJobStatus,
    RolePhasePolicySpec,
    RoleSpec,
    RunPolicySpec,
)
from argosy.kinds.meta import ObjectMeta
from argosy.workload import pod_size
from argosy.workload.model import (
    Cleanup,
    Dependency,
    Gang,
    HandedOn,
    Json,
    Limits,
    Phase,
    Problems,
    Quorum,
    Resize,
    Restart,
    Role,
    RolePolicy,
    Rules,
    Scope,
    Ttl,
    Workload,
)
from argosy.workload.observed import Observed
from argosy.workload.plan import Deed, Emit, Plan
from argosy.workload.record import Record, decode

EXIT_CODES = frozenset({130, 137, 138, 143})
"""After which a pod of a role with restartPolicy ExitCode is replaced."""
_ENDED = (Phase.SUCCEEDED.value, Phase.FAILED.value)
SERVICE_PORT = 80
"""Of a service whose pods name no port."""


class AresJobDialect:
    kind = AresJob
    resource = AresJob.resource
    invalid_ends = True
    propagated_annotations = HANDED_ON

    def __init__(self, ttl_after_succeeded: float | None = None) -> None:
        self.ttl_after_succeeded = ttl_after_succeeded

    def to_workload(self, obj: AresJob) -> Workload | Problems:
        written = spec.read(obj.spec)
        if not isinstance(written, AresJobSpec):
            return Problems((written,))
        full = with_defaults(written)
        problems = validation.problems(obj.metadata.name, full)
        if problems:
            return Problems(tuple(problems))
        return self._workload(obj.metadata, full)

    def spec_patch(self, obj: AresJob) -> Json | None:
        """Defaults are written into the spec, annotations that are handed on into labels; the original's
        finalizer is taken away."""
        patch: dict[str, object] = {}
        metadata: dict[str, object] = {}
        if FINALIZER in obj.metadata.finalizers:
            metadata["finalizers"] = [one for one in obj.metadata.finalizers if one != FINALIZER]
        if changed := _label_patch(obj):
            metadata["labels"] = changed
        if metadata:
            patch["metadata"] = metadata
        if added := _default_patch(obj):
            patch["spec"] = added
        return patch or None

    def minimal_workload(self, obj: AresJob) -> Workload:
        """What is wrong may be elsewhere in the spec; what can be read of these counts."""
        policy = obj.spec.get("runPolicy")
        run = policy if isinstance(policy, dict) else {}
        cleanup = run.get("cleanPodPolicy", Cleanup.NONE.value) or Cleanup.ALL.value
        gone, bare = run.get("ttlSecondsAfterFinished"), obj.spec.get("ttlSecondsAfterFailed")
        return replace(
            bare_workload(obj.metadata, self.resource),
            limits=Limits(ttl=Ttl(_seconds(gone), _seconds(gone)), children_ttl=Ttl(None, _seconds(bare))),
            cleanup=Cleanup(cleanup) if cleanup in tuple(Cleanup) else Cleanup.NONE,
            handed_on=_propagated(obj.metadata),
        )

    def placeholder(self, metadata: ObjectMeta, status: object) -> AresJob:
        try:
            told = msgspec.convert(status or {}, AresJobStatus)
        except msgspec.ValidationError:
            told = AresJobStatus()
        return AresJob(metadata, {}, told)

    def compact_finished(self, obj: AresJob) -> AresJob:
        roles = obj.spec.get("roleSpecs")
        if obj.status.completion_time is None or not isinstance(roles, dict):
            return obj
        kept = {
            name: {**role, "template": bare(role.get("template"))}
            for name, role in roles.items()
            if isinstance(role, dict)
        }
        return replace(obj, spec={**obj.spec, "roleSpecs": kept})

    def to_status(
        self, obj: AresJob, workload: Workload | None, record: Record, seen: Observed
    ) -> AresJobStatus:
        return status.to_status(obj, workload, record, seen)

    def read_record(self, obj: AresJob) -> Record | None:
        return decode(obj.status.argosy)

    def adopted_record(self, obj: AresJob) -> Record | None:
        return adoption.adopted_record(obj)

    def adopted_replica(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        return adoption.adopted_replica(labels)

    def pod_name(self, workload: Workload, role: str, index: int, attempt: int, replacement: int) -> str:
        host = workload.hostname(role, index)
        if not workload.roles[role].beside:
            return host
        digest = hashlib.sha256(f"{workload.uid}/{attempt}/{replacement}".encode()).hexdigest()
        return f"{host}-{digest[:5]}"

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        return injection.inject(workload, role, index)

    def stamped(self, status: Struct, now: datetime) -> Struct:
        return replace(status, last_reconcile_time=now)

    def status_events(self, before: AresJob, after: AresJob, plan: Plan) -> list[Emit]:
        fresh = after.status.observed_generation != before.status.observed_generation
        lowered = self.to_workload(after) if fresh else None
        return events.status_events(before, after, plan, lowered if isinstance(lowered, Workload) else None)

    def action_events(self, obj: AresJob, done: Sequence[Deed]) -> list[Emit]:
        return events.action_events(obj, done)

    def _workload(self, meta: ObjectMeta, full: AresJobSpec) -> Workload | Problems:
        run = full.run_policy or RunPolicySpec()
        whole = run.restart_scope == Scope.JOB.value
        finished = run.ttl_seconds_after_finished
        roles = {name: _role(name, role, whole) for name, role in sorted(roles_of(full).items())}
        plain = Workload(
            kind=self.resource.kind,
            api_version=self.resource.api_version,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            framework=full.framework_type or "",
            roles=roles,
            options=msgspec.to_builtins(_options(full)),
            rules=_rules(full, whole),
            limits=Limits(
                restarts=run.backoff_limit,
                kept_failures=True,
                active_deadline=run.active_deadline_seconds,
                ttl=Ttl(finished, finished),
                children_ttl=Ttl(self.ttl_after_succeeded, full.ttl_seconds_after_failed),
            ),
            gang=_gang(run),
            cleanup=Cleanup(run.clean_pod_policy or Cleanup.ALL),
            suspended=bool(run.suspend),
            deleting=meta.deletion_timestamp is not None,
            annotations=meta.annotations,
            labels={GROUP_LABEL: GROUP, JOB_LABEL: meta.name},
            handed_on=_propagated(meta),
            roles_path="spec.roleSpecs",
            role_label=ROLE_LABEL,
            index_label=INDEX_LABEL,
            announced=True,
            invalid_ends=True,
        )
        plain = pod_size.with_pod_bytes(plain, injection.list_bytes)
        if too_large := tuple(pod_size.problems(plain)):
            return Problems(too_large)
        told = {name: injection.inject(plain, role, 0) for name, role in plain.roles.items()}
        return replace(
            plain,
            roles={
                name: replace(one, shape=_template_hash(plain, one, told[name]))
                for name, one in plain.roles.items()
            },
            rules=replace(plain.rules, service_ports=_service_ports(full, told)),
        )


def _default_patch(obj: AresJob) -> Json:
    """The defaults that the stored spec of a valid job lacks; looked for once per generation."""
    meta, last = obj.metadata, obj.status
    ended = last.completion_time is not None or (not last.argosy and last.phase in _ENDED)
    over = ended or meta.deletion_timestamp is not None
    if over or last.observed_generation == meta.generation:
        return {}
    written = spec.read(obj.spec)
    if not isinstance(written, AresJobSpec):
        return {}
    full = with_defaults(written)
    return {} if validation.problems(meta.name, full) else spec.additions(obj.spec, full)


def _propagated(meta: ObjectMeta) -> HandedOn:
    there = meta.annotations
    return HandedOn(HANDED_ON, {key: there[key] for key in HANDED_ON if key in there})


def _label_patch(obj: AresJob) -> dict[str, str | None]:
    """Labels that the job lacks, and those that it has only because of an annotation that it has no more."""
    meta = obj.metadata
    if meta.deletion_timestamp is not None:
        return {}
    wanted, given = _propagated(meta).labels, obj.status.argosy.get("handed")
    ours = given if isinstance(given, dict) else {}
    over: dict[str, str | None] = {
        key: None for key, value in ours.items() if key not in wanted and meta.labels.get(key) == value
    }
    return {**over, **{key: value for key, value in wanted.items() if meta.labels.get(key) != value}}


def _seconds(written: object) -> float | None:
    return float(written) if isinstance(written, int) and written >= 0 else None


def _role(name: str, written: RoleSpec, whole: bool) -> Role:
    restart = Restart(written.restart_policy or Restart.NEVER)
    in_place = restart if restart in (Restart.ALWAYS, Restart.ON_FAILURE) else Restart.NEVER
    if whole and in_place is Restart.ON_FAILURE:
        in_place = Restart.NEVER  # a node that restarts a container itself would hide the failure
    policy = written.role_phase_policy or RolePhasePolicySpec()
    wants = written.dependence
    phase = Phase(wants.role_phase or Phase.RUNNING) if wants else Phase.RUNNING
    names = (wants.role_names or ()) if wants else ()
    return Role(
        name=name,
        replicas=written.replicas or 1,
        template=written.template or {},
        restart=restart,
        in_place=in_place,
        policy=RolePolicy(
            failed=Quorum(policy.failed) if policy.failed else None,
            succeeded=Quorum(policy.succeeded) if policy.succeeded else None,
            node_down_as_failed=bool(policy.node_down_as_failed),
            any_condition=True,
            node_down_replaced=False,
            only_present=True,
        ),
        depends_on=tuple(Dependency(other, phase) for other in names),
        exit_codes=EXIT_CODES if restart is Restart.EXIT_CODE else frozenset(),
        beside=restart is not Restart.NEVER,
    )


def _rules(full: AresJobSpec, whole: bool) -> Rules:
    profile, policy = profile_of(full), full.job_phase_policy
    assert profile is not None and policy is not None, "checked before"
    return Rules(
        succeeded_when=tuple(map(tuple, policy.succeeded or ())),
        failed_when=tuple(map(tuple, policy.failed or ())),
        restart_scope=Scope.JOB if whole else Scope.POD,
        resize=Resize.LIVE,
        services=services_of(full, profile),
        together=True,
        idle=profile.creates_no_pods,
        ssh_among=_ssh_roles(full, profile),
    )


def _ssh_roles(full: AresJobSpec, profile: Profile) -> tuple[str, ...]:
    """The roles whose pods share keys for ssh."""
    wanted = mpi_of(full).ssh_keys
    return tuple(name for name in profile.ssh_roles if name in roles_of(full)) if wanted else ()


def _service_ports(
    full: AresJobSpec, told: Mapping[str, Injection]
) -> dict[str, tuple[tuple[str, int], ...]]:
    """The ports of each role's default container, those that its framework adds to it among them."""
    profile, roles = profile_of(full), roles_of(full)
    assert profile is not None, "checked before"
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for name in services_of(full, profile):
        written = ports(default_container(roles[name].template, profile.container))
        added = [(port.name, port.number) for port in told[name].ports if told[name].ports_in]
        names = {one for one, _ in written}
        found[name] = _unique_ports([*written, *(one for one in added if one[0] not in names)])
    return found


def _unique_ports(listed: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Each number and name once; a service without a port gets one."""
    found: dict[int, str] = {}
    for name, number in listed:
        if number not in found and (name or f"port-{number}") not in found.values():
            found[number] = name or f"port-{number}"
    return tuple((name, number) for number, name in found.items()) or (
        (f"port-{SERVICE_PORT}", SERVICE_PORT),
    )


def _template_hash(workload: Workload, role: Role, told: Injection) -> str:
    """Changes with the definition of the role's pods, and with what they are told of the others."""
    waits = [(want.role, want.phase) for want in role.depends_on or ()]
    files = injection.options_of(workload).host_files.get(role.name, "")
    keys = role.name in workload.rules.ssh_among
    made_of = (role.template, role.in_place, waits, files, keys, told.env, told.fields, told.ports)
    return hashlib.sha256(msgspec.json.encode(made_of, order="deterministic")).hexdigest()[:8]


def _gang(run: RunPolicySpec) -> Gang | None:
    policy = run.scheduling_policy
    if policy is None or policy.min_available is None:
        return None
    return Gang(
        policy.min_available,
        policy.queue or "",
        policy.priority_class or "",
        min_resources=policy.min_resources or {},
    )


def _options(full: AresJobSpec) -> injection.Options:
    mpi, worker = mpi_of(full), roles_of(full).get("worker")
    bagua = full.framework.bagua if full.framework else None
    tensorflow = full.framework.tensorflow if full.framework else None
    workers = worker.replicas or 1 if worker else 0
    least, most = (bagua.min_replicas, bagua.max_replicas) if bagua else (None, None)
    return injection.Options(
        ports=tuple(full.available_ports or ()),
        elastic=elastic(full),
        min_size=workers if least is None else least,
        max_size=workers if most is None else most,
        dynamic=bool(tensorflow and tensorflow.enable_dynamic_worker),
        slots=mpi.replicas_per_node or 1,
        implementation=mpi.implementation or "",
        launcher_as_host=bool(mpi.launcher_as_host),
        host_files={
            name: role.dependence.mpi_host_file
            for name, role in roles_of(full).items()
            if role.dependence and role.dependence.mpi_host_file
        },
    )
