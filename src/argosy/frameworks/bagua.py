"""Bagua: a static group with a master, or an elastic one with etcd when role `worker` has `elastic`.

Static: one `master`, which is rank 0, and `worker`. Elastic: `worker` and one `etcd`, which runs etcd if it
has no command; workers register there under the job's name. Bagua needs a list of ports that it may use: the
first two are for the rendezvous, the others for its own servers; elastic workers share the latter.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import (
    MASTER,
    WORKER,
    PortNumber,
    group_rules,
    has_elastic_workers,
    options_of,
    present_roles,
    require_role,
    require_single,
    with_defaults,
)
from argosy.workload.model import Dependency, Problem, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

ETCD = "etcd"
FIRST_PORT = 12345


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    available_ports: Annotated[tuple[PortNumber, ...], Meta(max_length=1000)] = ()
    """Ports that Bagua may use; if empty, as many as needed from 12345 on."""


class Bagua:
    name: ClassVar[str] = "bagua"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        first = ETCD if has_elastic_workers(workload) else MASTER
        dependencies = (Dependency(first),) if first in workload.roles else ()
        return replace(
            workload,
            roles={
                name: with_defaults(role, depends_on=dependencies if name == WORKER else ())
                for name, role in workload.roles.items()
            },
        )

    def check(self, workload: Workload) -> Iterator[Problem]:
        elastic = has_elastic_workers(workload)
        for name in (WORKER, ETCD) if elastic else (MASTER,):
            yield from require_role(workload, name)
        for name in (MASTER, ETCD):
            yield from require_single(workload, name)
        if elastic and MASTER in workload.roles:
            yield Problem("spec.roles.master", "not supported with elastic workers, which use role 'etcd'")
        yield from _port_problems(workload)

    def rules(self, workload: Workload) -> Rules:
        if not has_elastic_workers(workload):
            return group_rules(workload, _ranked_roles(workload))
        failing = present_roles(workload, (WORKER, ETCD))
        rules = group_rules(workload, (WORKER,), elastic=True)
        failed_when = tuple((name,) for name in failing)
        return replace(rules, failed_when=failed_when, regrouping_roles=(WORKER,))

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        ports = _ports(workload)
        if has_elastic_workers(workload):
            return _inject_elastic(workload, role, index, ports)
        return _inject_static(workload, role, index, ports)

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        if has_elastic_workers(workload):
            return ListBytes()
        return static_bytes(workload, role, _ports(workload))


def _inject_static(workload: Workload, role: Role, index: int, ports: tuple[int, ...]) -> Injection:
    if role.name not in _ranked_roles(workload):
        return Injection()
    return Injection(env=static_variables(workload, role, index, ports), ports=container_ports(ports))


def static_variables(workload: Workload, role: Role, index: int, ports: tuple[int, ...]) -> dict[str, str]:
    """Return the variables of the master and the workers of a static group."""
    ranked = _ranked_roles(workload)
    return {
        "BAGUA_SSH_PORT": str(ports[0]),
        "MASTER_PORT": str(ports[1]),
        "BAGUA_AVAILABLE_PORTS": _join_ports(ports[2:]),
        "MASTER_ADDR": workload.address(MASTER, 0),
        "WORLD_SIZE": str(sum(workload.roles[name].replicas for name in ranked)),
        "RANK": str(index + 1 if role.name == WORKER else 0),
        "BAGUA_NODE_DOMAIN_NAMES": ",".join(map(workload.address_list, ranked)),
        "SERVICE_DOMAIN_NAME": " ".join(map(workload.service_address, reversed(ranked))),
    }


def static_bytes(workload: Workload, role: Role, ports: tuple[int, ...]) -> ListBytes:
    """Return how many bytes `static_variables` and the ports add to a pod of this role."""
    ranked = _ranked_roles(workload)
    if role.name not in ranked:
        return ListBytes()
    addresses = sum(map(workload.address_bytes, ranked))
    listed = len("65535,") * len(ports)
    named_port = len('{"name":"port-65535","containerPort":65535},')
    return ListBytes(per_container=addresses + listed, ports=named_port * len(ports))


def _inject_elastic(workload: Workload, role: Role, index: int, ports: tuple[int, ...]) -> Injection:
    if role.name == ETCD:
        return Injection(
            # Bagua's client uses API version 2, which etcd supports up to 3.5.
            env={**etcd_ports(ports), "ETCD_ENABLE_V2": "true"},
            ports=container_ports(ports[:2]),
            default_command=_etcd(workload, ports[0], ports[1]),
        )
    if role.name != WORKER or role.elastic is None:
        return Injection()
    sizes = role.elastic.min, role.elastic.max
    own_ports = share(ports[2:], role.replicas, index)
    return Injection(
        env=elastic_variables(workload, ports, own_ports, *sizes), ports=container_ports(own_ports)
    )


def etcd_ports(ports: tuple[int, ...]) -> dict[str, str]:
    """Return the variables with etcd's ports, for etcd itself and for the workers."""
    return {"ETCD_CLIENT_PORT": str(ports[0]), "ETCD_SERVER_PORT": str(ports[1])}


