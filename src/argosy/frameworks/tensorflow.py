"""TensorFlow: every process finds all others, and its own part, in `TF_CONFIG`.

Roles `chief` or `master` (one pod), `worker`, `ps` and `evaluator`; others take no part. An evaluator knows
the cluster without being in it, as TensorFlow has it. A single process gets no `TF_CONFIG`: with one it
would wait for others.

Without `ps` all train as one and none can be lost, so the job starts anew as a whole. With `ps` the workers
and parameter servers only serve a chief, which outlives the loss of a worker: pods are replaced one by one,
and the job has succeeded when its chief has, since servers never end.
"""

import json
from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import PortNumber, at_most_one, options_of, with_usual_roles
from argosy.workload.model import Problem, Resize, Role, Rules, Scope, Workload

CHIEF, MASTER, WORKER, SERVER, EVALUATOR = "chief", "master", "worker", "ps", "evaluator"
LEADERS = (MASTER, CHIEF)
TRAINING = (*LEADERS, WORKER)
"""Whose success is the job's, in this order."""
CLUSTER = (*TRAINING, SERVER)
KNOWN = (*CLUSTER, EVALUATOR)
PORT_NAME = "tfjob-port"


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: PortNumber = 2222
    """Port of every process."""
    dynamic_workers: bool = False
    """A worker is told of itself and the parameter servers only, so that workers may come and go."""


class TensorFlow:
    name: ClassVar[str] = "tensorflow"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return with_usual_roles(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        if not any(name in workload.roles for name in TRAINING):
            said = "framework tensorflow needs a role 'worker', 'chief' or 'master'"
            yield Problem("spec.roles", said)
        if all(name in workload.roles for name in LEADERS):
            yield Problem("spec.roles.master", "is another word for chief; take one of them away")
        for name in LEADERS:
            yield from at_most_one(workload, name)

    def rules(self, workload: Workload) -> Rules:
        dynamic = options_of(workload, Options).dynamic_workers
        alone = dynamic or SERVER in workload.roles
        return Rules(
            succeeded_when=(_decisive(workload),),
            failed_when=tuple((name,) for name in KNOWN if name in workload.roles),
            restart_scope=Scope.POD if alone else Scope.JOB,
            resize=Resize.LIVE if dynamic else Resize.RESTART,
            services=tuple(workload.roles),
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        if role.name not in KNOWN:
            return Injection()
        options = options_of(workload, Options)
        ports = (Port(PORT_NAME, options.port),)
        if sum(one.replicas for one in workload.roles.values() if one.name in KNOWN) < 2:
            return Injection(ports=ports)
        config: dict[str, object] = {"task": {"index": index, "type": role.name}}
        if options.dynamic_workers:
            config["sparseCluster"] = _sparse_cluster(workload, role, index, options.port)
        else:
            config["cluster"] = _cluster(workload, options.port)
            config["environment"] = "cloud"
        return Injection(env={"TF_CONFIG": json.dumps(config, sort_keys=True)}, ports=ports)


def _decisive(workload: Workload) -> tuple[str, ...]:
    """The roles that must succeed: with parameter servers the chief if there is one, else all that train."""
    leaders = tuple(name for name in LEADERS if name in workload.roles)
    if leaders and SERVER in workload.roles:
        return leaders
    return tuple(name for name in TRAINING if name in workload.roles)


def _cluster(workload: Workload, port: int) -> dict[str, object]:
    return {name: _addresses(workload, name, port) for name in CLUSTER if name in workload.roles}


def _sparse_cluster(workload: Workload, role: Role, index: int, port: int) -> dict[str, object]:
    """A worker sees itself and all parameter servers; one of these sees itself; others see nobody."""
    itself = f"{workload.address(role.name, index)}:{port}"
    servers = {
        WORKER: _addresses(workload, SERVER, port) if SERVER in workload.roles else [],
        SERVER: [itself],
    }
    workers = {str(index): itself} if role.name == WORKER else {}
    return {"ps": servers.get(role.name, []), "worker": workers}


def _addresses(workload: Workload, name: str, port: int) -> list[str]:
    return [f"{address}:{port}" for address in workload.addresses[name]]
