"""Defines `Workload`, the desired state of a job, to which every dialect converts its objects.

All types here are frozen and plain data, so that decisions are pure functions. Fields that a dialect leaves
out are set by the framework's `defaults`, so that policies may assume that `Role.policy`, `Rules` and the
others are complete.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Final

from msgspec import Struct, field

from argosy.kinds.text import join_messages
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.child_rules import GeneratedSecret, LauncherAccount
from argosy.workload.host_list import HostList
from argosy.workload.naming import Naming, numbered_bytes
from argosy.workload.propagated_metadata import PropagatedMetadata
from argosy.workload.semantics import Semantics

Json = Mapping[str, object]
"""A JSON object as received from the API server."""

MAX_PODS: Final = 99_999
"""Maximum number of pods of one job, more than any cluster can run."""
DEFAULT_CLUSTER_DOMAIN = "cluster.local"


class Phase(StrEnum):
    """Phase of a job. A role has the same phases except Restarting and Suspended."""

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
    """Which ended pods of a role are replaced. ExitCode: those with a code from 128 (a signal) or none."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    EXIT_CODE = "ExitCode"


class RestartScope(StrEnum):
    """What is restarted when one pod must be replaced."""

    POD = "Pod"
    ROLE = "Role"
    JOB = "Job"


class Quantifier(StrEnum):
    """How many pods must fail or succeed for a role to fail or succeed."""

    ANY = "AnyPod"
    ALL = "AllPods"


class CleanupPolicy(StrEnum):
    """Which pods are deleted when the job has finished."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class ResizeMode(StrEnum):
    """How a framework handles another size: pods are added or removed, or the job is restarted."""

    LIVE = "Live"
    RESTART = "Restart"


class Elastic(Struct, frozen=True):
    """Allowed numbers of replicas of an elastic role."""

    min: int
    max: int
    multiple_of: int = 1
    starts_with_min: bool = True
    """Whether the role is Running with the minimum; otherwise all replicas must run first."""
    restart_below_min: bool = False
    """Fewer running pods than the minimum for too long restart the job, if it may restart."""
    stabilization: float = 30.0
    """Seconds after which unschedulable pods are given up, and a role on nodes that come and go grows."""

    def allows(self, size: int) -> bool:
        return self.min <= size <= self.max and size % self.multiple_of == 0


class RolePolicy(Struct, frozen=True):
    """When a role has failed or succeeded; if unset, that is decided when all its pods have ended."""

    failed: Quantifier | None = None
    succeeded: Quantifier | None = None
    node_down_as_failed: bool = False
    ends: bool = True
    """Whether the role fails or succeeds when its pods have ended. Otherwise it stays as it is, and the other
    roles decide about the job."""


class Dependency(Struct, frozen=True):
    """The pods of the dependent role wait in an init container until `role` has reached `phase`."""

    role: str
    phase: Phase = Phase.RUNNING
    holds_creation: bool = False
    """The pods, and what is created for them, do not exist before that."""


class ReplacementBudget(Struct, frozen=True):
    """How often pods of a role that failed are replaced in a row; the job's limit of restarts is not used."""

    limit: int
    """At this number no pod of the role is replaced any more, and the job continues without."""
    backoff: float = 10.0
    """Seconds before the second replacement in a row, doubled up to `backoff_max`; the first has none."""
    backoff_max: float = 300.0
    reset: float = 600.0
    """A pod that lived for so many seconds before it failed starts the count again."""


class ReplacementPolicy(Struct, frozen=True):
    """How lost pods of a role are replaced; `Role.restart` says which."""

    scope: RestartScope | None = None
    """What is restarted; None: `Rules.restart_scope`."""
    deleted: bool = True
    """Whether a pod that was deleted is replaced."""
    unknown: bool = False
    """Whether a pod of phase Unknown is replaced although nothing is known about its node."""
    refill_deleted: bool = False
    """A pod that was deleted is created again and nothing else happens, whatever the scope and `Role.restart`
    are."""
    count_disruptions: bool = False
    """Pods that the cluster ended or a user deleted use restarts, as failed ones do."""
    next_index: bool = False
    """The replacement gets a new index, and so a new name; the failed pod is kept until the job is cleaned
    up."""
    budget: ReplacementBudget | None = None
    """None: replacements use the job's restarts and backoff."""


