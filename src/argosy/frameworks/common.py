"""Shared by several adapters: typed options, GPUs of a template, default policies and rules."""

from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.kinds.quantity import parse_quantity
from argosy.workload.model import (
    Dependency,
    Json,
    Problem,
    Quantifier,
    ResizeMode,
    RestartScope,
    Role,
    RolePolicy,
    Rules,
    Workload,
)

O = TypeVar("O", bound=Struct)  # noqa: E741 - the options of a framework

PortNumber = Annotated[int, Meta(ge=1, le=65535)]
GPU_SUFFIXES = ("/gpu", "/gpus")
MASTER, WORKER = "master", "worker"


class NoOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a framework that has none."""


def options_of(workload: Workload, kind: type[O]) -> O:
    """Return the typed options, which were validated when the job was read."""
    return msgspec.convert(dict(workload.options), kind)


def gpus(template: Json) -> int:
    """Return how many GPUs of any vendor a pod of the template requests."""
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    total = 0
    for container in containers if isinstance(containers, list) else ():
        resources = container.get("resources") if isinstance(container, dict) else None
        limits = resources.get("limits") if isinstance(resources, dict) else None
        for name, amount in limits.items() if isinstance(limits, dict) else ():
            if name.endswith(GPU_SUFFIXES):
                total += _whole(amount)
    return total


def slots(role: Role) -> int:
    """Return the number of training processes in a pod: the role's slots, else its GPUs, else one."""
    return role.slots or gpus(role.template) or 1


def with_defaults(
    role: Role, *, node_down_as_failed: bool = False, depends_on: Iterable[Dependency] = ()
) -> Role:
    """Return the role with defaults: any failed pod fails it, and it succeeds when all pods do."""
    policy = role.policy or RolePolicy(node_down_as_failed=node_down_as_failed)
    policy = RolePolicy(
        failed=policy.failed or Quantifier.ANY,
        succeeded=policy.succeeded or Quantifier.ALL,
        node_down_as_failed=policy.node_down_as_failed,
    )
    return replace(role, policy=policy, depends_on=role.depends_on or tuple(depends_on))


def with_default_policies(workload: Workload) -> Workload:
    """Return the workload with the default policy in every role that has none."""
    return replace(workload, roles={name: with_defaults(role) for name, role in workload.roles.items()})


def require_role(workload: Workload, name: str) -> list[Problem]:
    """Return a problem if a required role is missing."""
    if name in workload.roles:
        return []
    return [Problem("spec.roles", f"framework {workload.framework} requires a role {name!r}")]


def require_single(workload: Workload, name: str) -> list[Problem]:
    """Return a problem if a role that may have only one pod has another number."""
    role = workload.roles.get(name)
    if role is None or role.replicas == 1:
        return []
    return [Problem(f"spec.roles.{name}.replicas", f"invalid value {role.replicas}: must be 1")]


def present_roles(workload: Workload, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names that are roles of the job, in the same order."""
    return tuple(name for name in names if name in workload.roles)


def has_elastic_workers(workload: Workload) -> bool:
    worker = workload.roles.get(WORKER)
    return worker is not None and worker.elastic is not None


def group_rules(workload: Workload, members: tuple[str, ...], *, elastic: bool = False) -> Rules:
    """Return the rules of roles whose processes form one group: all must succeed, any may fail the job.

    A static group cannot lose or gain a member, so a lost pod or a new size restarts the whole job. An
    elastic group continues while single pods are replaced.
    """
    return Rules(
        succeeded_when=(members,),
        failed_when=tuple((name,) for name in members),
        restart_scope=RestartScope.POD if elastic else RestartScope.JOB,
        resize=ResizeMode.LIVE if elastic else ResizeMode.RESTART,
        services=tuple(workload.roles),
    )


def variable_bytes(name: str, value_bytes: int) -> int:
    """Return how many bytes of JSON a variable takes whose value has this length."""
    return len('{"name":"","value":""},') + len(name) + value_bytes


def _whole(amount: object) -> int:
    try:
        return int(parse_quantity(str(amount)))
    except ValueError:
        return 0
