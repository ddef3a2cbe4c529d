"""What the CLI shows of a job, whatever its API: one form for `ps`, `describe`, `logs` and `run`."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from msgspec import Struct, field

from argosy.engine.objects import ApiObject
from argosy.kinds.checkpoint_status import CheckpointStatus, RecoveryStatus
from argosy.kinds.dns_names import MAX_LABEL_CHARS
from argosy.kinds.labels import INDEX, JOB, ROLE
from argosy.kinds.notice_status import NoticeStatus
from argosy.kinds.restart_status import RestartStatus
from argosy.kinds.text import shorten
from argosy.kinds.trainingrun import WORKER
from argosy.kinds.usage_status import UsageStatus

J = TypeVar("J", bound=ApiObject)


class RoleSummary(Struct, frozen=True):
    name: str
    phase: str
    ready: int
    desired: int
    restarts: int
    message: str


class ReplicaSummary(Struct, frozen=True):
    """One replica of a job whose replicas are independent copies, each with a machine of its own."""

    name: str
    phase: str
    incarnation: int
    start: str
    """How its pod was started: from the beginning, or from which kind of checkpoint."""
    node: str
    machine: str
    """Name of the machine that was bought for it."""
    zone: str
    price: str
    """Price of that machine per hour."""
    restarts: int
    preemptions: int


class JobSummary(Struct, frozen=True):
    """What the CLI shows of a job, independent of its kind."""

    kind: str
    namespace: str
    name: str
    uid: str
    created: datetime | None
    framework: str
    phase: str
    reason: str
    message: str
    attempt: int
    restarts: int
    started: bool
    roles: list[RoleSummary] = field(default_factory=list)
    conditions: list[tuple[str, str, str, str]] = field(default_factory=list)
    restart_history: list[RestartStatus] = field(default_factory=list)
    notices: list[NoticeStatus] = field(default_factory=list)
    checkpoint: CheckpointStatus | None = None
    recoveries: list[RecoveryStatus] = field(default_factory=list)
    usage: UsageStatus = UsageStatus()
    replicas: list[ReplicaSummary] = field(default_factory=list)
    price: str = ""
    """What the job costs now."""

    @property
    def workers(self) -> str:
        """Return running and succeeded pods of the desired ones, of role worker if there is one: `3/4`."""
        roles = [role for role in self.roles if role.name == WORKER] or self.roles
        if not roles:
            return ""
        return f"{sum(role.ready for role in roles)}/{sum(role.desired for role in roles)}"


class PodLabels(Struct, frozen=True):
    """The labels by which the pods of a kind of job are found and named."""

    job: str = JOB
    index: str = INDEX
    role: str = ROLE
    """Empty if all pods are of `only_role`."""
    only_role: str = ""

    def selector(self, job: str, role: str | None = None, index: int | None = None) -> str:
        """Return the label selector of a job's pods, or of those of one role and index.

        A job whose name is too long for a label has its pods under the shortened name, or is invalid and has
        none.
        """
        name = shorten(job, MAX_LABEL_CHARS)
        wanted = [f"{self.job}={name}"]
        if role and self.role:
            wanted.append(f"{self.role}={role}")
        elif role and role != self.only_role:
            wanted.append(f"!{self.job}")  # matches nothing
        if index is not None:
            wanted.append(f"{self.index}={index}")
        return ",".join(wanted)

    def role_of(self, pod: Mapping[str, str]) -> str:
        """Return the role of the pod with these labels."""
        return pod.get(self.role, "?") if self.role else self.only_role

    def replica(self, pod: Mapping[str, str], container: str = "") -> str:
        """Return the replica of the pod with these labels: `worker-2`, or `worker-2/sidecar`."""
        name = f"{self.role_of(pod)}-{pod.get(self.index, '?')}"
        return f"{name}/{container}" if container else name

    def sort_key(self, pod: Mapping[str, str]) -> tuple[str, int]:
        """Return by what pods are sorted: role and index."""
        index = pod.get(self.index, "")
        return self.role_of(pod), int(index) if index.isdecimal() else 0


class JobKind(Struct, frozen=True):
    """A kind of job as the CLI finds and shows it."""

    kind: type[ApiObject]
    short_name: str
    """Selects the kind where two kinds have a job of the same name: `tr/NAME`."""
    summarize: Callable[[ApiObject], JobSummary]
    pods: PodLabels = PodLabels()


def job_kind(
    kind: type[J], short_name: str, summarize: Callable[[J], JobSummary], pods: PodLabels = PodLabels()
) -> JobKind:
    """Return a kind of job whose summaries are made by a function of that kind alone."""

    def summarize_object(obj: ApiObject) -> JobSummary:
        if not isinstance(obj, kind):
            raise TypeError(f"{type(obj).__name__} is not a {kind.__name__}")
        return summarize(obj)

    return JobKind(kind, short_name, summarize_object, pods)
