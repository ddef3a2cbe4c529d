"""`custom`: no framework. Every pod gets its own role and index, and the addresses of all pods.

Variables: `ROLE`, `INDEX`, and for every role `ROLE_<NAME>` (addresses of its pods, separated by commas),
`ROLE_<NAME>_SIZE` and `ROLE_<NAME>_SERVICE`; NAME is upper case with `_` for `-`. Roles with more than 500
pods have no list of addresses, because a variable cannot be much longer: their service name resolves to all
addresses.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection
from argosy.frameworks.common import NoOptions, variable_bytes, with_default_policies
from argosy.workload.model import Problem, ResizeMode, RestartScope, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

MAX_LISTED_PODS = 500


class Custom:
    name: ClassVar[str] = "custom"
    Options: ClassVar[type[Struct]] = NoOptions

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
            if other.replicas <= MAX_LISTED_PODS:
                env[word] = workload.address_list(name)
        return Injection(env=env)

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        del role
        total = 0
        for name, other in workload.roles.items():
            word = variable_of(name)
            total += variable_bytes(f"{word}_SIZE", len(str(other.replicas)))
            total += variable_bytes(f"{word}_SERVICE", len(workload.service_address(name)))
            if other.replicas <= MAX_LISTED_PODS:
                total += variable_bytes(word, workload.address_bytes(name))
        return ListBytes(per_container=total)


def variable_of(role: str) -> str:
    """Return the name of the variable with the addresses of a role, which every shell can read."""
    return "ROLE_" + role.upper().replace("-", "_")
