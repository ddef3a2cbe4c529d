"""`standalone`: independent pods, such as training on a single machine, or a sweep.

Role `worker`, and optionally others. Each pod gets its index in `ARGOSY_INDEX`, as every pod does, and
nothing else. There are no services, because no pod needs to find another. A lost pod is replaced alone.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection
from argosy.frameworks.common import WORKER, NoOptions, require_role, with_default_policies
from argosy.workload.model import Problem, ResizeMode, RestartScope, Role, Rules, Workload


class Standalone:
    name: ClassVar[str] = "standalone"
    Options: ClassVar[type[Struct]] = NoOptions

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
