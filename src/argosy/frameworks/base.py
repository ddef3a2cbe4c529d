"""The interface of framework adapters, and what an adapter can request for a pod.

An adapter is pure: it maps a Workload to data. What it requests (variables, files, dependencies, remote exec)
is added to the pod by the renderer, in the same way for every framework.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import ClassVar, Protocol, runtime_checkable

from msgspec import Struct, field

from argosy.kinds import labels
from argosy.workload.model import Dependency, Json, Problem, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

REMOTE_AGENT = "/opt/argosy/remote-exec"
"""An executable that is called like ssh, `REMOTE_AGENT HOST COMMAND…`; HOST is the host name or full DNS name
of a pod."""


class Port(Struct, frozen=True):
    name: str
    number: int


class Initializer(Struct, frozen=True):
    """An init container that replaces the helper's, with the name and arguments that an API prescribes."""

    name: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    field_env: Mapping[str, str] = field(default_factory=dict)
    """Variables whose values are fields of the pod."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Volume by path: empty folders shared with all containers, unless the first container mounts a volume
    there."""
    image: str = ""
    """The helper's image if empty."""
    command: tuple[str, ...] = ()
    """Runs instead of the helper with `arguments`, if set."""
    host_folders: Mapping[str, str] = field(default_factory=dict)
    """Path by volume: folders of the node, mounted at the same path in this container only."""
    url: str = ""
    """The endpoint that it queries; the operator's if empty."""
    tls: bool = True
    """False if that endpoint has no certificate."""


class HostFolders(Struct, frozen=True):
    """Where a launcher has the files of its host list (`Rules.host_list`).

    A sidecar of the helper keeps them current. It runs as the user of the first container, if the template
    names one, so that this user can read files that nobody else may.
    """

    folders: Mapping[str, str]
    """Volume by path: empty folders shared with the first container, unless that mounts a volume there. They
    contain all paths of the files, and `HostList.launcher_folder`."""
    config_folder: str = ""
    """Where the first container has the files of the ConfigMap; empty: nowhere."""
    config_volume: str = "argosy-hosts-config"
    init_container: str = labels.HOSTS_INIT_CONTAINER
    """Name of the init container that writes the files before the launcher starts."""
    init_image: str = ""
    """Its image; the helper's if empty."""
    init_command: tuple[str, ...] = ()
    """Runs in it instead of the helper, if set; it finds the ConfigMap in `config_folder`."""
    init_resources: Json = field(default_factory=dict)
    """Its requests and limits; the helper's if empty."""


class Injection(Struct, frozen=True):
    """What a framework adds to a pod."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every container; they replace existing ones only if listed in `override_env`."""
    override_env: frozenset[str] = frozenset()
    env_container: str = ""
    """The only container that gets the variables; all containers if empty."""
    field_env: Mapping[str, str] = field(default_factory=dict)
    """Further variables, whose values are fields of the pod, such as `status.podIP`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Content by absolute path, written before any container of the user starts."""
    ports: tuple[Port, ...] = ()
    """Container ports, added unless the container has one with that name or number."""
    ports_container: str = ""
    """The container that gets the ports; the first if there is none of this name."""
    depends_on: tuple[Dependency, ...] = ()
    """Roles that an init container waits for."""
    initializer: "Initializer | None" = None
    """Replaces the init container that waits, if set."""
    remote_exec: bool = False
    """Whether the pod starts processes in other pods of the job: it gets `REMOTE_AGENT` and a service
    account."""
    remote_volume: str = "argosy-remote"
    """Name of the volume with the programs for remote exec."""
    remote_folder: str = str(PurePosixPath(REMOTE_AGENT).parent)
    """Where it is mounted."""
    host_folders: HostFolders | None = None
    """Set for a launcher whose files with the host list are kept current."""
    default_command: tuple[str, ...] = ()
    """Command of the first container if it has neither command nor args."""
    dns_searches: tuple[str, ...] = ()
    """Additional DNS search domains, so that the short host names of the job's pods resolve."""
    volumes: tuple[Json, ...] = ()
    """Further volumes of the pod."""
    mounts: tuple[Json, ...] = ()
    """Their mounts in all containers."""
    first_container_mounts: tuple[Json, ...] = ()
    """Their mounts in the first container only."""
    init_containers: tuple[Json, ...] = ()
    """Init containers that run before the user's own."""
    force_service_account: bool = False
    """Whether the pod has the account for remote exec even if the template names another one."""
    identity: bool = True
    """Whether containers get `ARGOSY_JOB`, `ARGOSY_ROLE` and the other variables that identify their pod."""


SSH_FOLDER = "/root/.ssh"
"""The folder of the job's keys in pods that use ssh."""


class RankInfo(Struct, frozen=True):
    """The ranks in a pod's environment."""

    rank: int | None = None
    """The rank of its first process; None if the pod has none or does not get it."""
    world_size: int | None = None
    """The number of processes; None if the pod does not get it."""


class Sample(Struct, frozen=True, kw_only=True):
    """A job that an adapter accepts, for the conformance kit, and where its pods find their ranks."""

    title: str
    roles: Mapping[str, int]
    """Replicas by role."""
    options: Json = field(default_factory=dict)
    elastic: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Minimum and maximum size of elastic roles."""
    rank_variable: str = ""
    """The variable with the rank of a pod's first process; empty if the adapter assigns no ranks."""
    world_size_variable: str = ""
    """The variable with the number of processes."""
    read_ranks: Callable[[Injection], RankInfo] | None = None
    """Reads the ranks from something else, such as a host file, if there are no such variables."""
    ranked_roles: tuple[str, ...] = ("worker",)
    """The roles whose pods have ranks."""
    slots: int = 1
    """Processes in each of their pods."""


class Framework(Protocol):
    """An adapter for a framework, found by name through the entry-point group `argosy.frameworks`."""

    name: ClassVar[str]
    Options: ClassVar[type[Struct]]
    """The type of `spec.options`; unknown fields are rejected."""

    def defaults(self, workload: Workload) -> Workload:
        """Return the workload with defaults for what the user omitted: role policies, dependencies, slots."""
        ...

    def check(self, workload: Workload) -> Iterator[Problem]:
        """Yield what this framework does not support. `Options` have been validated before."""
        ...

    def rules(self, workload: Workload) -> Rules:
        """Return job policy, restart scope and services, which follow from the roles."""
        ...

    def inject(self, workload: Workload, role: Role, index: int) -> Injection: ...


@runtime_checkable
class ListsAddresses(Protocol):
    """Optional interface of an adapter whose pods get the addresses of others: computes the size of that.

    With it, a job whose pods would be too large for the API server is rejected before anything is created.
    """

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        """Return how many bytes of JSON `inject` adds to a pod of this role."""
        ...


def list_bytes(framework: Framework, workload: Workload, role: Role) -> ListBytes:
    """Return how many bytes an adapter adds to a pod; zero if it does not implement `ListsAddresses`."""
    return framework.list_bytes(workload, role) if isinstance(framework, ListsAddresses) else ListBytes()
