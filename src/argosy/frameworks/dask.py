"""Dask: a scheduler, workers that register with it, and a launcher that runs the client.

Roles `scheduler`, `launcher`, `worker`; optionally one `leadworker`, which is the first worker. They start in
the order scheduler, workers, launcher, each when the one before runs. Scheduler and workers without a command
run Dask's. All get the scheduler in `DASK_SCHEDULER_ADDRESS`, which Dask reads. All but the scheduler also
get ranks (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`), for libraries that form their own ring; not if
the workers are elastic, because their number changes.

Workers may be added, removed and replaced one by one: the scheduler gives their tasks to others. A worker
that gets SIGTERM has the scheduler retire it first, so that results which only it holds are moved and not
lost. `dask worker` itself would just close, so its nanny loads a module that does this. It does so by option,
because the command ignores the setting `distributed.nanny.preload`.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import (
    WORKER,
    PortNumber,
    options_of,
    present_roles,
    require_role,
    require_single,
    with_defaults,
)
from argosy.workload.model import Dependency, Problem, ResizeMode, RestartScope, Role, Rules, Workload

SCHEDULER, LEAD, LAUNCHER = "scheduler", "leadworker", "launcher"
START_ORDER = (SCHEDULER, LEAD, WORKER, LAUNCHER)
RANKED = (LEAD, WORKER, LAUNCHER)
"""Roles with ranks, in the order of their ranks."""

RETIRE_FILE = "/etc/argosy/retire_worker.py"
_RETIRE_MODULE = """\
from distributed import rpc


async def dask_teardown(nanny):
    if not nanny.worker_address:
        return
    try:
        async with rpc(nanny.scheduler_addr, timeout=5, connection_args=nanny.connection_args) as scheduler:
            await scheduler.retire_workers(workers=[nanny.worker_address])
    except Exception as error:
        print(f"the worker ends without being retired: {error!r}", flush=True)
"""
"""A preload of Dask's nanny, which calls it before it ends its worker. If the scheduler is gone too, as at
the end of the job, it gives up after some seconds.
"""


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: PortNumber = 8786
    """Port of the scheduler."""
    master_port: PortNumber = 23456
    """The value of `MASTER_PORT`, which Dask itself does not use."""
    threads_per_worker: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Threads of a worker without a command; if unset, Dask starts one for each core that it may use."""


class Dask:
    name: ClassVar[str] = "dask"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        ordered = present_roles(workload, START_ORDER)
        dependencies = {name: (Dependency(earlier),) for earlier, name in pairwise(ordered)}
        return replace(
            workload,
            roles={
                name: with_defaults(role, depends_on=dependencies.get(name, ()))
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
            failed_when=tuple((name,) for name in present_roles(workload, START_ORDER)),
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
        if WORKER not in workload.roles or workload.roles[WORKER].elastic is None:
            env |= _ring(workload, role, index, options)
        if role.name == LAUNCHER:
            return Injection(env=env)
        return Injection(
            env=env,
            files={RETIRE_FILE: _RETIRE_MODULE},
            default_command=(*_worker(role, options), "--preload-nanny", RETIRE_FILE),
        )


def _worker(role: Role, options: Options) -> tuple[str, ...]:
    threads = ("--nthreads", str(options.threads_per_worker)) if options.threads_per_worker else ()
    processes = ("--nworkers", str(role.slots)) if role.slots else ()
    return ("dask", "worker", *processes, *threads)


def _ring(workload: Workload, role: Role, index: int, options: Options) -> dict[str, str]:
    """Return ranks over all pods but the scheduler; rank 0 gets the address to listen on."""
    members = present_roles(workload, RANKED)
    sizes = [workload.roles[name].replicas for name in members]
    rank = sum(sizes[: members.index(role.name)]) + index
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(sum(sizes)),
        "MASTER_ADDR": "0.0.0.0" if rank == 0 else workload.address(members[0], 0),  # noqa: S104 - itself
        "MASTER_PORT": str(options.master_port),
    }
