"""`standalone`: pods that know nothing of each other, such as one training on one machine, or a sweep.

Role `worker`, and others beside it if wanted. Each pod finds its number in `ARGOSY_INDEX`, as every pod does,
and nothing else is set; there is nobody to be found by name, so there are no services. A lost pod is replaced
alone.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection
from argosy.frameworks.common import require_role, with_default_policies
from argosy.workload.model import Problem, ResizeMode, RestartScope, Role, Rules, Workload

WORKER = "worker"


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """There are none."""


class Standalone:
    name: ClassVar[str] = "standalone"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return with_default_policies(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from require_role(workload, WORKER)

    def rules(self, workload: Workload) -> Rules:
        return Rules(
            succeeded_when=((WORKER,),),
            failed_when=((WORKER,),),
            restart_scope=RestartScope.POD,
            resize=ResizeMode.LIVE,
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        return Injection()
