"""`TrainingRun` (`argosy.dev/v1alpha1`): a distributed training job of any framework.

Our own API, and the full face of the model. Docstrings here are what `kubectl explain` shows. Defaults that
follow from the framework stay unset in the stored object and are shown in the documentation of the framework.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from argosy.kinds.crd_options import PRESERVE_UNKNOWN_FIELDS, CrdOptions, PrinterColumn, Rule, Scale
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.quantity import DURATION_PATTERN
from argosy.kinds.resource import Resource
from argosy.kinds.restart_status import RestartStatus

WORKER = "worker"
"""The role that `kubectl scale` acts on and that the WORKERS column shows."""

Duration = Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=32)]
RoleName = Annotated[str, Meta(min_length=1, max_length=40, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")]
Count = Annotated[int, Meta(ge=0, le=99_999)]

_OBJECT: dict[str, object] = {"type": "object", PRESERVE_UNKNOWN_FIELDS: True}
PodTemplate = Annotated[
    dict[str, object],
    Meta(
        extra_json_schema={
            "required": ["spec"],
            "properties": {
                "metadata": _OBJECT,
                "spec": {
                    **_OBJECT,
                    "required": ["containers"],
                    "properties": {
                        "containers": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                **_OBJECT,
                                "required": ["name"],
                                "properties": {"name": {"type": "string"}},
                            },
                        }
                    },
                },
            },
        }
    ),
]
RoleLists = Annotated[
    list[Annotated[list[RoleName], Meta(min_length=1, max_length=16)]],
    Meta(max_length=16),
]


class RestartPolicy(StrEnum):
    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    EXIT_CODE = "ExitCode"


class RestartScope(StrEnum):
    POD = "Pod"
    ROLE = "Role"
    JOB = "Job"


class PodQuantifier(StrEnum):
    ANY = "AnyPod"
    ALL = "AllPods"


class CleanupPolicy(StrEnum):
    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class DependencyPhase(StrEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


def digits(number: str) -> str:
    """Return a CEL expression for the decimal digits of a number below 100,000.

    The API server refuses to concatenate `string(int)`: it estimates the cost of the result as unbounded.
    Therefore each digit is looked up in a list.
    """
    digit = "['0','1','2','3','4','5','6','7','8','9']"
    leading = [
        f"({number} > {10**power - 1} ? {digit}[{number} / {10**power} % 10] : '')" for power in (4, 3, 2, 1)
    ]
    return " + ".join([*leading, f"{digit}[{number} % 10]"])


def _multiple(name: str) -> Rule:
    number = f"self.{name}"
    lower = f"({number} / self.multipleOf * self.multipleOf)"
    upper = f"({lower} + self.multipleOf)"
    below = f"{number} < self.multipleOf ? '' : {digits(lower)} + ' or '"
    return Rule(
        rule=f"{number} % self.multipleOf == 0",
        message=f"{name} is not a multiple of multipleOf",
        message_expression=(
            f"'{name} ' + {digits(number)} + ' is not a multiple of ' + {digits('self.multipleOf')}"
            f" + '; write ' + ({below}) + {digits(upper)}"
        ),
    )


class ElasticSpec(Struct, frozen=True, rename="camel"):
    """The sizes between which the role may move while it runs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.min <= self.max",
            message="min is greater than max",
            message_expression=f"'min ' + {digits('self.min')} + ' is greater than max '"
            f" + {digits('self.max')}",
        ),
        _multiple("min"),
        _multiple("max"),
    )

    min: Annotated[int, Meta(ge=1, le=99_999)]
    """Fewest pods with which training goes on."""
    max: Annotated[int, Meta(ge=1, le=99_999)]
    """Most pods the role may have."""
    multiple_of: Annotated[int, Meta(ge=1, le=1000)] = 1
    """Every size is a multiple of this."""


