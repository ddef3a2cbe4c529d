"""MPI: a launcher runs `mpirun`, which starts ranks in the workers by remote exec, or by ssh with `sshKeys`.

Roles `launcher` and `worker`. Workers without a command sleep until they are stopped, or run sshd. The
launcher waits until all workers run. Its environment names the host file and the agent that starts processes,
so that its command needs no host options. A lost process ends an MPI job, so the whole job restarts. So it
does with a new number of workers; because that costs progress, the CRD accepts one only of elastic workers.

Without ssh only the launcher has the agent and may start processes in other pods, so mpirun is configured to
start all of them itself instead of by a tree. No network interface is chosen for the ranks' own messages, so
that a second, faster network of a pod is used if there is one.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import REMOTE_AGENT, SSH_FOLDER, Injection
from argosy.frameworks.common import (
    WORKER,
    options_of,
    present_roles,
    require_role,
    require_single,
    slots,
    with_defaults,
)
from argosy.workload.model import Dependency, Phase, Problem, ResizeMode, RestartScope, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

LAUNCHER = "launcher"
HOST_FILE = "/etc/argosy/hostfile"
IDLE_COMMAND = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done")
"""Ends at SIGTERM, which a plain `sleep` as first process of a container ignores."""

_SSHD = f"/usr/sbin/sshd -D -e -h {SSH_FOLDER}/ssh_host_ed25519_key"
SSHD = ("/bin/sh", "-c", f"mkdir -p /run/sshd && exec {_SSHD}")

LONG_FOR_OPEN_MPI_4 = 50


class Implementation(StrEnum):
    OPEN_MPI = "ompi"
    MPICH = "mpich"
    INTEL = "intel"


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    implementation: Implementation = Implementation.OPEN_MPI
    """The MPI implementation, which decides the format of the host file and the names of variables."""
    slots_per_worker: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Ranks in a pod; if unset, the role's slots, its GPUs, else 1."""
    launcher_as_host: bool = False
    """Whether the launcher runs ranks too, the first ones."""
    ssh_keys: bool = False
    """Whether ranks are started by ssh, with keys generated for the job, instead of by remote exec."""


