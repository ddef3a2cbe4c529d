"""What is wanted: a `Workload`, the one shape into which every dialect lowers its objects.

Everything here is frozen and plain data, so that a decision is a function of values and two equal workloads
are treated alike. A field that a dialect leaves out is filled by the framework's `defaults`, never guessed
by a policy: a policy may assume that `Role.policy`, `Rules` and the rest are complete.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Final

from msgspec import Struct, field

from argosy.kinds.dns_names import is_label_value
from argosy.kinds.messages import join_messages
from argosy.workload.semantics import Semantics

Json = Mapping[str, object]
"""A JSON object as the API server sent it."""

MAX_PODS: Final = 99_999
"""Of one job: more than any cluster has room for, and few enough to count."""


DEFAULT_CLUSTER_DOMAIN = "cluster.local"


class Phase(StrEnum):
    """Where a job is. A role uses the same words without Restarting and Suspended."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class RestartPolicy(StrEnum):
    """Which ended pods of a role are replaced. ExitCode: those ended by a signal or lost without a code
    (128+)."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    EXIT_CODE = "ExitCode"


class RestartScope(StrEnum):
    """How much is started anew when one pod must be replaced."""

    POD = "Pod"
    ROLE = "Role"
    JOB = "Job"


class Quantifier(StrEnum):
    """How many pods decide a role's outcome."""

    ANY = "AnyPod"
    ALL = "AllPods"


class CleanupPolicy(StrEnum):
    """Which pods are deleted when the job has ended."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class ResizeMode(StrEnum):
    """What a change of a role's replicas means to the framework: pods come and go, or everything starts
    anew."""

    LIVE = "Live"
    RESTART = "Restart"


class Elastic(Struct, frozen=True):
    """The sizes between which a role may move while it runs."""

    min: int
    max: int
    multiple_of: int = 1


class RolePolicy(Struct, frozen=True):
    """When a role as a whole has failed or succeeded; an unset quorum leaves that outcome to the last pod."""

    failed: Quantifier | None = None
    succeeded: Quantifier | None = None
    node_down_as_failed: bool = False


class Dependency(Struct, frozen=True):
    """Pods of the role that says so wait, in an init container, until `role` reached `phase`."""

    role: str
    phase: Phase = Phase.RUNNING


class Role(Struct, frozen=True):
    """A group of like pods, numbered from 0."""

    name: str
    replicas: int
    template: Json
    restart: RestartPolicy = RestartPolicy.NEVER
    container_restart_policy: RestartPolicy = RestartPolicy.NEVER
    """The restartPolicy written into the pod: whether the node restarts an ended container itself."""
    policy: RolePolicy | None = None
    elastic: Elastic | None = None
    depends_on: tuple[Dependency, ...] | None = None
    template_hash: str = ""
    """A digest of what its pods are made of; empty where nobody asks whether those that live are of the
    present definition."""
    slots: int | None = None
    """Processes a pod of this role takes; None: what the framework makes of the template."""
    pod_bytes: int = 0
    """Roughly how large the JSON of one of its pods is (see `podsize`); 0 where nobody has estimated it."""
    annotation_bytes: int = 0
    """How much of it are annotations, files among them."""

    @property
    def min_running(self) -> int:
        """How many pods must run for the role to be Running."""
        return min(self.elastic.min, self.replicas) if self.elastic else self.replicas


class Rules(Struct, frozen=True):
    """What the framework, or the user in its place, says about the job as a whole, as data."""

    succeeded_when: tuple[tuple[str, ...], ...] = ()
    """OR of ANDs: the job has succeeded when all roles of one of these have."""
    failed_when: tuple[tuple[str, ...], ...] = ()
    restart_scope: RestartScope = RestartScope.POD
    resize: ResizeMode = ResizeMode.LIVE
    services: tuple[str, ...] = ()
    """Roles whose pods are found by name: one headless service each."""
    service_ports: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """Name and number of the ports of a role's service; none are needed to find pods by name."""
    creates_no_pods: bool = False
    """No pod is made for the job: it starts, and stays so."""
    exec_from: tuple[str, ...] = ()
    """Roles whose pods start processes in others of the job's pods (remote exec)."""
    exec_into: tuple[str, ...] = ()
    """Roles in whose pods those start processes."""
    ssh_roles: tuple[str, ...] = ()
    """Roles whose pods reach each other by ssh, with a key pair that is the job's own."""
    ssh_verifies_hosts: bool = False
    """Every sshd of the job shows the job's own host key, and ssh refuses hosts that show another."""


class Gang(Struct, frozen=True):
    """All pods are placed together or none is."""

    min_available: int
    queue: str = ""
    priority_class: str = ""
    timeout: float | None = None
    """Seconds the gang may wait for its place before the job fails."""
    min_resources: Json = field(default_factory=dict)
    """Resources that must be free before the group is let in."""


class Ttl(Struct, frozen=True):
    """Seconds after the end; None keeps for ever."""

    succeeded: float | None = None
    failed: float | None = None


