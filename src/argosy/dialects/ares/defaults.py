"""Sets defaults in the spec of an AresJob: first those of its framework, then those of all jobs.

Works on any spec, also on an invalid one: a role that is null, a policy without roles. Only unset fields are
set, with one exception: TensorFlow's workers are always restarted if there is a chief.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from argosy.dialects.ares.profiles import (
    ALL,
    ANY,
    CHIEF,
    HOST_FILE,
    LAUNCHER,
    WORKER,
    Profile,
    profile_of,
    roles_of,
)
from argosy.kinds.aresjob import (
    AresJobSpec,
    DependenceSpec,
    FrameworkSpec,
    JobPhasePolicySpec,
    MpiSpec,
    RolePhasePolicySpec,
    RoleSpec,
    RunPolicySpec,
)
from argosy.workload.model import Phase, RestartPolicy

NEVER, ON_FAILURE = RestartPolicy.NEVER.value, RestartPolicy.ON_FAILURE.value
RUNNING = Phase.RUNNING.value
OMPI = "ompi"


def with_defaults(spec: AresJobSpec) -> AresJobSpec:
    """Return the spec with its defaults."""
    profile = profile_of(spec)
    if profile is None or not spec.role_specs:
        return spec
    present = roles_of(spec)
    roles = {
        name: None if role is None else _role(spec, profile, name, role, present)
        for name, role in spec.role_specs.items()
    }
    run = spec.run_policy or RunPolicySpec()
    if run.clean_pod_policy is None:
        run = replace(run, clean_pod_policy="None")
    return replace(
        spec,
        role_specs=roles,
        framework=_framework(spec, roles),
        job_phase_policy=_job_policy(spec, profile, present),
        run_policy=run,
    )


def _role(
    spec: AresJobSpec, profile: Profile, name: str, role: RoleSpec, present: Mapping[str, RoleSpec]
) -> RoleSpec:
    is_replaced = role.elastic is not None or spec.checkpoint is not None
    restart = role.restart_policy or profile.restarts.get(name, ON_FAILURE if is_replaced else NEVER)
    if spec.framework_type == "tensorflow" and name == WORKER and CHIEF in present and restart != "Always":
        restart = ON_FAILURE
    return replace(
        role,
        replicas=1 if role.replicas is None else role.replicas,
        restart_policy=restart,
        controller=role.controller or "Pod",
        role_phase_policy=_role_policy(profile, name, restart, role.role_phase_policy),
        dependence=_dependence(spec, profile, name, role, present),
    )


def _role_policy(
    profile: Profile, name: str, restart: str, written: RolePhasePolicySpec | None
) -> RolePhasePolicySpec | None:
    policy = written or RolePhasePolicySpec()
    failed, succeeded = policy.failed or "", policy.succeeded or ""
    down = policy.node_down_as_failed
    if down is None and not failed and name in profile.node_down:
        down = True
    if profile.policies is None:
        failed = failed or (ANY if restart in (NEVER, RestartPolicy.EXIT_CODE.value) else "")
        succeeded = succeeded or ALL
    else:
        wanted = profile.policies.get(name, ("", ""))
        failed, succeeded = failed or wanted[0], succeeded or wanted[1]
    if restart == NEVER:
        failed, succeeded = failed or ANY, succeeded or ALL
    filled = RolePhasePolicySpec(failed or policy.failed, succeeded or policy.succeeded, down)
    return filled if filled != RolePhasePolicySpec() else written


def _dependence(
    spec: AresJobSpec, profile: Profile, name: str, role: RoleSpec, present: Mapping[str, RoleSpec]
) -> DependenceSpec | None:
    """Return the dependence of a role; of one that the user wrote only phase and duplicates are changed."""
    if role.dependence is not None:
        names = role.dependence.role_names
        once = list(dict.fromkeys(names)) if names else names
        return replace(role.dependence, role_names=once, role_phase=role.dependence.role_phase or RUNNING)
    wanted = next((others for role_name, others in profile.depends_on if role_name == name), ())
    first = next((other for other in wanted if other in present), None)
    if first is None:
        return None
    file = HOST_FILE if (spec.framework_type, name) == ("mpi", LAUNCHER) else None
    return DependenceSpec([first], RUNNING, file)


def _framework(spec: AresJobSpec, roles: Mapping[str, RoleSpec | None]) -> FrameworkSpec | None:
    """Return framework options; those of host files are set where one was written, or an MPI job has any."""
    files = any(role and role.dependence and role.dependence.mpi_host_file for role in roles.values())
    written = spec.framework or FrameworkSpec()
    if written.mpi is None and not (spec.framework_type == "mpi" and files):
        return spec.framework
    mpi = written.mpi or MpiSpec()
    return replace(
        written,
        mpi=replace(
            mpi,
            replicas_per_node=1 if mpi.replicas_per_node is None else mpi.replicas_per_node,
            implementation=mpi.implementation or OMPI,
        ),
    )


def mpi_of(spec: AresJobSpec) -> MpiSpec:
    """Return the options of host files, complete."""
    written = (spec.framework.mpi if spec.framework else None) or MpiSpec()
    as_host = written.launcher_as_host
    return MpiSpec(
        1 if written.replicas_per_node is None else written.replicas_per_node,
        written.implementation or OMPI,
        True if as_host is None else as_host,
        bool(written.ssh_keys),
    )


def _job_policy(
    spec: AresJobSpec, profile: Profile, present: Mapping[str, RoleSpec]
) -> JobPhasePolicySpec | None:
    written = spec.job_phase_policy or JobPhasePolicySpec()
    names = sorted(present)
    succeeding = names if profile.succeeded is None else [n for n in profile.succeeded if n in present]
    failing = names if profile.failed is None else [n for n in profile.failed if n in present]
    succeeded = [succeeding] if succeeding else []
    failed = [[name] for name in failing if name not in profile.never_fails_job]
    return replace(
        written,
        failed=failed if written.failed is None else written.failed,
        succeeded=succeeded if written.succeeded is None else written.succeeded,
    )
