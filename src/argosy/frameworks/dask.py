"""Dask: a scheduler, workers that offer themselves to it, and a launcher whose program is the client.

Roles `scheduler`, `launcher`, `worker`; optionally one `leadworker`, the first of the workers. They
start in the order scheduler, workers, launcher, each when the one before runs. Scheduler and workers without
a command run Dask's own. All find the scheduler in `DASK_SCHEDULER_ADDRESS`, which Dask reads by itself. All
but the scheduler are numbered as well (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`), for libraries
that form a ring of their own; not if the workers are elastic, for their number would not stay true.

Workers may come, go and be replaced one by one: the scheduler gives their tasks to others.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import PortNumber, options_of, require_role, require_single, with_defaults
from argosy.workload.model import Dependency, Problem, ResizeMode, RestartScope, Role, Rules, Workload

SCHEDULER, LEAD, WORKER, LAUNCHER = "scheduler", "leadworker", "worker", "launcher"
ORDER = (SCHEDULER, LEAD, WORKER, LAUNCHER)
"""In which they start."""
RANKED = (LEAD, WORKER, LAUNCHER)
"""In the order of their ranks."""


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: PortNumber = 8786
    """Port of the scheduler."""
    master_port: PortNumber = 23456
    """`MASTER_PORT`, which Dask itself has no use for."""
    threads_per_worker: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Threads of a worker that has no command; if unset Dask takes one for each core that it may use."""


class Dask:
    name: ClassVar[str] = "dask"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        present = [name for name in ORDER if name in workload.roles]
        before = {name: (Dependency(earlier),) for earlier, name in pairwise(present)}
        return replace(
            workload,
            roles={
                name: with_defaults(role, depends_on=before.get(name, ()))
                for name, role in workload.roles.items()
            },
        )

    def check(self, workload: Workload) -> Iterator[Problem]:
        for name in (SCHEDULER, LAUNCHER):
            yield from require_role(workload, name)
        for name in (SCHEDULER, LAUNCHER, LEAD):
            yield from require_single(workload, name)
        if WORKER not in workload.roles and LEAD not in workload.roles:
            yield from require_role(workload, WORKER)

    def rules(self, workload: Workload) -> Rules:
        return Rules(
            succeeded_when=((LAUNCHER,),),
            failed_when=tuple((name,) for name in ORDER if name in workload.roles),
            restart_scope=RestartScope.POD,
            resize=ResizeMode.LIVE,
            services=tuple(workload.roles),
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        options = options_of(workload, Options)
        env = {"DASK_SCHEDULER_ADDRESS": f"tcp://{workload.address(SCHEDULER, 0)}:{options.port}"}
        if role.name == SCHEDULER:
            command = ("dask", "scheduler", "--port", str(options.port))
            return Injection(env=env, ports=(Port("scheduler", options.port),), default_command=command)
        if role.name not in RANKED:
            return Injection(env=env)
        fixed = WORKER not in workload.roles or workload.roles[WORKER].elastic is None
        return Injection(
            env={**env, **_ring(workload, role, index, options)} if fixed else env,
            default_command=() if role.name == LAUNCHER else _worker(role, options),
        )


def _worker(role: Role, options: Options) -> tuple[str, ...]:
    threads = ("--nthreads", str(options.threads_per_worker)) if options.threads_per_worker else ()
    processes = ("--nworkers", str(role.slots)) if role.slots else ()
    return ("dask", "worker", *processes, *threads)


def _ring(workload: Workload, role: Role, index: int, options: Options) -> dict[str, str]:
    """Ranks over all but the scheduler; the first of them listens, so it is told no name."""
    members = [name for name in RANKED if name in workload.roles]
    sizes = [workload.roles[name].replicas for name in members]
    rank = sum(sizes[: members.index(role.name)]) + index
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(sum(sizes)),
        "MASTER_ADDR": "0.0.0.0" if rank == 0 else workload.address(members[0], 0),  # noqa: S104 - itself
        "MASTER_PORT": str(options.master_port),
    }
