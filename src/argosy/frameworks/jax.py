"""JAX: one process a pod, which join in `jax.distributed.initialize`.

Role `worker`. JAX itself reads `JAX_COORDINATOR_ADDRESS`; the other two numbers it wants as arguments, unless
it knows the cluster, so they are set under names like it. On CPU its collectives go over gloo. A process
that is lost takes the others with it, so the whole job starts anew, and a new size does the same.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import PortNumber, options_of, require_role, with_default_policies
from argosy.workload.model import Problem, ResizeMode, RestartScope, Role, Rules, Workload

WORKER = "worker"


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: PortNumber = 1234
    """Port of the coordinator, which is in process 0."""


class Jax:
    name: ClassVar[str] = "jax"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return with_default_policies(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from require_role(workload, WORKER)

    def rules(self, workload: Workload) -> Rules:
        return Rules(
            succeeded_when=((WORKER,),),
            failed_when=((WORKER,),),
            restart_scope=RestartScope.JOB,
            resize=ResizeMode.RESTART,
            services=tuple(workload.roles),
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        if role.name != WORKER:
            return Injection()
        port = options_of(workload, Options).port
        return Injection(
            env={
                "JAX_COORDINATOR_ADDRESS": f"{workload.address(WORKER, 0)}:{port}",
                "JAX_NUM_PROCESSES": str(role.replicas),
                "JAX_PROCESS_ID": str(index),
                "PYTHONUNBUFFERED": "1",
            },
            ports=(Port("coordinator", port),) if index == 0 else (),
        )
