"""The face of a framework adapter, and what it may ask for in a pod.

An adapter is pure: it sees a Workload and answers with data. Whatever it asks for (variables, files, waits,
remote exec) is put into the pod by the renderer, the same way for every framework.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Protocol, runtime_checkable

from msgspec import Struct, field

from argosy.workload.model import Dependency, Json, Problem, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes


class Port(Struct, frozen=True):
    name: str
    number: int


class Initializer(Struct, frozen=True):
    """An init container that takes the place of the helper's own, with a name and arguments of the API's."""

    name: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    field_env: Mapping[str, str] = field(default_factory=dict)
    """Variables whose values are fields of the pod."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Volume by path: empty folders that it shares with all containers, unless the first container mounts a
    volume there."""
    image: str = ""
    """The helper's image if empty."""
    command: tuple[str, ...] = ()
    """Runs in place of the helper and `arguments`, if set."""
    host_folders: Mapping[str, str] = field(default_factory=dict)
    """Path by volume: folders of the node, mounted under the same path in this container alone."""
    url: str = ""
    """The endpoint that it asks; the operator's if empty."""
    tls: bool = True
    """False if that endpoint has no certificate."""


class Injection(Struct, frozen=True):
    """What one pod needs from its framework."""

    env: Mapping[str, str] = field(default_factory=dict)
    """For every container; replaces a variable of that name only if listed in `override_env`."""
    override_env: frozenset[str] = frozenset()
    env_container: str = ""
    """The one container that gets the variables; all of them if empty."""
    field_env: Mapping[str, str] = field(default_factory=dict)
    """Further variables, whose values are fields of the pod itself, such as `status.podIP`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute path to content, present before any container of the user starts."""
    ports: tuple[Port, ...] = ()
    """Container ports added to a container unless it has one of that name or number."""
    ports_container: str = ""
    """The container that gets the ports; the first if there is none of this name."""
    depends_on: tuple[Dependency, ...] = ()
    """Roles to wait for in an init container."""
    initializer: "Initializer | None" = None
    """The init container that waits, where it is not to be the usual one."""
    remote_exec: bool = False
    """The pod starts processes in the job's other pods: give it `REMOTE_AGENT` and a service account for
    it."""
    default_command: tuple[str, ...] = ()
    """For the first container if it names neither command nor args."""
    dns_searches: tuple[str, ...] = ()
    """DNS search domains added, so that the short host names of the job's pods resolve."""
    identity: bool = True
    """Whether containers are told which pod they are in (`ARGOSY_JOB`, `ARGOSY_ROLE`, …)."""


SSH_FOLDER = "/root/.ssh"
"""Where pods that reach each other by ssh have the job's keys."""

REMOTE_AGENT = "/opt/argosy/remote-exec"
"""The executable with ssh's face, `REMOTE_AGENT HOST COMMAND…`; HOST is a pod's host name or its full DNS
name."""


class RankInfo(Struct, frozen=True):
    """What one pod is told of ranks."""

    rank: int | None = None
    """Of its first process; None if it has none, or is not told."""
    world_size: int | None = None
    """How many processes there are; None if it is not told."""


class Sample(Struct, frozen=True, kw_only=True):
    """A job that an adapter accepts, to hold it to the conformance kit; and what it tells of ranks."""

    title: str
    roles: Mapping[str, int]
    """How many pods each has."""
    options: Json = field(default_factory=dict)
    elastic: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of roles that are elastic, the least and the greatest size."""
    rank_variable: str = ""
    """The variable with the rank of a pod's first process; none if the adapter gives no ranks."""
    world_size_variable: str = ""
    """The variable with the number of processes."""
    read_ranks: Callable[[Injection], RankInfo] | None = None
    """Where there are no such variables: reads what a pod is given, such as a host file."""
    ranked_roles: tuple[str, ...] = ("worker",)
    """The roles whose pods have ranks."""
    slots: int = 1
    """Processes in each of their pods."""


class Framework(Protocol):
    """One framework. Found by name through the entry-point group `argosy.frameworks`."""

    name: ClassVar[str]
    Options: ClassVar[type[Struct]]
    """The shape of `spec.options`; unknown fields are refused."""

    def defaults(self, workload: Workload) -> Workload:
        """The workload with what its user left out filled in: role policies, dependencies, slots."""
        ...

    def check(self, workload: Workload) -> Iterator[Problem]:
        """What this framework cannot work with. Options have been checked against `Options` before."""
        ...

    def rules(self, workload: Workload) -> Rules:
        """The job policy, restart scope and services that follow from the roles."""
        ...

    def inject(self, workload: Workload, role: Role, index: int) -> Injection: ...


@runtime_checkable
class ListsAddresses(Protocol):
    """What an adapter has besides whose pods are told of all others: how much that is, without making it.

    A job whose pods are too large to be stored is refused by it before anything is created.
    """

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        """How much JSON `inject` adds to a pod of this role."""
        ...


def list_bytes(framework: Framework, workload: Workload, role: Role) -> ListBytes:
    """The same of any adapter; nothing if it does not say."""
    return framework.list_bytes(workload, role) if isinstance(framework, ListsAddresses) else ListBytes()
