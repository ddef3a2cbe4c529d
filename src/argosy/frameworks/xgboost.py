"""XGBoost: workers that connect to a tracker, which the program in the first worker starts.

Role `worker`. XGBoost reads no variables; those set here are named like the arguments of its collective, in
upper case. Task ids are padded with zeros, because the tracker sorts them as text to assign ranks
(`sortby="task"`): so a pod's rank is its index. A lost worker ends the training, so the whole job restarts.
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
    port: PortNumber = 9091
    """Port of the tracker."""


class XGBoost:
    name: ClassVar[str] = "xgboost"
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
                "DMLC_TRACKER_URI": workload.address(WORKER, 0),
                "DMLC_TRACKER_PORT": str(port),
                "DMLC_NUM_WORKER": str(role.replicas),
                "DMLC_TASK_ID": str(index).zfill(len(str(role.replicas - 1))),
                "PYTHONUNBUFFERED": "1",
            },
            ports=(Port("tracker", port),) if index == 0 else (),
        )
