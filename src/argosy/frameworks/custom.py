"""`custom`: no framework at all. Every pod is told who it is and where the others are.

Variables: `ROLE`, `INDEX`, and for every role `ROLE_<NAME>` (addresses of its pods, comma between),
`ROLE_<NAME>_SIZE` and `ROLE_<NAME>_SERVICE`; NAME is upper case with `_` for `-`. Of a role with more than
500 pods the list is left out, since one variable has room for about that many: its service name gives all
addresses by DNS.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection
from argosy.frameworks.common import variable_bytes, with_default_policies
from argosy.workload.model import Problem, ResizeMode, RestartScope, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

LARGEST_LIST = 500


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """There are none."""


class Custom:
    name: ClassVar[str] = "custom"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return with_default_policies(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from ()

    def rules(self, workload: Workload) -> Rules:
        return Rules(
            succeeded_when=(tuple(sorted(workload.roles)),),
            failed_when=tuple((name,) for name in workload.roles),
            restart_scope=RestartScope.POD,
            resize=ResizeMode.LIVE,
            services=tuple(workload.roles),
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        env = {"ROLE": role.name, "INDEX": str(index)}
        for name, other in workload.roles.items():
            word = variable_of(name)
            env[f"{word}_SIZE"] = str(other.replicas)
            env[f"{word}_SERVICE"] = workload.service_address(name)
            if other.replicas <= LARGEST_LIST:
                env[word] = workload.address_list(name)
        return Injection(env=env)

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        del role
        total = 0
        for name, other in workload.roles.items():
            word = variable_of(name)
            total += variable_bytes(f"{word}_SIZE", len(str(other.replicas)))
            total += variable_bytes(f"{word}_SERVICE", len(workload.service_address(name)))
            if other.replicas <= LARGEST_LIST:
                total += variable_bytes(word, workload.address_bytes(name))
        return ListBytes(per_container=total)


def variable_of(role: str) -> str:
    """The variable with the addresses of a role, under a name that every shell can read."""
    return "ROLE_" + role.upper().replace("-", "_")
