"""TensorFlow: every process finds all others, and its own part, in `TF_CONFIG`.

Roles `chief` or `master` (one pod), `worker`, `ps` and `evaluator`; others take no part. An evaluator knows
the cluster without being in it, as TensorFlow has it. A single process gets no `TF_CONFIG`: with one it
would wait for others.

Without `ps` all train as one and none can be lost, so the job starts anew as a whole. With `ps` the workers
and parameter servers only serve a chief, which outlives the loss of a worker: pods are replaced one by one,
and the job has succeeded when its chief has, since servers never end.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import (
    PortNumber,
    options_of,
    require_single,
    variable_bytes,
    with_default_policies,
)
from argosy.workload.model import Problem, ResizeMode, RestartScope, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

CHIEF, MASTER, WORKER, SERVER, EVALUATOR = "chief", "master", "worker", "ps", "evaluator"
LEADERS = (MASTER, CHIEF)
TRAINING = (*LEADERS, WORKER)
"""Whose success is the job's, in this order."""
CLUSTER = (*TRAINING, SERVER)
KNOWN = (*CLUSTER, EVALUATOR)
PORT_NAME = "tfjob-port"
PORT = 2222
Hosts = Mapping[str, list[str]]
"""Address and port of every pod, by role."""


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: PortNumber = PORT
    """Port of every process."""
    dynamic_workers: bool = False
    """A worker is told of itself and the parameter servers only, so that workers may come and go."""


class TensorFlow:
    name: ClassVar[str] = "tensorflow"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return with_default_policies(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        if not any(name in workload.roles for name in TRAINING):
            said = "framework tensorflow needs a role 'worker', 'chief' or 'master'"
            yield Problem("spec.roles", said)
        if all(name in workload.roles for name in LEADERS):
            yield Problem("spec.roles.master", "is another word for chief; take one of them away")
        for name in LEADERS:
            yield from require_single(workload, name)

    def rules(self, workload: Workload) -> Rules:
        dynamic = options_of(workload, Options).dynamic_workers
        alone = dynamic or SERVER in workload.roles
        return Rules(
            succeeded_when=(_decisive(workload),),
            failed_when=tuple((name,) for name in KNOWN if name in workload.roles),
            restart_scope=RestartScope.POD if alone else RestartScope.JOB,
            resize=ResizeMode.LIVE if dynamic else ResizeMode.RESTART,
            services=tuple(workload.roles),
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        if role.name not in KNOWN:
            return Injection()
        options = options_of(workload, Options)
        hosts = {name: hosts_at(workload.addresses[name], options.port) for name in workload.roles}
        env = variables(role.name, index, hosts, dynamic=options.dynamic_workers)
        return Injection(env=env, ports=(Port(PORT_NAME, options.port),))

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        options = options_of(workload, Options)
        return config_bytes(
            workload, role, dict.fromkeys(workload.roles, options.port), dynamic=options.dynamic_workers
        )


def _decisive(workload: Workload) -> tuple[str, ...]:
    """The roles that must succeed: with parameter servers the chief if there is one, else all that train."""
    leaders = tuple(name for name in LEADERS if name in workload.roles)
    if leaders and SERVER in workload.roles:
        return leaders
    return tuple(name for name in TRAINING if name in workload.roles)


def variables(role: str, index: int, hosts: Hosts, *, dynamic: bool) -> dict[str, str]:
    """`TF_CONFIG` of the pod in this place: the cluster, in which the evaluator is not, and its own task.

    `hosts` are those of every role; without a second one that TensorFlow knows there is nothing to tell.
    """
    if sum(len(hosts.get(name, ())) for name in KNOWN) < 2:
        return {}
    config: dict[str, object] = {"task": {"index": index, "type": role}}
    if dynamic:
        config["sparseCluster"] = _sparse_cluster(role, index, hosts)
    else:
        config["cluster"] = {name: hosts[name] for name in CLUSTER if name in hosts}
        config["environment"] = "cloud"
    return {"TF_CONFIG": json.dumps(config, sort_keys=True, separators=(",", ":"))}


def config_bytes(workload: Workload, role: Role, ports: Mapping[str, int], *, dynamic: bool) -> ListBytes:
    """How long `variables` makes `TF_CONFIG` for a pod of this role, given the port of each role."""
    if role.name not in KNOWN:
        return ListBytes()
    listed = ((SERVER,) if role.name == WORKER else ()) if dynamic else CLUSTER
    escaped = len('\\"\\",')  # quotes in a text that stands in JSON itself
    total = sum(
        workload.address_bytes(name, extra=len(f":{ports[name]}") + escaped)
        for name in listed
        if name in workload.roles
    )
    return ListBytes(per_container=variable_bytes("TF_CONFIG", total))


def _sparse_cluster(role: str, index: int, hosts: Hosts) -> dict[str, object]:
    """A worker sees itself and all parameter servers; one of these sees itself; others see nobody."""
    itself = hosts[role][index]
    servers = {WORKER: hosts.get(SERVER, []), SERVER: [itself]}
    return {"ps": servers.get(role, []), "worker": {str(index): itself} if role == WORKER else {}}


def hosts_at(addresses: Iterable[str], port: int) -> list[str]:
    return [f"{address}:{port}" for address in addresses]