class RolePolicySpec(Struct, frozen=True, rename="camel"):
    """When the role as a whole has failed or succeeded."""

    failed: PodQuantifier | None = None
    """AnyPod: one failed pod that is not replaced fails the role. AllPods: only all of them do. AnyPod if
    unset."""
    succeeded: PodQuantifier | None = None
    """AnyPod: one succeeded pod is enough. AllPods: all must succeed. AllPods if unset."""
    node_down_as_failed: bool = False
    """A pod on a node that does not answer counts as failed at once, not only when it is evicted."""


class DependencySpec(Struct, frozen=True, rename="camel"):
    """Another role to wait for."""

    role: RoleName
    """Name of the other role."""
    phase: DependencyPhase = DependencyPhase.RUNNING
    """Phase that the other role must have reached; a later one is as good, but Failed is only Failed."""


class RoleSpec(Struct, frozen=True, rename="camel"):
    """A group of like pods, numbered from 0."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.elastic) || self.replicas >= self.elastic.min",
            message="replicas is less than elastic.min",
            message_expression=f"'replicas ' + {digits('self.replicas')} + ' is less than elastic.min '"
            f" + {digits('self.elastic.min')}",
        ),
        Rule(
            rule="!has(self.elastic) || self.replicas <= self.elastic.max",
            message="replicas is greater than elastic.max",
            message_expression=f"'replicas ' + {digits('self.replicas')} + ' is greater than elastic.max '"
            f" + {digits('self.elastic.max')}",
        ),
        Rule(
            rule="!has(self.elastic) || self.replicas % self.elastic.multipleOf == 0",
            message="replicas is not a multiple of elastic.multipleOf",
            message_expression=f"'replicas ' + {digits('self.replicas')} + ' is not a multiple of '"
            f" + {digits('self.elastic.multipleOf')}",
        ),
    )

    template: PodTemplate
    """The pods, as in a Deployment. Host name, subdomain and restartPolicy are set by the operator."""
    replicas: Annotated[int, Meta(ge=1, le=99_999)] = 1
    """How many pods."""
    elastic: ElasticSpec | None = None
    """Lets the role run with fewer pods than wanted, and be scaled while it runs."""
    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    """Which ended pods are replaced: Never; OnFailure, those that failed; Always, any, and containers
    restart in place; ExitCode, those that were killed by a signal (128 and above), not those that gave up by
    themselves."""
    policy: RolePolicySpec | None = None
    """When the role as a whole has failed or succeeded."""
    depends_on: Annotated[
        list[DependencySpec],
        Meta(
            max_length=16,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["role"]},
        ),
    ] = field(default_factory=list)
    """Pods of this role wait, before their containers start, until these roles have come so far."""
    slots: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Training processes in a pod. If unset: its GPUs, else 1."""


class JobPolicySpec(Struct, frozen=True, rename="camel"):
    """How the outcomes of roles make the outcome of the run."""

    failed: RoleLists = field(default_factory=list)
    """The run fails when all roles of one of these lists have failed."""
    succeeded: RoleLists = field(default_factory=list)
    """The run succeeds when all roles of one of these lists have succeeded."""


class GangSpec(Struct, frozen=True, rename="camel"):
    """Pods are placed all together or not at all, by the gang back end of the operator."""

    min_available: Annotated[int, Meta(ge=1, le=99_999)] | None = None
    """Pods that must be placed together; if unset, all (of elastic roles, their min)."""
    queue: Annotated[str, Meta(max_length=63)] = ""
    """Queue of the scheduler."""
    priority_class: Annotated[str, Meta(max_length=253)] = ""
    """Priority class of the group."""
    timeout: Duration | None = None
    """The run fails if it was not placed for this long."""


