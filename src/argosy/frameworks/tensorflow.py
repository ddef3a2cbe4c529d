"""TensorFlow: every process gets the cluster and its own task in `TF_CONFIG`.

Roles `chief` or `master` (one pod), `worker`, `ps` and `evaluator`; other roles get no `TF_CONFIG`. An
evaluator gets the cluster without being part of it, as TensorFlow expects. A single process gets no
`TF_CONFIG`, because it would wait for others.

Without `ps` all processes form one group, so a lost pod restarts the whole job. With `ps` the workers and
parameter servers only serve a chief, which survives the loss of a worker: pods are replaced one by one, and
the job succeeds when its chief does, because servers never end.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from msgspec import Struct

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import (
    MASTER,
    WORKER,
    PortNumber,
    options_of,
    present_roles,
    require_single,
    variable_bytes,
    with_default_policies,
)
from argosy.workload.model import Problem, ResizeMode, RestartScope, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

CHIEF, SERVER, EVALUATOR = "chief", "ps", "evaluator"
LEADERS = (MASTER, CHIEF)
TRAINING = (*LEADERS, WORKER)
"""Roles that train, in the order of their ranks; their success is the job's."""
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
    """Whether a worker gets only itself and the parameter servers, so that their number may change."""


class TensorFlow:
    name: ClassVar[str] = "tensorflow"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return with_default_policies(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        if not any(name in workload.roles for name in TRAINING):
            yield Problem("spec.roles", "framework tensorflow requires a role 'worker', 'chief' or 'master'")
        if all(name in workload.roles for name in LEADERS):
            yield Problem("spec.roles.master", "not supported with role 'chief', which means the same")
        for name in LEADERS:
            yield from require_single(workload, name)

    def rules(self, workload: Workload) -> Rules:
        dynamic = options_of(workload, Options).dynamic_workers
        alone = dynamic or SERVER in workload.roles
        return Rules(
            succeeded_when=(_decisive(workload),),
            failed_when=tuple((name,) for name in present_roles(workload, KNOWN)),
            restart_scope=RestartScope.POD if alone else RestartScope.JOB,
            resize=ResizeMode.LIVE if dynamic else ResizeMode.RESTART,
            services=tuple(workload.roles),
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        if role.name not in KNOWN:
            return Injection()
        options = options_of(workload, Options)
        hosts = cluster_hosts(workload, role, index, dict.fromkeys(workload.roles, options.port))
        env = variables(role.name, index, hosts, dynamic=options.dynamic_workers)
        return Injection(env=env, ports=(Port(PORT_NAME, options.port),))

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        options = options_of(workload, Options)
        return config_bytes(
            workload, role, dict.fromkeys(workload.roles, options.port), dynamic=options.dynamic_workers
        )


def _decisive(workload: Workload) -> tuple[str, ...]:
    """Return the roles that must succeed: the chief if there are parameter servers, else all that train."""
    leaders = present_roles(workload, LEADERS)
    if leaders and SERVER in workload.roles:
        return leaders
    return present_roles(workload, TRAINING)


def variables(role: str, index: int, hosts: Hosts, *, dynamic: bool) -> dict[str, str]:
    """Return `TF_CONFIG` with the cluster, without the evaluator, and the pod's own task.

    `hosts` are those of every role; there is no `TF_CONFIG` if only one of them takes part.
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
    """Return the size of `TF_CONFIG` in a pod of this role, given the port of each role."""
    if role.name not in KNOWN:
        return ListBytes()
    listed = ((SERVER,) if role.name == WORKER else ()) if dynamic else CLUSTER
    escaped = len('\\"\\",')  # the quotes of a string within a JSON string
    total = sum(
        workload.address_bytes(name, extra=len(f":{ports[name]}") + escaped)
        for name in listed
        if name in workload.roles
    )
    return ListBytes(per_container=variable_bytes("TF_CONFIG", total))


def _sparse_cluster(role: str, index: int, hosts: Hosts) -> dict[str, object]:
    """Return the sparse cluster: a worker with all parameter servers, or one server, or nothing."""
    itself = hosts[role][index]
    servers = {WORKER: hosts.get(SERVER, []), SERVER: [itself]}
    return {"ps": servers.get(role, []), "worker": {str(index): itself} if role == WORKER else {}}


def cluster_hosts(
    workload: Workload, role: Role, index: int, ports: Mapping[str, int]
) -> dict[str, list[str]]:
    """Return the hosts of every role for one pod, given the port of each role."""
    hosts = {name: _hosts_at(workload.addresses[name], ports[name]) for name in workload.roles}
    if index >= role.replicas:  # in the place of another replica of an elastic role
        extra = (workload.address(role.name, number) for number in range(role.replicas, index + 1))
        hosts[role.name] += _hosts_at(extra, ports[role.name])
    return hosts


def _hosts_at(addresses: Iterable[str], port: int) -> list[str]:
    return [f"{address}:{port}" for address in addresses]