class Mpi:
    name: ClassVar[str] = "mpi"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        dependencies = (Dependency(WORKER, Phase.RUNNING),) if WORKER in workload.roles else ()
        return replace(
            workload,
            roles={
                name: with_defaults(
                    role,
                    node_down_as_failed=name in (LAUNCHER, WORKER),
                    depends_on=dependencies if name == LAUNCHER else (),
                )
                for name, role in workload.roles.items()
            },
        )

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from require_role(workload, LAUNCHER)
        yield from require_single(workload, LAUNCHER)
        if WORKER not in workload.roles and not options_of(workload, Options).launcher_as_host:
            yield Problem(
                "spec.options.launcherAsHost", "invalid value false: must be true without role 'worker'"
            )
        yield from _check_equal_slots(workload)

    def rules(self, workload: Workload) -> Rules:
        present = present_roles(workload, (LAUNCHER, WORKER))
        by_ssh = options_of(workload, Options).ssh_keys
        return Rules(
            succeeded_when=((LAUNCHER,),),
            failed_when=tuple((name,) for name in present),
            restart_scope=RestartScope.JOB,
            resize=ResizeMode.RESTART,
            services=tuple(workload.roles),
            exec_from=() if by_ssh else (LAUNCHER,),
            exec_into=() if by_ssh else present,
            ssh_roles=present if by_ssh else (),
            ssh_verifies_hosts=by_ssh and _runs_our_sshd(workload),
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        searches = tuple(map(workload.service_address, present_roles(workload, (LAUNCHER, WORKER))))
        options = options_of(workload, Options)
        if role.name == WORKER:
            return Injection(
                default_command=SSHD if options.ssh_keys else IDLE_COMMAND, dns_searches=searches
            )
        if role.name != LAUNCHER:
            return Injection()
        return Injection(
            env=_environment(workload, options),
            files={HOST_FILE: host_file(workload, options)},
            remote_exec=not options.ssh_keys,
            dns_searches=searches,
        )

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        if role.name != LAUNCHER:
            return ListBytes()
        options = options_of(workload, Options)
        return ListBytes(
            files=sum(
                workload.hostname_bytes(ranked.name, extra=len(_line("", ranked, options)) + len("\n"))
                for ranked in _rank_roles(workload, options)
            )
        )


def host_file(workload: Workload, options: Options) -> str:
    """Return a line for each pod with its host name, which the agent and DNS resolve, and its slots."""
    lines = [
        _line(workload.hostname(role.name, index), role, options)
        for role in _rank_roles(workload, options)
        for index in range(role.replicas)
    ]
    return "\n".join(lines) + "\n"


def _line(host: str, role: Role, options: Options) -> str:
    ranks = options.slots_per_worker or slots(role)
    return f"{host} slots={ranks}" if options.implementation is Implementation.OPEN_MPI else f"{host}:{ranks}"


def _rank_roles(workload: Workload, options: Options) -> list[Role]:
    """Return the roles that run ranks, in the order of the ranks."""
    names = (LAUNCHER, WORKER) if options.launcher_as_host else (WORKER,)
    return [workload.roles[name] for name in names if name in workload.roles]


def _check_equal_slots(workload: Workload) -> Iterator[Problem]:
    """Check that Intel MPI, which has one number of ranks for all hosts, gets equal ones."""
    options = options_of(workload, Options)
    if options.implementation is not Implementation.INTEL or options.slots_per_worker:
        return
    if len({slots(role) for role in _rank_roles(workload, options)}) > 1:
        yield Problem(
            "spec.options.slotsPerWorker", "required: Intel MPI starts the same number of ranks in every pod"
        )


def _runs_our_sshd(workload: Workload) -> bool:
    """Return True if the workers have neither a command nor ssh keys of their own."""
    if WORKER not in workload.roles:
        return True
    spec = workload.roles[WORKER].template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    main = containers[0] if isinstance(containers, list) and containers else {}
    mounts = {mount.get("mountPath") for mount in main.get("volumeMounts") or ()}
    return not main.get("command") and not main.get("args") and SSH_FOLDER not in mounts


def _environment(workload: Workload, options: Options) -> dict[str, str]:
    env = host_variables(options.implementation, HOST_FILE, workload.roles[LAUNCHER])
    match options.implementation:
        case Implementation.MPICH:
            agent = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": REMOTE_AGENT}
        case Implementation.INTEL:
            env["I_MPI_PERHOST"] = str(_ranks_per_pod(workload, options))
            agent = _intel_agent(workload, options)
        case Implementation.OPEN_MPI:
            env |= {**_long_names(workload), **AS_ROOT}
            agent = _OPEN_MPI_AGENT
    return env if options.ssh_keys else {**env, **agent}


def host_variables(implementation: Implementation, path: str, launcher: Role) -> dict[str, str]:
    """Return variables with the host file, and with the interface on which the launcher is reachable.

    Open MPI 4 reads OMPI_…, version 5 PRTE_….
    """
    match implementation:
        case Implementation.MPICH:
            return {"HYDRA_HOST_FILE": path, **_interface("HYDRA_IFACE", launcher)}
        case Implementation.INTEL:
            return {"I_MPI_HYDRA_HOST_FILE": path, **_interface("I_MPI_HYDRA_IFACE", launcher)}
        case Implementation.OPEN_MPI:
            return {"OMPI_MCA_orte_default_hostfile": path, "PRTE_MCA_prte_default_hostfile": path}


def _interface(variable: str, launcher: Role) -> dict[str, str]:
    """Make proxies connect back to an address: the launcher's host name may not resolve in other pods.

    A pod's own network is always eth0; with hostNetwork the name is not known, and mpirun has to find it.
    """
    spec = launcher.template.get("spec")
    return {} if isinstance(spec, dict) and spec.get("hostNetwork") else {variable: "eth0"}


def _ranks_per_pod(workload: Workload, options: Options) -> int:
    return options.slots_per_worker or max(map(slots, _rank_roles(workload, options)), default=1)


def _intel_agent(workload: Workload, options: Options) -> dict[str, str]:
    hosts = sum(role.replicas for role in _rank_roles(workload, options))
    return {
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": REMOTE_AGENT,
        "I_MPI_HYDRA_BRANCH_COUNT": str(max(hosts, 1)),
    }


def _long_names(workload: Workload) -> dict[str, str]:
    """Disable the abbreviated list of hosts of Open MPI 4, which crashes with long names."""
    longest = max(len(workload.hostname(role.name, role.replicas)) for role in workload.roles.values())
    return {"OMPI_MCA_regx": "naive"} if longest >= LONG_FOR_OPEN_MPI_4 else {}


AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
"""Open MPI requires these to run as root, which is the usual user in a container."""
_AGENTS = f"{REMOTE_AGENT} : /bin/sh"
_OPEN_MPI_AGENT = {
    "OMPI_MCA_plm_rsh_agent": _AGENTS,
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    "PRTE_MCA_plm_ssh_agent": _AGENTS,
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
}
"""The daemons of version 4 exit if they find no agent, although they never use it. The second one of the list
exists in every container."""
