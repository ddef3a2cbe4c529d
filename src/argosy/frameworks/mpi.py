"""MPI: a launcher runs `mpirun`, which starts ranks in the workers through our remote start instead of ssh.

Roles `launcher` and `worker`. Workers without a command sleep until they are told to go. The launcher waits
until all workers run, and finds the host file and the start agent in its environment, so that its command
needs no host options. One lost process ends an MPI job, so it starts anew as a whole.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import REMOTE_AGENT, Injection
from argosy.frameworks.common import options_of, required, slots, with_defaults
from argosy.workload.model import Dependency, Phase, Problem, Resize, Role, Rules, Scope, Workload

LAUNCHER, WORKER = "launcher", "worker"
HOST_FILE = "/etc/argosy/hostfile"
SLEEP = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done")
"""Ends at once when told to, which a plain `sleep` as first process of a container does not."""


class Implementation(StrEnum):
    OPEN_MPI = "ompi"
    MPICH = "mpich"
    INTEL = "intel"


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    implementation: Implementation = Implementation.OPEN_MPI
    """Whose mpirun: it decides the form of the host file and the names of variables."""
    slots_per_worker: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Ranks in a pod; if unset, the role's slots, its GPUs, else 1."""
    launcher_as_worker: bool = False
    """The launcher takes ranks too, the first ones."""


class Mpi:
    name: ClassVar[str] = "mpi"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        waits = (Dependency(WORKER, Phase.RUNNING),) if WORKER in workload.roles else ()
        return replace(
            workload,
            roles={
                name: with_defaults(
                    role,
                    node_down_as_failed=name in (LAUNCHER, WORKER),
                    depends_on=waits if name == LAUNCHER else (),
                )
                for name, role in workload.roles.items()
            },
        )

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from required(workload, LAUNCHER)
        launcher = workload.roles.get(LAUNCHER)
        if launcher and launcher.replicas != 1:
            said = f"there is one launcher, not {launcher.replicas}; write 1"
            yield Problem("spec.roles.launcher.replicas", said)
        if WORKER not in workload.roles and not options_of(workload, Options).launcher_as_worker:
            said = "without a role 'worker' the launcher must take the ranks; write true"
            yield Problem("spec.options.launcherAsWorker", said)

    def rules(self, workload: Workload) -> Rules:
        present = tuple(name for name in (LAUNCHER, WORKER) if name in workload.roles)
        return Rules(
            succeeded_when=((LAUNCHER,),),
            failed_when=tuple((name,) for name in present),
            restart_scope=Scope.JOB,
            resize=Resize.RESTART,
            services=tuple(workload.roles),
            exec_from=(LAUNCHER,),
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        searches = tuple(
            f"{workload.service(name)}.{workload.namespace}.svc.{workload.domain}"
            for name in (LAUNCHER, WORKER)
            if name in workload.roles
        )
        if role.name == WORKER:
            return Injection(default_command=SLEEP, searches=searches)
        if role.name != LAUNCHER:
            return Injection()
        options = options_of(workload, Options)
        return Injection(
            env=_environment(options.implementation),
            files={HOST_FILE: host_file(workload, options)},
            remote_start=True,
            searches=searches,
        )


def host_file(workload: Workload, options: Options) -> str:
    """One line a pod with its slots. Names are host names: the start agent and DNS know them."""
    names = (LAUNCHER, WORKER) if options.launcher_as_worker else (WORKER,)
    form = "{host} slots={slots}" if options.implementation is Implementation.OPEN_MPI else "{host}:{slots}"
    lines = [
        form.format(host=workload.hostname(name, index), slots=options.slots_per_worker or slots(role))
        for name in names
        if (role := workload.roles.get(name))
        for index in range(role.replicas)
    ]
    return "\n".join(lines) + "\n"


def _environment(implementation: Implementation) -> dict[str, str]:
    if implementation is Implementation.MPICH:
        return {
            "HYDRA_HOST_FILE": HOST_FILE,
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": REMOTE_AGENT,
            # Proxies call back to an address: the launcher's host name alone may not resolve elsewhere.
            "HYDRA_IFACE": "eth0",
        }
    if implementation is Implementation.INTEL:
        return {
            "I_MPI_HYDRA_HOST_FILE": HOST_FILE,
            "I_MPI_HYDRA_BOOTSTRAP": "ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": REMOTE_AGENT,
            "I_MPI_HYDRA_IFACE": "eth0",
        }
    # Version 4 reads OMPI_…, version 5 PRTE_…. Only the launcher may start processes elsewhere: no tree.
    return {
        "OMPI_MCA_orte_default_hostfile": HOST_FILE,
        "OMPI_MCA_plm_rsh_agent": REMOTE_AGENT,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_prte_default_hostfile": HOST_FILE,
        "PRTE_MCA_plm_ssh_agent": REMOTE_AGENT,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
