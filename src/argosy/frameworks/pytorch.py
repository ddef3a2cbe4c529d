"""PyTorch: static process groups, and torchrun's elastic ones when role `worker` has `elastic`.

Roles: `worker`, and optionally one `master`, which then is rank 0. The variables are for scripts that call
`init_process_group` themselves and for torchrun, which reads those named `PET_…`. A static group cannot lose
or gain a member, so a lost pod or a new size restarts the whole job; an elastic group continues.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import (
    MASTER,
    WORKER,
    PortNumber,
    group_rules,
    has_elastic_workers,
    options_of,
    present_roles,
    require_role,
    require_single,
    slots,
    with_default_policies,
)
from argosy.workload.model import Problem, Role, Rules, Workload

MAX_RESTARTS = 100


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    procs_per_node: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Processes in a pod; if unset, the role's slots, its GPUs, else 1."""
    port: PortNumber = 29500
    """Port on which rank 0 listens."""
    max_restarts: Annotated[int, Meta(ge=0, le=10_000)] = MAX_RESTARTS
    """How often torchrun restarts the group before it gives up (elastic only)."""


class PyTorch:
    name: ClassVar[str] = "pytorch"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return with_default_policies(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from require_role(workload, WORKER) if MASTER not in workload.roles else ()
        yield from require_single(workload, MASTER)
        if MASTER in workload.roles and has_elastic_workers(workload):
            yield Problem("spec.roles.master", "not supported with elastic workers: one of them is rank 0")

    def rules(self, workload: Workload) -> Rules:
        elastic = has_elastic_workers(workload)
        rules = group_rules(workload, _ranked_roles(workload), elastic=elastic)
        # Worker 0 hosts the store of the rendezvous, without which no other worker can continue.
        return replace(rules, coordinators=(WORKER,), regrouping_roles=(WORKER,)) if elastic else rules

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        ranked = _ranked_roles(workload)
        if role.name not in ranked:
            return Injection()
        options = options_of(workload, Options)
        procs = options.procs_per_node or slots(role)
        env = {
            "LOCAL_WORLD_SIZE": str(procs),
            "PET_NPROC_PER_NODE": str(procs),
            "PYTHONUNBUFFERED": "1",
        }
        ports = (Port("rendezvous", options.port),) if index == 0 and role.name == ranked[0] else ()
        if role.elastic:
            rendezvous = rendezvous_variables(workload, role, options.port, options.max_restarts)
            return Injection(env={**env, **rendezvous}, ports=ports)
        rank = index + (1 if role.name == WORKER and MASTER in ranked else 0)
        return Injection(env={**env, **_static(workload, options, rank, procs)}, ports=ports)


def _static(workload: Workload, options: Options, rank: int, procs: int) -> dict[str, str]:
    ranked = _ranked_roles(workload)
    nodes = sum(workload.roles[name].replicas for name in ranked)
    address = workload.address(ranked[0], 0)
    env = {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(options.port),
        "WORLD_SIZE": str(nodes * procs),
        "RANK": str(rank * procs),
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(options.port),
    }
    return {**env, "LOCAL_RANK": "0"} if procs == 1 else env


def rendezvous_variables(workload: Workload, role: Role, port: int, max_restarts: int) -> dict[str, str]:
    """Return the variables of torchrun in a pod of an elastic group, whose first replica is the host."""
    assert role.elastic
    return {
        "PET_NNODES": f"{role.elastic.min}:{role.elastic.max}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{workload.address(role.name, 0)}:{port}",
        "PET_RDZV_ID": workload.name,
        "PET_MAX_RESTARTS": str(max_restarts),
        # Surviving agents do not publish the shared store again, so a replaced agent could not join.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def _ranked_roles(workload: Workload) -> tuple[str, ...]:
    """Return the roles whose pods have ranks, in the order of their ranks."""
    return present_roles(workload, (MASTER, WORKER))
