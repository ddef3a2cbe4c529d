"""Injects into pods what each framework type needs, exactly as AresOperator does.

What `frameworks` injects in the same form is taken from there. Every variable here overrides one of the same
name in the template, except those that AresOperator did not set. Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

import msgspec
from msgspec import Struct, field

from argosy.dialects.ares.initializers import CACHE_URI, Initializers, LocateObserver, operator_endpoint
from argosy.dialects.ares.profiles import ETCD, LAUNCHER, LEADWORKER, MASTER, SCHEDULER, WORKER
from argosy.dialects.templates import (
    container_named,
    default_container,
    port_named,
    port_numbers,
    uses_host_network,
)
from argosy.frameworks import bagua, pytorch, tensorflow
from argosy.frameworks.base import Initializer, Injection, Port
from argosy.frameworks.common import variable_bytes
from argosy.frameworks.custom import variable_of
from argosy.frameworks.mpi import AS_ROOT, Implementation, host_variables
from argosy.kinds import labels
from argosy.workload.model import Role, Workload
from argosy.workload.pod_size import ListBytes

PYTORCH_PORT: Final = 23456
MAX_VARIABLE_BYTES: Final = 128 * 1024 - 256
"""The longest variable with which Linux still starts a program, less some space for its name."""
RELEASE_FILE: Final = ".ares-init"
"""Name of a file next to a host file: if a user creates it, the init container stops waiting."""
_HOST_FOLDER: Final = "configurations"


class Options(Struct, frozen=True):
    """The options of a job's framework, complete."""

    ports: tuple[int, ...] = ()
    elastic: bool = False
    min_size: int = 0
    max_size: int = 0
    dynamic: bool = False
    slots: int = 1
    implementation: str = "ompi"
    launcher_as_host: bool = True
    host_files: Mapping[str, str] = field(default_factory=dict)
    """Paths of host files in the pods of each role, separated by commas."""


def options_of(workload: Workload) -> Options:
    return msgspec.convert(dict(workload.options), Options)


def inject(
    workload: Workload,
    role: Role,
    index: int,
    initializers: Initializers = Initializers(),
    locate: LocateObserver = operator_endpoint,
) -> Injection:
    """Return the variables, ports and initializer of one pod."""
    injection = _INJECTORS.get(workload.framework, _no_injection)(workload, role, index)
    return msgspec.structs.replace(injection, initializer=_initializer(workload, role, initializers, locate))


def _initializer(
    workload: Workload, role: Role, initializers: Initializers, locate: LocateObserver
) -> Initializer | None:
    options = options_of(workload)
    files = options.host_files.get(role.name, "")
    wants = role.depends_on or ()
    if not wants and not files:
        return None
    arguments = ["cache", "--key", f"{workload.namespace}.{workload.name}", "--cacheURI", "$(ARGOSY_URL)"]
    if wants:
        arguments += ["--roles", ",".join(want.role for want in wants), "--phase", wants[0].phase.value]
    arguments += ["--interval", "5s", "--timeout", "0", "--max-retries", "240"]
    if files:
        arguments += ["--write-mpi-hostfile-to", files, "--mpi-host-replicas", str(options.slots)]
        arguments += ["--mpi-implementation", options.implementation]
        arguments += [] if options.launcher_as_host else ["--include-self=false"]
    folders = list(dict.fromkeys(str(PurePosixPath(path).parent) for path in files.split(",") if path))
    if folders:  # the only folder of its own in which the container may write
        arguments += ["--hack-file", f"{folders[0]}/{RELEASE_FILE}"]
    address = locate(uses_host_network(role.template))
    values = {**_template_values(workload, role, options), CACHE_URI: address.uri}
    return Initializer(
        labels.INITIALIZER_CONTAINER,
        tuple(arguments),
        env={"ARES_TOKEN": "$(ARGOSY_TOKEN)", **initializers.env},
        field_env={"KS_KUBE_HOST_IP": "status.hostIP", "LOCAL_IP": "status.hostIP", "POD_IP": "status.podIP"},
        folders={path: f"{_HOST_FOLDER}-{n}" if n else _HOST_FOLDER for n, path in enumerate(folders)},
        image=initializers.image,
        command=initializers.command.argv(values) if initializers.command else (),
        host_folders=initializers.volumes,
        url=address.uri,
        tls=address.tls,
    )


def _template_values(workload: Workload, role: Role, options: Options) -> dict[str, str]:
    """Return the variables of an administrator's command. Without a host file there are no slots."""
    wants, files = role.depends_on or (), options.host_files.get(role.name, "")
    return {
        "Name": workload.name,
        "Namespace": workload.namespace,
        "Key": f"{workload.namespace}.{workload.name}",
        "Roles": ",".join(want.role for want in wants),
        "RolePhase": wants[0].phase.value if wants else "",
        "MPIHostFile": files,
        "ReplicasPerNode": str(options.slots if files else 0),
        "MPIImplementation": options.implementation if files else "",
    }