class Escalation(Struct, frozen=True):
    """How many failures in a row each rung of restarts bears before the next is climbed; None: any number."""

    container: int | None = None
    """Restarts of a pod's containers by its node, before the pod is replaced."""
    pod: int | None = None
    """Replacements of the pod of a place, before its role is started anew."""
    role: int | None = None
    """Restarts of a role, before the job is started anew."""


class Limits(Struct, frozen=True):
    """Bounds in seconds and counts; None is without bound."""

    restarts: int | None = None
    active_deadline: float | None = None
    start_timeout: float | None = None
    below_min_timeout: float | None = 600.0
    force_delete_after: float | None = None
    """After this long a terminating pod on a node that is down is deleted by force, though the node may still
    run it; None: only once the node is known to run nothing."""
    ttl: Ttl = Ttl()
    """When the job object itself goes."""
    children_ttl: Ttl = Ttl()
    """When its pods, services and group go, whatever the cleanup policy says."""
    escalation: Escalation = Escalation()
    backoff: float = 10.0
    """Delay before the second replacement in a row; it doubles up to `backoff_max`. The first has none."""
    backoff_max: float = 300.0
    backoff_reset: float = 600.0
    """A role that ran this long without a failure starts again at no delay."""


class PropagatedMetadata(Struct, frozen=True, dict=True):
    """Annotations of the job that its pods and its group carry too, also as labels, and follow while they
    live."""

    keys: tuple[str, ...] = ()
    """Which may be handed on; all others are left alone wherever they are."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Those that the job has."""

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Those whose values can be labels."""
        return {key: value for key, value in self.annotations.items() if is_label_value(value)}


class Workload(Struct, frozen=True, dict=True):
    """One job as it is wanted now."""

    kind: str
    """Kind of the object that it was lowered from."""
    api_version: str
    namespace: str
    name: str
    uid: str
    generation: int
    framework: str
    roles: Mapping[str, Role]
    options: Json = field(default_factory=dict)
    rules: Rules = Rules()
    limits: Limits = Limits()
    gang: Gang | None = None
    cleanup: CleanupPolicy = CleanupPolicy.RUNNING
    suspended: bool = False
    deleting: bool = False
    cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
    labels: Mapping[str, str] = field(default_factory=dict)
    """What everything made for the job carries beside our own labels."""
    propagated: PropagatedMetadata = PropagatedMetadata()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The job's own, which its group carries too."""
    semantics: Semantics = Semantics()
    """Rules of the API that other APIs do not have."""

    def allows_surge(self, role: Role) -> bool:
        """Return True if a pod of this role may be created while its predecessor still terminates."""
        return self.semantics.surge and role.restart is not RestartPolicy.NEVER

    def hostname(self, role: str, index: int) -> str:
        """The stable host name of the pod in this place, whatever the pod itself is called."""
        return f"{self.name}-{role}-{index}"

    def service(self, role: str) -> str:
        """The headless service, and so the subdomain, of a role."""
        return f"{self.name}-{role}"

    def service_address(self, role: str) -> str:
        """The full DNS name under which all pods of a role are found."""
        return f"{self.service(role)}.{self.namespace}.svc.{self.cluster_domain}"

    def address(self, role: str, index: int) -> str:
        """The full DNS name under which the pod in this place is found."""
        return f"{self.hostname(role, index)}.{self.service_address(role)}"

    @cached_property
    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        """The addresses of all pods, by role and in order. Made once: every pod may be told all of them."""
        return {
            name: tuple(self.address(name, index) for index in range(role.replicas))
            for name, role in self.roles.items()
        }

    def address_list(self, role: str) -> str:
        """The addresses of a role with commas between. Made once, like `addresses`."""
        made = self._address_lists.get(role)
        if made is None:
            made = self._address_lists[role] = ",".join(
                self.address(role, index) for index in range(self.roles[role].replicas)
            )
        return made

    @cached_property
    def _address_lists(self) -> dict[str, str]:
        return {}

    def address_bytes(self, role: str, extra: int = 1) -> int:
        """How long the addresses of a role are together, with `extra` characters after each, without making
        them."""
        return numbered_bytes(self.roles[role].replicas, len(self.address(role, 0)) - 1 + extra)

    def hostname_bytes(self, role: str, extra: int = 1) -> int:
        """The same for host names."""
        return numbered_bytes(self.roles[role].replicas, len(self.hostname(role, 0)) - 1 + extra)

    @property
    def total_pods(self) -> int:
        """Pods wanted over all roles."""
        return sum(role.replicas for role in self.roles.values())


def numbered_bytes(count: int, fixed: int) -> int:
    """How long texts are together that hold the numbers from 0 to `count` - 1 and `fixed` characters each."""
    digits, step = count, 10
    while step < count:
        digits += count - step
        step *= 10
    return count * fixed + digits


class Problem(Struct, frozen=True):
    """Something wrong in an object, where it stands and what to write instead."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Problems(Struct, frozen=True):
    """Why an object could not be lowered; never empty."""

    items: tuple[Problem, ...]

    def __str__(self) -> str:
        return join_messages(str(item) for item in self.items)
