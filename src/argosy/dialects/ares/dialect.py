"""Translates `AresJob`, the API of AresOperator, into the model."""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from argosy.dialects.ares import injection, spec, status, validation
from argosy.dialects.ares.defaults import mpi_of, with_defaults
from argosy.dialects.ares.elastic_validation import bagua_sizes
from argosy.dialects.ares.profiles import Profile, is_elastic_bagua, profile_of, roles_of, services_of
from argosy.dialects.ares.spec_patch import propagated
from argosy.dialects.base import StatusInput
from argosy.dialects.checkpoints import checkpoint_problems
from argosy.dialects.templates import default_container, ports
from argosy.frameworks.base import Injection
from argosy.kinds.aresjob import (
    GROUP,
    GROUP_LABEL,
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
from argosy.kinds.quantity import parse_duration
from argosy.workload import elastic, pod_size
from argosy.workload.checkpoint_policy import checkpoint_policy
from argosy.workload.model import (
    DEFAULT_CLUSTER_DOMAIN,
    CleanupPolicy,
    Dependency,
    Gang,
    Limits,
    Phase,
    Problems,
    Quantifier,
    ResizeMode,
    RestartPolicy,
    RestartScope,
    Role,
    RolePolicy,
    Rules,
    Ttl,
    Workload,
)
from argosy.workload.semantics import Semantics

SEMANTICS = Semantics(
    roles_path="spec.roleSpecs",
    role_label=ROLE_LABEL,
    index_label=INDEX_LABEL,
    report_pending_first=True,
    delete_children_if_invalid=True,
    unknown_condition_is_node_down=True,
    replace_pods_on_down_nodes=False,
    forget_deleted_successes=True,
    running_needs_all_pods=True,
    surge=True,
    replaced_exit_codes=frozenset({130, 137, 138, 143}),
    count_unreplaced_failures=True,
)
SERVICE_PORT = 80
"""The port of a Service whose pods declare none."""
BELOW_MIN_TIMEOUT = "10m"
"""The default of `runPolicy.belowMinTimeout`."""


class AresJobDialect:
    kind = AresJob

    def __init__(
        self, ttl_after_succeeded: float | None = None, cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
    ) -> None:
        self._ttl_after_succeeded = ttl_after_succeeded
        self._cluster_domain = cluster_domain

    def to_workload(self, obj: AresJob) -> Workload | Problems:
        written = spec.read(obj.spec)
        if not isinstance(written, AresJobSpec):
            return Problems((written,))
        full = with_defaults(written)
        problems = validation.problems(obj.metadata.name, full)
        if problems:
            return Problems(tuple(problems))
        return self._workload(obj.metadata, full)

    def to_status(self, obj: AresJob, view: StatusInput) -> AresJobStatus:
        return status.to_status(obj, view)

    def _workload(self, meta: ObjectMeta, full: AresJobSpec) -> Workload | Problems:
        run = full.run_policy or RunPolicySpec()
        whole = run.restart_scope == RestartScope.JOB.value
        finished = run.ttl_seconds_after_finished
        in_place = not whole and full.checkpoint is None
        roles = {name: _role(name, role, in_place) for name, role in sorted(roles_of(full).items())}
        plain = Workload(
            kind=AresJob.resource.kind,
            api_version=AresJob.resource.api_version,
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
                active_deadline=run.active_deadline_seconds,
                ttl=Ttl(finished, finished),
                children_ttl=Ttl(self._ttl_after_succeeded, full.ttl_seconds_after_failed),
                below_min_timeout=parse_duration(run.below_min_timeout or BELOW_MIN_TIMEOUT),
            ),
            gang=_gang(run),
            cleanup=CleanupPolicy(run.clean_pod_policy or CleanupPolicy.ALL),
            suspended=bool(run.suspend),
            deleting=meta.deletion_timestamp is not None,
            annotations=meta.annotations,
            labels={GROUP_LABEL: GROUP, JOB_LABEL: meta.name},
            propagated=propagated(meta),
            cluster_domain=self._cluster_domain,
            semantics=SEMANTICS,
            checkpoint=checkpoint_policy(full.checkpoint, meta.namespace, meta.name, meta.uid)
            if full.checkpoint
            else None,
        )
        plain = pod_size.with_pod_bytes(plain, injection.list_bytes)
        if problems := (*checkpoint_problems(plain), *pod_size.problems(plain)):
            return Problems(problems)
        injections = {name: injection.inject(plain, role, 0) for name, role in plain.roles.items()}
        return replace(
            plain,
            roles={
                name: replace(role, template_hash=_template_hash(plain, role, injections[name]))
                for name, role in plain.roles.items()
            },
            rules=replace(plain.rules, service_ports=_service_ports(full, injections)),
        )