class Role(Struct, frozen=True):
    """A set of replicas with the same template, with indexes from 0."""

    name: str
    replicas: int
    template: Json
    restart: RestartPolicy = RestartPolicy.NEVER
    replacement: ReplacementPolicy = ReplacementPolicy()
    container_restart_policy: RestartPolicy = RestartPolicy.NEVER
    """The pod's restartPolicy: whether the kubelet restarts containers in place."""
    policy: RolePolicy | None = None
    elastic: Elastic | None = None
    depends_on: tuple[Dependency, ...] | None = None
    template_hash: str = ""
    """Hash of the template; empty if the API does not report running pods of an earlier template."""
    keep_ended_pods: bool = False
    """Ended pods of the role are kept when the job has finished, whatever the cleanup policy."""
    slots: int | None = None
    """Processes per pod; None: the framework derives it from the template."""
    pod_bytes: int = 0
    """Estimated size of a pod as JSON (`pod_size`); 0: not estimated."""
    annotation_bytes: int = 0
    """Part of it for annotations, which include files."""

    @property
    def min_running(self) -> int:
        """Number of pods that must run for the role to be Running."""
        if self.elastic is None or not self.elastic.starts_with_min:
            return self.replicas
        return min(self.elastic.min, self.replicas)


class Rules(Struct, frozen=True):
    """Rules for the whole job, set by the framework or overridden by the user."""

    succeeded_when: tuple[tuple[str, ...], ...] = ()
    """The job has succeeded if all roles of any of these sets have succeeded."""
    failed_when: tuple[tuple[str, ...], ...] = ()
    restart_scope: RestartScope = RestartScope.POD
    resize: ResizeMode = ResizeMode.LIVE
    services: tuple[str, ...] = ()
    """Roles whose pods are reached by name; each has a headless Service."""
    pod_services: tuple[str, ...] = ()
    """Roles of which every pod has a headless Service of its own, with the host name of the pod."""
    service_ports: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """Names and numbers of the ports of a role's Services; DNS needs none."""
    creates_no_pods: bool = False
    """The job has no pods, and stays in the phase Starting."""
    exec_from: tuple[str, ...] = ()
    """Roles whose pods start processes in other pods of the job (remote exec)."""
    exec_into: tuple[str, ...] = ()
    """Roles in whose pods they start processes."""
    coordinators: tuple[str, ...] = ()
    """Roles whose replica 0 all others of the role depend on, such as the host of a rendezvous store. It is
    never chosen when replicas are removed, and its loss restarts the role."""
    regrouping_roles: tuple[str, ...] = ()
    """Elastic roles of which all processes restart in their pods when one pod joins or leaves, and then
    continue from a checkpoint that may be of another pod."""
    ssh_roles: tuple[str, ...] = ()
    """Roles whose pods reach each other by ssh, with a key pair of the job."""
    account: LauncherAccount = LauncherAccount()
    """What the pods of `exec_from` may do."""
    secrets: tuple[GeneratedSecret, ...] = ()
    host_list: HostList | None = None
    ssh_verifies_hosts: bool = False
    """Every sshd of the job has the job's host key, and ssh rejects hosts with another key."""


class Gang(Struct, frozen=True):
    """Pods that are scheduled together or not at all."""

    min_available: int
    queue: str = ""
    priority_class: str = ""
    timeout: float | None = None
    """Seconds the gang may wait to be scheduled before the job fails."""
    min_resources: Json = field(default_factory=dict)
    """Resources that must be free before the gang is admitted."""


class Ttl(Struct, frozen=True):
    """Seconds after the job finished; None: keep forever."""

    succeeded: float | None = None
    failed: float | None = None


class Escalation(Struct, frozen=True):
    """Consecutive failures that each scope allows before restarts escalate to the next; None: any number."""

    container: int | None = None
    """Restarts of a pod's containers by the kubelet, over its life, before the pod is replaced."""
    pod: int | None = None
    """Replacements of one replica's pod before its role is restarted."""
    role: int | None = None
    """Restarts of a role before the job is restarted."""