def elastic_variables(
    workload: Workload, ports: tuple[int, ...], own_ports: tuple[int, ...], minimum: int, maximum: int
) -> dict[str, str]:
    """Return the variables of a worker of an elastic group; `own_ports` are those of this worker."""
    return {
        **etcd_ports(ports),
        "ETCD_HOST": workload.address(ETCD, 0),
        "JOB_ID": workload.name,
        "MIN_SIZE": str(minimum),
        "MAX_SIZE": str(maximum),
        "SERVICE_DOMAIN_NAME": workload.service_address(WORKER),
        "BAGUA_SSH_PORT": _join_ports(own_ports[:1]),
        "BAGUA_AVAILABLE_PORTS": _join_ports(own_ports[1:]),
    }


def share(ports: tuple[int, ...], replicas: int, index: int) -> tuple[int, ...]:
    """Return the ports of one replica; all replicas have equally many.

    A replica in the place of another one has an index above their number, and shares the ports of a third.
    """
    size, part = len(ports) // replicas, index % replicas
    return ports[size * part : size * (part + 1)]


def _etcd(workload: Workload, client: int, peer: int) -> tuple[str, ...]:
    address = workload.address(ETCD, 0)
    return (
        "etcd",
        f"--listen-client-urls=http://0.0.0.0:{client}",
        f"--advertise-client-urls=http://{address}:{client}",
        f"--listen-peer-urls=http://0.0.0.0:{peer}",
        f"--initial-advertise-peer-urls=http://{address}:{peer}",
        f"--initial-cluster=default=http://{address}:{peer}",
        "--data-dir=/tmp/etcd",
        "--log-level=warn",
    )


def _port_problems(workload: Workload) -> Iterator[Problem]:
    ports = options_of(workload, Options).available_ports
    path = "spec.options.availablePorts"
    if len(set(ports)) < len(ports):
        yield Problem(path, "duplicate port: each must be listed once")
    if ports and len(ports) < _required_ports(workload):
        yield Problem(path, f"too few ports: must be empty or at least {_required_ports(workload)}")


def _ports(workload: Workload) -> tuple[int, ...]:
    ports = options_of(workload, Options).available_ports
    if ports:
        return ports
    workers = workload.roles[WORKER].replicas if WORKER in workload.roles else 0
    server_ports = 2 * workers if has_elastic_workers(workload) else 2
    return tuple(range(FIRST_PORT, FIRST_PORT + 2 + server_ports))


def _required_ports(workload: Workload) -> int:
    return 2 + workload.roles[WORKER].replicas if has_elastic_workers(workload) else 2


def _ranked_roles(workload: Workload) -> tuple[str, ...]:
    return present_roles(workload, (MASTER, WORKER))


def _join_ports(ports: tuple[int, ...]) -> str:
    return ",".join(map(str, ports))


def container_ports(ports: tuple[int, ...]) -> tuple[Port, ...]:
    """Return the numbers as ports of a container."""
    return tuple(Port(f"port-{port}", port) for port in ports)
