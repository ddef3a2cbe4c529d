"""`ring`: an adapter from outside of Argosy. Every pod of role `worker` knows its rank and the next pod.

`pip install` it where the operator runs, and a TrainingRun may say `framework: ring`. What it needs of Argosy
is what it imports; `argosy conformance framework ring` tries it with its samples.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from argosy.frameworks.base import Injection, Port, Sample
from argosy.frameworks.common import options_of, require_role, with_default_policies
from argosy.workload.model import Problem, ResizeMode, RestartScope, Role, Rules, Workload

WORKER = "worker"


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: Annotated[int, Meta(ge=1, le=65535)] = 7000
    """Where each waits for the one before it."""


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
        """A ring that is broken, or has another size, is made anew."""
        return Rules(
            succeeded_when=((WORKER,),),
            failed_when=((WORKER,),),
            restart_scope=RestartScope.JOB,
            resize=ResizeMode.RESTART,
            services=(WORKER,),
        )

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