def _no_injection(workload: Workload, role: Role, index: int) -> Injection:
    del workload, role, index
    return Injection()


def _standalone(workload: Workload, role: Role, index: int) -> Injection:
    """Inject no variables at all, not even ours."""
    del workload, role, index
    return Injection(identity=False)


def _custom(workload: Workload, role: Role, index: int) -> Injection:
    env = {"MODULE": role.name, "INDEX": str(index)}
    for name in workload.roles:
        if _fits_into_variable(workload, name):
            env |= dict.fromkeys(list_variables(name), workload.address_list(name))
    return _overriding(env)


def list_variables(role: str) -> tuple[str, ...]:
    """Return the variables with the addresses of a role in a `custom` job; none may begin with a digit."""
    return (variable_of(role),) if role[0].isdigit() else (role, variable_of(role))


def roles_without_address_list(workload: Workload) -> Iterator[str]:
    """Yield the roles of a `custom` job whose list of addresses is too long for a variable."""
    if workload.framework == "custom":
        for name in workload.roles:
            if not _fits_into_variable(workload, name):
                yield name


def _fits_into_variable(workload: Workload, role: str) -> bool:
    """Return True if a program can be started with the addresses of the role in one variable."""
    return workload.address_bytes(role) - 1 <= MAX_VARIABLE_BYTES


def list_bytes(workload: Workload, role: Role) -> ListBytes:
    """Return how much JSON `inject` adds to a pod of this role that grows with the size of the job."""
    size = _LIST_BYTES.get(workload.framework, _no_bytes)(workload, role)
    # Each folder of a host file is mounted into every container.
    folders = len(options_of(workload).host_files.get(role.name, ""))
    return msgspec.structs.replace(size, per_container=size.per_container + folders)


def _no_bytes(workload: Workload, role: Role) -> ListBytes:
    del workload, role
    return ListBytes()


def _custom_bytes(workload: Workload, role: Role) -> ListBytes:
    del role
    total = sum(
        variable_bytes(variable, workload.address_bytes(name))
        for name in workload.roles
        if _fits_into_variable(workload, name)
        for variable in list_variables(name)
    )
    return ListBytes(per_container=total)


def _tensorflow_bytes(workload: Workload, role: Role) -> ListBytes:
    ports = _tensorflow_ports(workload)
    dynamic = options_of(workload).dynamic
    size = tensorflow.config_bytes(workload, role, ports, dynamic=dynamic)
    return msgspec.structs.replace(size, env_container="tensorflow")


def _bagua_bytes(workload: Workload, role: Role) -> ListBytes:
    options = options_of(workload)
    return ListBytes() if options.elastic else bagua.static_bytes(workload, role, options.ports)


def _pytorch(workload: Workload, role: Role, index: int) -> Injection:
    if role.name not in (MASTER, WORKER):
        return Injection()
    if role.elastic:
        return _pytorch_elastic(workload, role, index)
    container = container_named(workload.roles[MASTER].template, "pytorch") or {}
    port = port_named(container, "pytorch") or PYTORCH_PORT
    master, size, rank = workload.address(MASTER, 0), 1 + _size(workload, WORKER), _rank(role, index)
    env = {
        "MASTER_ADDR": "0.0.0.0" if role.name == MASTER else master,  # noqa: S104 - where the master listens
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "RANK": str(rank),
    }
    torchrun = {
        "PET_NNODES": str(size),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": str(port),
    }
    ports = (Port("pytorch", port),) if role.name == MASTER else ()
    return Injection({**env, **torchrun}, frozenset(env), ports=ports, ports_container="pytorch")


def _pytorch_elastic(workload: Workload, role: Role, index: int) -> Injection:
    """Return the variables of torchrun in one of its workers, the first of which hosts the rendezvous."""
    container = container_named(role.template, "pytorch") or {}
    port = port_named(container, "pytorch") or PYTORCH_PORT
    env = pytorch.rendezvous_variables(workload, role, port, pytorch.MAX_RESTARTS)
    ports = (Port("pytorch", port),) if index == 0 else ()
    return Injection(env, ports=ports, ports_container="pytorch")


def _tensorflow(workload: Workload, role: Role, index: int) -> Injection:
    ports = (Port(tensorflow.PORT_NAME, tensorflow.PORT),)
    if role.name not in tensorflow.KNOWN:
        return Injection(ports=ports, ports_container="tensorflow")
    hosts = tensorflow.cluster_hosts(workload, role, index, _tensorflow_ports(workload))
    env = tensorflow.variables(role.name, index, hosts, dynamic=options_of(workload).dynamic)
    return Injection(env, frozenset(env), "tensorflow", ports=ports, ports_container="tensorflow")