def _role(name: str, written: RoleSpec, in_place: bool) -> Role:
    """Return a role; `in_place`: whether its failed containers may be restarted by their node.

    That would hide the failure from a job that restarts as a whole, and a program with checkpoints would not
    find the newest one, for which a new pod looks before it starts.
    """
    restart = RestartPolicy(written.restart_policy or RestartPolicy.NEVER)
    by_node = restart is RestartPolicy.ALWAYS or (in_place and restart is RestartPolicy.ON_FAILURE)
    policy = written.role_phase_policy or RolePhasePolicySpec()
    wants = written.dependence
    phase = Phase(wants.role_phase or Phase.RUNNING) if wants else Phase.RUNNING
    names = (wants.role_names or ()) if wants else ()
    return Role(
        name=name,
        replicas=written.replicas or 1,
        template=written.template or {},
        restart=restart,
        container_restart_policy=restart if by_node else RestartPolicy.NEVER,
        policy=RolePolicy(
            failed=Quantifier(policy.failed) if policy.failed else None,
            succeeded=Quantifier(policy.succeeded) if policy.succeeded else None,
            node_down_as_failed=bool(policy.node_down_as_failed),
        ),
        elastic=elastic.bounds(written.elastic) if written.elastic else None,
        depends_on=tuple(Dependency(other, phase) for other in names),
    )


def _rules(full: AresJobSpec, whole: bool) -> Rules:
    profile, policy = profile_of(full), full.job_phase_policy
    assert profile is not None and policy is not None, "checked before"
    return Rules(
        succeeded_when=tuple(map(tuple, policy.succeeded or ())),
        failed_when=tuple(map(tuple, policy.failed or ())),
        restart_scope=RestartScope.JOB if whole else RestartScope.POD,
        resize=ResizeMode.LIVE,
        services=services_of(full, profile),
        creates_no_pods=profile.creates_no_pods,
        coordinators=profile.coordinators,
        regrouping_roles=profile.regrouping,
        ssh_roles=_ssh_roles(full, profile),
    )


def _ssh_roles(full: AresJobSpec, profile: Profile) -> tuple[str, ...]:
    """Return the roles whose pods share ssh keys."""
    wanted = mpi_of(full).ssh_keys
    return tuple(name for name in profile.ssh_roles if name in roles_of(full)) if wanted else ()


def _service_ports(
    full: AresJobSpec, injections: Mapping[str, Injection]
) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the ports of each role's default container, including those that its framework adds."""
    profile, roles = profile_of(full), roles_of(full)
    assert profile is not None, "checked before"
    service_ports: dict[str, tuple[tuple[str, int], ...]] = {}
    for name in services_of(full, profile):
        written = ports(default_container(roles[name].template, profile.container))
        injected = injections[name]
        added = [(port.name, port.number) for port in injected.ports if injected.ports_container]
        names = {port_name for port_name, _ in written}
        service_ports[name] = _unique_ports([*written, *(port for port in added if port[0] not in names)])
    return service_ports


def _unique_ports(listed: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return each number and name once; a Service needs at least one port."""
    names: dict[int, str] = {}
    for name, number in listed:
        if number not in names and (name or f"port-{number}") not in names.values():
            names[number] = name or f"port-{number}"
    return tuple((name, number) for number, name in names.items()) or (
        (f"port-{SERVICE_PORT}", SERVICE_PORT),
    )


def _template_hash(workload: Workload, role: Role, injected: Injection) -> str:
    """Return a hash of the role's pod template, and of what is injected into its pods."""
    waits = [(dependency.role, dependency.phase) for dependency in role.depends_on or ()]
    files = injection.options_of(workload).host_files.get(role.name, "")
    keys = role.name in workload.rules.ssh_roles
    hashed: tuple[object, ...] = (
        role.template,
        role.container_restart_policy,
        waits,
        files,
        keys,
        injected.env,
        injected.field_env,
        injected.ports,
    )
    if policy := workload.checkpoint:
        hashed = (*hashed, policy.uri, policy.keep_last, policy.interval, policy.credentials, policy.level)
    return hashlib.sha256(msgspec.json.encode(hashed, order="deterministic")).hexdigest()[:8]


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
    least, most = bagua_sizes(bagua, workers, worker.elastic if worker else None)
    return injection.Options(
        ports=tuple(full.available_ports or ()),
        elastic=is_elastic_bagua(full),
        min_size=least,
        max_size=most,
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