class EscalationSpec(Struct, frozen=True, rename="camel"):
    """After how many failures in a row a restart covers more than the failed pod. Disruptions by the cluster
    do not count as failures. Only for frameworks that tolerate the loss of a pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.role) || has(self.pod)",
            message="role requires pod: without it a restart never covers the role",
        ),
    )

    container: Annotated[int, Meta(ge=0, le=1000)] | None = None
    """Restarts of containers by the kubelet before the pod is replaced. If unset, the kubelet restarts only
    containers of roles with restart Always, without a limit."""
    pod: Annotated[int, Meta(ge=0, le=1000)] | None = None
    """Replacements of a pod before all pods of its role are restarted. If unset, they never are."""
    role: Annotated[int, Meta(ge=0, le=1000)] | None = None
    """Restarts of a role before the whole run is restarted. If unset, it never is."""


class LimitsSpec(Struct, frozen=True, rename="camel"):
    """Bounds. Durations are like 90s, 10m, 2h, 1h30m."""

    restarts: Annotated[int, Meta(ge=0, le=10_000)] = 3
    """Restarts after failures, over all roles; one more failure fails the run. A pod that is evicted for
    more storage than its own limits allow has failed; what the cluster takes away (any other eviction, a
    deleted pod, a lost node) does not count."""
    escalation: EscalationSpec | None = None
    """When a restart covers more than the failed pod."""
    active_deadline: Duration | None = None
    """The run fails if it has not ended so long after its start; suspension starts the count anew."""
    start_timeout: Duration | None = None
    """The run fails if not all its roles run so long after its start, or again after a restart."""
    below_min_timeout: Duration = "10m"
    """The run fails if an elastic role that ran has had fewer than its min pods for so long."""
    force_delete_after: Duration | None = None
    """A terminating pod on a node that does not answer is deleted by force, and replaced, so long after its
    grace period. If unset, it is replaced only when its node is back, is deleted, or has the taint
    node.kubernetes.io/out-of-service. The risk: a node that is only cut off goes on running the old pod, so
    that two pods of one rank may write the same checkpoint. Set it only if training bears that."""
    ttl_after_succeeded: Duration | None = None
    """The run and all that belongs to it is deleted so long after it succeeded. If unset, never."""
    ttl_after_failed: Duration | None = None
    """The run and all that belongs to it is deleted so long after it failed. If unset, never."""


_ROLES_EXIST = "all(list, list.all(name, name in self.roles))"


class TrainingRunSpec(Struct, frozen=True, rename="camel"):
    """What to run."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.roles.all(name, name.size() <= 40 && name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
            message="names of roles have lower-case letters, digits and '-', begin with a letter and have"
            " at most 40 characters",
            field_path=".roles",
        ),
        Rule(
            rule="!has(self.jobPolicy) || !has(self.jobPolicy.failed) || self.jobPolicy.failed."
            + _ROLES_EXIST,
            message="jobPolicy.failed names a role that does not exist",
            field_path=".jobPolicy",
        ),
        Rule(
            rule="!has(self.jobPolicy) || !has(self.jobPolicy.succeeded) || self.jobPolicy.succeeded."
            + _ROLES_EXIST,
            message="jobPolicy.succeeded names a role that does not exist",
            field_path=".jobPolicy",
        ),
        Rule(
            rule="!has(self.restartScope) || !has(self.limits) || !has(self.limits.escalation)",
            message="not supported together with limits.escalation; remove one of them",
            field_path=".restartScope",
        ),
        Rule(
            rule="self.roles.all(name, !has(self.roles[name].dependsOn)"
            " || self.roles[name].dependsOn.all(one, one.role in self.roles && one.role != name))",
            message="dependsOn names the role itself or one that does not exist",
            field_path=".roles",
        ),
    )

    framework: Annotated[str, Meta(min_length=1, max_length=63)]
    """Which framework, such as pytorch: `argosy frameworks` lists those that there are."""
    roles: Annotated[dict[str, RoleSpec], Meta(min_length=1, max_length=32)]
    """The groups of pods, by name."""
    options: dict[str, object] = field(default_factory=dict)
    """Options of the framework."""
    job_policy: JobPolicySpec | None = None
    """How the outcomes of roles make the outcome of the run. If unset, what the framework says."""
    restart_scope: RestartScope | None = None
    """What starts anew when a pod must be replaced: that Pod, its Role or the whole Job. If unset, what the
    framework needs."""
    gang: GangSpec | None = None
    """Place the pods all together or not at all."""
    limits: LimitsSpec = LimitsSpec()
    """Bounds on restarts and times."""
    cleanup: CleanupPolicy = CleanupPolicy.RUNNING
    """Which pods are deleted when the run has ended: All, those still Running, or None."""
    suspend: bool = False
    """Take all pods away but keep the run; false again starts it again."""