def _tensorflow_ports(workload: Workload) -> dict[str, int]:
    """Return the port of each role."""
    containers = {
        name: default_container(role.template, "tensorflow") for name, role in workload.roles.items()
    }
    return {
        name: port_named(container, tensorflow.PORT_NAME) or tensorflow.PORT
        for name, container in containers.items()
    }


def _mpi(workload: Workload, role: Role, index: int) -> Injection:
    del index
    options = options_of(workload)
    files = options.host_files.get(role.name, "")
    if not files:
        return Injection()
    implementation = Implementation(options.implementation)
    env = host_variables(implementation, files.split(",")[0], role)
    if implementation is Implementation.OPEN_MPI and workload.rules.ssh_roles:
        env |= AS_ROOT  # the keys are root's
    return Injection(env)


def _dask(workload: Workload, role: Role, index: int) -> Injection:
    scheduler = workload.service_address(SCHEDULER)
    port = _dask_port(workload, SCHEDULER)
    if role.name == SCHEDULER:
        env = {"SCHEDULER": f"tcp://{scheduler}:{port}"}
        return Injection(env, frozenset({"SCHEDULER", "MY_IP"}), field_env={"MY_IP": "status.podIP"})
    if role.name not in (LEADWORKER, WORKER, LAUNCHER):
        return Injection()
    env = {"SchedulerAddress": scheduler, "SchedulerPort": str(port)}
    if WORKER not in workload.roles or workload.roles[WORKER].elastic is None:
        env |= _dask_ring(workload, role, index)
    if role.name == LAUNCHER:
        env["SCHEDULER"] = f"tcp://{scheduler}:{port}"
    return _overriding(env)


def _dask_ring(workload: Workload, role: Role, index: int) -> dict[str, str]:
    """Return ranks over all pods but the scheduler, which there are none of if their number may change."""
    size = sum(_size(workload, name) for name in (LEADWORKER, WORKER, LAUNCHER))
    first = LEADWORKER if LEADWORKER in workload.roles else LAUNCHER
    rank = {LEADWORKER: 0, WORKER: index + 1, LAUNCHER: size - 1}[role.name]
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "0.0.0.0" if role.name == first else workload.service_address(first),  # noqa: S104 - as above
        "MASTER_PORT": str(_dask_port(workload, first)),
    }


def _dask_port(workload: Workload, name: str) -> int:
    numbers = port_numbers(container_named(workload.roles[name].template, "dask") or {})
    return numbers[0] if numbers else 0


def _bagua(workload: Workload, role: Role, index: int) -> Injection:
    options = options_of(workload)
    if options.elastic:
        return _bagua_elastic(workload, options, role, index)
    if role.name not in (MASTER, WORKER):
        return Injection()
    env = bagua.static_variables(workload, role, index, options.ports)
    forced = frozenset(env) | {"LOCAL_IP"}
    return Injection(
        env, forced, field_env={"LOCAL_IP": "status.hostIP"}, ports=bagua.container_ports(options.ports)
    )


def _bagua_elastic(workload: Workload, options: Options, role: Role, index: int) -> Injection:
    if role.name == ETCD:
        return _overriding(bagua.etcd_ports(options.ports), bagua.container_ports(options.ports[:2]))
    if role.name != WORKER:
        return Injection()
    ports = bagua.share(options.ports[2:], role.replicas, index)
    sizes = options.min_size, options.max_size
    return _overriding(
        bagua.elastic_variables(workload, options.ports, ports, *sizes), bagua.container_ports(ports)
    )


def _rank(role: Role, index: int) -> int:
    return 0 if role.name == MASTER else index + 1


def _size(workload: Workload, name: str) -> int:
    return workload.roles[name].replicas if name in workload.roles else 0


def _overriding(env: dict[str, str], ports: tuple[Port, ...] = ()) -> Injection:
    return Injection(env, frozenset(env), ports=ports)


_INJECTORS: Final[Mapping[str, Callable[[Workload, Role, int], Injection]]] = {
    "bagua": _bagua,
    "custom": _custom,
    "dask": _dask,
    "mpi": _mpi,
    "pytorch": _pytorch,
    "standalone": _standalone,
    "tensorflow": _tensorflow,
}

_LIST_BYTES: Final[Mapping[str, Callable[[Workload, Role], ListBytes]]] = {
    "bagua": _bagua_bytes,
    "custom": _custom_bytes,
    "tensorflow": _tensorflow_bytes,
}
