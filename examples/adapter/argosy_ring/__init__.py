"""`ring`: an adapter in a package of its own. Every pod of role `worker` gets its rank and the next pod.

Install it with `pip` where the operator runs; then TrainingRuns can use `framework: ring`. The command
`argosy conformance framework ring` tests it with its samples.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection, Port, Sample
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
    port: PortNumber = 7000
    """Port on which each pod waits for the one before it."""


class Ring:
    name: ClassVar[str] = "ring"
    Options: ClassVar[type[Struct]] = Options
    samples: ClassVar[tuple[Sample, ...]] = (
        Sample(
            title="three in a ring",
            roles={WORKER: 3},
            rank_variable="RING_RANK",
            world_size_variable="RING_SIZE",
        ),
    )

    def defaults(self, workload: Workload) -> Workload:
        return with_default_policies(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from require_role(workload, WORKER)

    def rules(self, workload: Workload) -> Rules:
        """A lost pod breaks the ring, so the whole job restarts."""
        return group_rules(workload, (WORKER,))

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        if role.name != WORKER:
            return Injection()
        port = options_of(workload, Options).port
        following = workload.address(WORKER, (index + 1) % role.replicas)
        return Injection(
            env={
                "RING_RANK": str(index),
                "RING_SIZE": str(role.replicas),
                "RING_NEXT": f"{following}:{port}",
                "RING_PORT": str(port),
            },
            ports=(Port("ring", port),),
        )
