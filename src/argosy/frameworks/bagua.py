"""Bagua: a static group around a master, or an elastic one around etcd when role `worker` has `elastic`.

Static: one `master`, which is rank 0, and `worker`. Elastic: `worker` and one `etcd`, which runs an etcd if
it has no command; workers meet there under the job's name. Bagua wants to be told which ports it may use: the
first two are for meeting, the others for its own servers, in the elastic form shared out among the workers.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.common import PortNumber, options_of, require_role, require_single, with_defaults
from argosy.workload.model import Dependency, Problem, ResizeMode, RestartScope, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

MASTER, WORKER, ETCD = "master", "worker", "etcd"
FIRST_PORT = 12345


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    available_ports: Annotated[tuple[PortNumber, ...], Meta(max_length=1000)] = ()
    """Ports to hand out; if empty, as many as are needed from 12345 on."""


class Bagua:
    name: ClassVar[str] = "bagua"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        first = ETCD if _elastic(workload) else MASTER
        waits = (Dependency(first),) if first in workload.roles else ()
        return replace(
            workload,
            roles={
                name: with_defaults(role, depends_on=waits if name == WORKER else ())
                for name, role in workload.roles.items()
            },
        )

    def check(self, workload: Workload) -> Iterator[Problem]:
        needed = (WORKER, ETCD) if _elastic(workload) else (MASTER,)
        for name in needed:
            yield from require_role(workload, name)
        for name in (MASTER, ETCD):
            yield from require_single(workload, name)
        if _elastic(workload) and MASTER in workload.roles:
            said = "an elastic group meets at its etcd; take the role away or take elastic away"
            yield Problem("spec.roles.master", said)
        yield from _port_problems(workload)

    def rules(self, workload: Workload) -> Rules:
        elastic = _elastic(workload)
        deciding = (WORKER,) if elastic else _ranked(workload)
        failing = (WORKER, ETCD) if elastic else deciding
        return Rules(
            succeeded_when=(deciding,),
            failed_when=tuple((name,) for name in failing if name in workload.roles),
            restart_scope=RestartScope.POD if elastic else RestartScope.JOB,
            resize=ResizeMode.LIVE if elastic else ResizeMode.RESTART,
            services=tuple(workload.roles),
        )

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        ports = _ports(workload)
        if _elastic(workload):
            return _in_elastic(workload, role, index, ports)
        return _in_static(workload, role, index, ports)

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        if _elastic(workload):
            return ListBytes()
        return static_bytes(workload, role, _ports(workload))


def _in_static(workload: Workload, role: Role, index: int, ports: tuple[int, ...]) -> Injection:
    if role.name not in _ranked(workload):
        return Injection()
    return Injection(env=static_variables(workload, role, index, ports), ports=named(ports))


def static_variables(workload: Workload, role: Role, index: int, ports: tuple[int, ...]) -> dict[str, str]:
    """What the master and the workers of a static group are told."""
    ranked = _ranked(workload)
    return {
        "BAGUA_SSH_PORT": str(ports[0]),
        "MASTER_PORT": str(ports[1]),
        "BAGUA_AVAILABLE_PORTS": _joined(ports[2:]),
        "MASTER_ADDR": workload.address(MASTER, 0),
        "WORLD_SIZE": str(sum(workload.roles[name].replicas for name in ranked)),
        "RANK": str(index + 1 if role.name == WORKER else 0),
        "BAGUA_NODE_DOMAIN_NAMES": ",".join(map(workload.address_list, ranked)),
        "SERVICE_DOMAIN_NAME": " ".join(map(workload.service_address, reversed(ranked))),
    }


def static_bytes(workload: Workload, role: Role, ports: tuple[int, ...]) -> ListBytes:
    """How much `static_variables` and the ports add to a pod of this role."""
    ranked = _ranked(workload)
    if role.name not in ranked:
        return ListBytes()
    addresses = sum(map(workload.address_bytes, ranked))
    listed = len("65535,") * len(ports)
    named_port = len('{"name":"port-65535","containerPort":65535},')
    return ListBytes(per_container=addresses + listed, ports=named_port * len(ports))


def _in_elastic(workload: Workload, role: Role, index: int, ports: tuple[int, ...]) -> Injection:
    if role.name == ETCD:
        return Injection(
            # Bagua's client speaks version 2, which etcd has up to 3.5.
            env={**meeting_ports(ports), "ETCD_ENABLE_V2": "true"},
            ports=named(ports[:2]),
            default_command=_etcd(workload, ports[0], ports[1]),
        )
    if role.name != WORKER or role.elastic is None:
        return Injection()
    sizes = role.elastic.min, role.elastic.max
    mine = share(ports[2:], role.replicas, index)
    return Injection(env=elastic_variables(workload, ports, mine, *sizes), ports=named(mine))


def meeting_ports(ports: tuple[int, ...]) -> dict[str, str]:
    """What etcd is told, and those that come to it."""
    return {"ETCD_CLIENT_PORT": str(ports[0]), "ETCD_SERVER_PORT": str(ports[1])}


def elastic_variables(
    workload: Workload, ports: tuple[int, ...], mine: tuple[int, ...], least: int, most: int
) -> dict[str, str]:
    """What a worker of an elastic group is told, whose own part of the ports is `mine`."""
    return {
        **meeting_ports(ports),
        "ETCD_HOST": workload.address(ETCD, 0),
        "JOB_ID": workload.name,
        "MIN_SIZE": str(least),
        "MAX_SIZE": str(most),
        "SERVICE_DOMAIN_NAME": workload.service_address(WORKER),
        "BAGUA_SSH_PORT": _joined(mine[:1]),
        "BAGUA_AVAILABLE_PORTS": _joined(mine[1:]),
    }


def share(ports: tuple[int, ...], replicas: int, index: int) -> tuple[int, ...]:
    """The part of the ports that is for one of the replicas: all parts are of one size."""
    size = len(ports) // replicas
    return ports[size * index : size * (index + 1)]


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
        yield Problem(path, "a port is named twice; write each once")
    if ports and len(ports) < _least(workload):
        yield Problem(path, f"{len(ports)} are too few; write at least {_least(workload)}, or none at all")


def _ports(workload: Workload) -> tuple[int, ...]:
    ports = options_of(workload, Options).available_ports
    if ports:
        return ports
    workers = workload.roles[WORKER].replicas if WORKER in workload.roles else 0
    more = 2 * workers if _elastic(workload) else 2
    return tuple(range(FIRST_PORT, FIRST_PORT + 2 + more))


def _least(workload: Workload) -> int:
    return 2 + workload.roles[WORKER].replicas if _elastic(workload) else 2


def _elastic(workload: Workload) -> bool:
    worker = workload.roles.get(WORKER)
    return worker is not None and worker.elastic is not None


def _ranked(workload: Workload) -> tuple[str, ...]:
    return tuple(name for name in (MASTER, WORKER) if name in workload.roles)


def _joined(ports: tuple[int, ...]) -> str:
    return ",".join(map(str, ports))


def named(ports: tuple[int, ...]) -> tuple[Port, ...]:
    """The same as ports of a container."""
    return tuple(Port(f"port-{port}", port) for port in ports)
