"""What several adapters need: reading options, GPUs in a template, the usual policies."""

from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.kinds.quantity import parse_quantity
from argosy.workload.model import Dependency, Json, Problem, Quantifier, Role, RolePolicy, Workload

O = TypeVar("O", bound=Struct)  # noqa: E741 - the options of a framework

PortNumber = Annotated[int, Meta(ge=1, le=65535)]
GPU_SUFFIXES = ("/gpu", "/gpus")


def options_of(workload: Workload, kind: type[O]) -> O:
    """The typed options; they were checked when the object was lowered."""
    return msgspec.convert(dict(workload.options), kind)


def gpus(template: Json) -> int:
    """GPUs that one pod of the template asks for, of whatever make."""
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
    """Training processes in a pod of this role: as told, else its GPUs, else one."""
    return role.slots or gpus(role.template) or 1


def with_defaults(
    role: Role, *, node_down_as_failed: bool = False, depends_on: Iterable[Dependency] = ()
) -> Role:
    """The role with the usual policy (any pod fails it, all make it succeed) where none was given."""
    policy = role.policy or RolePolicy(node_down_as_failed=node_down_as_failed)
    policy = RolePolicy(
        failed=policy.failed or Quantifier.ANY,
        succeeded=policy.succeeded or Quantifier.ALL,
        node_down_as_failed=policy.node_down_as_failed,
    )
    wants = role.depends_on if role.depends_on else tuple(depends_on)
    return replace(role, policy=policy, depends_on=wants)


def with_default_policies(workload: Workload) -> Workload:
    """The workload with the usual policy in every role that has none."""
    return replace(workload, roles={name: with_defaults(role) for name, role in workload.roles.items()})


def require_role(workload: Workload, name: str) -> list[Problem]:
    """A problem if a role that the framework cannot do without is not there."""
    if name in workload.roles:
        return []
    return [Problem("spec.roles", f"framework {workload.framework} needs a role {name!r}")]


def require_single(workload: Workload, name: str) -> list[Problem]:
    """A problem if there are several pods of a role that there can be only one of."""
    role = workload.roles.get(name)
    if role is None or role.replicas == 1:
        return []
    return [Problem(f"spec.roles.{name}.replicas", f"there is one {name}, not {role.replicas}; write 1")]


def variable_bytes(name: str, value: int) -> int:
    """How much JSON a variable takes whose value is so long."""
    return len('{"name":"","value":""},') + len(name) + value


def _whole(amount: object) -> int:
    try:
        return int(parse_quantity(str(amount)))
    except ValueError:
        return 0
