"""An API of TrainingRuns whose launcher reads a host list: it tests host lists apart from any API's rules.

Workers are listed when they run, without a command in them. A lost worker is replaced under a new index.
"""

from dataclasses import replace as replace_api
from typing import TYPE_CHECKING

from msgspec.structs import replace

from argosy.dialects.trainingrun.dialect import TrainingRunDialect, training_run_api
from argosy.frameworks.base import HostFolders, Injection
from argosy.kinds.kubernetes import ConfigMapMetadata
from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.apis.base import Api, start_controllers
from argosy.operator.rbac import HOST_LIST_RULES, job_rules
from argosy.workload.host_list import HostFile, HostList
from argosy.workload.model import (
    Dependency,
    Problems,
    ReplacementBudget,
    ReplacementPolicy,
    RestartPolicy,
    RestartScope,
    Role,
    RolePolicy,
    Rules,
    Workload,
)
from tests.support.builders import RunBuilder, run

if TYPE_CHECKING:
    from argosy.operator.manager import Manager
    from argosy.operator.settings import Settings

DISCOVER = """#!/bin/sh
while read -r host; do echo "$host"; done < {folder}/hostfile
"""


def listed_run(name: str = "mnist", workers: int = 2, **roles: object) -> RunBuilder:
    """A TrainingRun with a launcher and workers; `roles` are fields of both roles."""
    return run(name).role("worker", workers, **roles).role("launcher", 1, **roles)


class ListedRunDialect(TrainingRunDialect):
    """TrainingRuns with a host list whose files are in this folder of the launcher."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def to_workload(self, obj: TrainingRun) -> Workload | Problems:
        workload = super().to_workload(obj)
        if isinstance(workload, Problems):
            return workload
        launcher = replace(
            workload.roles["launcher"],
            depends_on=(Dependency("worker", holds_creation=True),),
            replacement=ReplacementPolicy(scope=RestartScope.JOB),
        )
        worker = replace(
            workload.roles["worker"],
            restart=RestartPolicy.ON_FAILURE,
            policy=RolePolicy(ends=False, node_down_as_failed=True),
            replacement=ReplacementPolicy(
                RestartScope.POD, next_index=True, budget=ReplacementBudget(limit=20)
            ),
        )
        rules = Rules(
            succeeded_when=(("launcher",),),
            failed_when=(("launcher",),),
            pod_services=("worker",),
            host_list=self._host_list(),
        )
        return replace(workload, roles={"launcher": launcher, "worker": worker}, rules=rules)

    def _host_list(self) -> HostList:
        folder = self._folder
        hosts = HostFile("hostfile", "{host}:{slots}\n", paths=(f"{folder}/hostfile",), mode=0o600)
        script = HostFile("discover.sh", text=DISCOVER.format(folder=folder), mode=0o755)
        return HostList(
            role="worker",
            launcher="launcher",
            container="main",
            launcher_container="main",
            launcher_folder=folder,
            attach_check=(),
            files=(hosts, replace(script, paths=(f"{folder}/discover.sh",))),
            config_map="{job}-config",
        )


def listed_runs_api(folder: str = "/etc/edl") -> Api:
    """Return the registration of this API."""
    plain = training_run_api()

    def inject(workload: Workload, role: Role, index: int) -> Injection | None:
        injection = plain.inject(workload, role, index)
        if injection is None or role.name != "launcher":
            return injection
        folders = HostFolders({folder: "hosts"}, config_folder="/etc/hosts-config")
        return replace(injection, host_folders=folders)

    def add_controllers(manager: "Manager", settings: "Settings") -> None:
        del settings
        dialect = ListedRunDialect(folder)
        manager.add_jobs(replace_api(plain, dialect=dialect, inject=inject, child_kinds=(ConfigMapMetadata,)))

    resource = TrainingRun.resource
    return Api(
        name="listed",
        custom_resources=(TrainingRun,),
        rules=(*job_rules(resource.group, resource.plural), *HOST_LIST_RULES),
        start=start_controllers(add_controllers),
    )