class Limits(Struct, frozen=True):
    """Limits in seconds and counts; None: unlimited."""

    restarts: int | None = None
    active_deadline: float | None = None
    start_timeout: float | None = None
    below_min_timeout: float | None = 600.0
    force_delete_after: float | None = None
    """Seconds after which a terminating pod on a node that is down is force-deleted although the node may
    still run it; None: only if the node is known to run nothing."""
    ttl: Ttl = Ttl()
    """When the job itself is deleted."""
    children_ttl: Ttl = Ttl()
    """When its pods, Services and pod group are deleted, whatever the cleanup policy is."""
    escalation: Escalation = Escalation()
    backoff: float = 10.0
    """Seconds before the second consecutive replacement, doubled up to `backoff_max`; the first has none."""
    backoff_max: float = 300.0
    backoff_reset: float = 600.0
    """Seconds without a failure that reset the backoff."""


class Workload(Struct, frozen=True, dict=True):
    """The desired state of one job."""

    kind: str
    """Kind of the job's object."""
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
    naming: Naming = Naming()
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of all children, in addition to our own."""
    propagated: PropagatedMetadata = PropagatedMetadata()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the job, which its pod group has too."""
    semantics: Semantics = Semantics()
    """Rules of the API that other APIs do not have."""
    checkpoint: CheckpointPolicy | None = None
    """None: the operator knows nothing of the program's checkpoints."""

    def restart_scope(self, role: Role, index: int | None = None) -> RestartScope:
        """Return what is restarted when a pod of this role, or this replica, must be replaced."""
        scope = role.replacement.scope or self.rules.restart_scope
        if scope is RestartScope.POD and index is not None and self.is_coordinator(role.name, index):
            return RestartScope.ROLE
        return scope

    def is_coordinator(self, role: str, index: int) -> bool:
        """Return True if all other replicas of the role depend on this one."""
        return index == 0 and role in self.rules.coordinators

    def allows_surge(self, role: Role) -> bool:
        """Return True if a pod of this role may be created while its predecessor still terminates.

        With checkpoints it may not: both would save to one folder, and the new pod would miss the last one.
        """
        return self.semantics.surge and role.restart is not RestartPolicy.NEVER and self.checkpoint is None

    def hostname(self, role: str, index: int) -> str:
        """Return the stable host name of a replica, which may differ from the pod's name."""
        name = self.naming.role_hosts.get(role, self.naming.host)
        return name.format(job=self.name, role=role, index=index)

    def service(self, role: str) -> str:
        """Return the name of a role's headless Service, which is also the subdomain of its pods."""
        return self.naming.service.format(job=self.name, role=role)

    def service_address(self, role: str) -> str:
        """Return the DNS name that resolves to all pods of a role."""
        return f"{self.service(role)}.{self.namespace}.svc.{self.cluster_domain}"

    def address(self, role: str, index: int) -> str:
        """Return the DNS name of a replica."""
        return f"{self.hostname(role, index)}.{self.service_address(role)}"

    @cached_property
    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        """Addresses of all pods by role and index; cached, since every pod may get all of them."""
        return {
            name: tuple(self.address(name, index) for index in range(role.replicas))
            for name, role in self.roles.items()
        }

    def address_list(self, role: str) -> str:
        """Return the addresses of a role, separated by commas; cached like `addresses`."""
        addresses = self._address_lists.get(role)
        if addresses is None:
            addresses = self._address_lists[role] = ",".join(
                self.address(role, index) for index in range(self.roles[role].replicas)
            )
        return addresses

    @cached_property
    def _address_lists(self) -> dict[str, str]:
        return {}

    def address_bytes(self, role: str, extra: int = 1) -> int:
        """Return the total length of a role's addresses with `extra` characters after each, without building
        them."""
        return numbered_bytes(self.roles[role].replicas, len(self.address(role, 0)) - 1 + extra)

    def hostname_bytes(self, role: str, extra: int = 1) -> int:
        """Return the same for host names."""
        return numbered_bytes(self.roles[role].replicas, len(self.hostname(role, 0)) - 1 + extra)

    @property
    def total_pods(self) -> int:
        """Number of replicas of all roles."""
        return sum(role.replicas for role in self.roles.values())


class Problem(Struct, frozen=True):
    """A validation error: the path of a field, and what is allowed."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Problems(Struct, frozen=True):
    """The validation errors of an object; never empty."""

    items: tuple[Problem, ...]

    def __str__(self) -> str:
        return join_messages(str(item) for item in self.items)