class RunCondition(Struct, frozen=True, rename="camel"):
    """A statement about the run that can be waited for."""

    type: str
    status: str
    reason: str
    last_transition_time: datetime
    message: str = ""
    observed_generation: int | None = None


class RoleStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where one role is."""

    phase: str = ""
    """Pending, Starting, Running, Succeeded or Failed."""
    reason: str = ""
    message: str = ""
    replicas: int = 0
    """Pods wanted."""
    pending: int = 0
    active: int = 0
    """Pods running."""
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    terminating: int = 0
    restarts: int = 0
    """Restarts after failures."""


class TrainingRunStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where the run is."""

    phase: str = ""
    """Pending, Starting, Running, Restarting, Suspended, Succeeded or Failed."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in a sentence."""
    observed_generation: int = 0
    """Generation of the run that this status speaks of."""
    attempt: int = 0
    """How many times the run as a whole was started; 0 until its first pods are there."""
    restarts: int = 0
    """Restarts used of limits.restarts."""
    workers: str = ""
    """Running or succeeded of wanted pods of role worker, or of all roles if there is none."""
    replicas: int = 0
    """Pods of role worker that exist, for kubectl scale."""
    selector: str = ""
    """Label selector of the pods of role worker, for kubectl scale."""
    start_time: datetime | None = None
    running_time: datetime | None = None
    """When all roles ran for the first time."""
    completion_time: datetime | None = None
    waiting_since: datetime | None = None
    """Since when it waits for what reason and message say."""
    conditions: Annotated[
        list[RunCondition],
        Meta(
            max_length=16,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = field(default_factory=list)
    roles: dict[str, RoleStatus] = field(default_factory=dict)
    """Every role by name."""
    restart_history: list[RestartStatus] = field(default_factory=list)
    """The last twenty restarts, the newest at the end."""
    argosy: dict[str, object] = field(default_factory=dict)
    """What the operator must remember; not for reading by others."""


class TrainingRun(Struct, frozen=True):
    """A distributed training job: roles of pods, how they restart, and when the whole has succeeded or
    failed."""

    resource: ClassVar[Resource] = Resource("argosy.dev", "v1alpha1", "TrainingRun", "trainingruns")
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        short_names=("tr",),
        categories=("all", "argosy"),
        columns=(
            PrinterColumn("Framework", ".spec.framework"),
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Workers", ".status.workers"),
            PrinterColumn("Attempt", ".status.attempt", "integer"),
            PrinterColumn("Reason", ".status.reason"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
            PrinterColumn("Message", ".status.message", priority=1),
        ),
        scale=Scale(".spec.roles.worker.replicas", ".status.replicas", ".status.selector"),
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(oldSelf.status) || !has(oldSelf.status.startTime)"
            " || self.spec.framework == oldSelf.spec.framework",
            message="the framework of a run that has started cannot be changed; make a new run",
            field_path=".spec.framework",
        ),
        Rule(
            rule="!has(oldSelf.status) || !has(oldSelf.status.startTime)"
            " || (self.spec.roles.all(name, name in oldSelf.spec.roles)"
            " && oldSelf.spec.roles.all(name, name in self.spec.roles))",
            message="roles of a run that has started can be neither added nor removed; make a new run",
            field_path=".spec.roles",
        ),
    )

    metadata: ObjectMeta
    spec: TrainingRunSpec
    status: Annotated[
        TrainingRunStatus,
        # The operator alone writes it, and always all of it. To keep for each field who owns it would take a
        # third of the object's size, and a quarter of what a write of it costs the API server.
        Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"}),
    ] = TrainingRunStatus()
