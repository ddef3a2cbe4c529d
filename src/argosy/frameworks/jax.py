"""JAX: one process in each pod; they join in `jax.distributed.initialize`.

Role `worker`. JAX itself reads `JAX_COORDINATOR_ADDRESS`. The number of processes and the process id are
arguments of `initialize`, so they are set as variables with similar names. On CPU its collectives use gloo. A
lost process ends the others, so the whole job restarts; a new size restarts it too.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import (
    WORKER,
    PortNumber,
    group_rules,
    options_of,
    require_role,
    with_default_policies,
)
from argosy.workload.model import Problem, Role, Rules, Workload


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: PortNumber = 1234
    """Port of the coordinator, which runs in process 0."""


class Jax:
    name: ClassVar[str] = "jax"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return with_default_policies(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from require_role(workload, WORKER)

    def rules(self, workload: Workload) -> Rules:
        return group_rules(workload, (WORKER,))

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
