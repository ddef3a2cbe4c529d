"""What the CLI shows of a job, whatever its API: one form for `ps`, `describe`, `logs` and `run`."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from msgspec import Struct, field

from argosy.engine.objects import ApiObject
from argosy.kinds.checkpoint_status import CheckpointStatus, RecoveryStatus
from argosy.kinds.notice_status import NoticeStatus
from argosy.kinds.restart_status import RestartStatus
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

    @property
    def workers(self) -> str:
        """Return running and succeeded pods of the desired ones, of role worker if there is one: `3/4`."""
        roles = [role for role in self.roles if role.name == WORKER] or self.roles
        if not roles:
            return ""
        return f"{sum(role.ready for role in roles)}/{sum(role.desired for role in roles)}"


class JobKind(Struct, frozen=True):
    """A kind of job as the CLI finds and shows it."""

    kind: type[ApiObject]
    short_name: str
    """Selects the kind where two kinds have a job of the same name: `tr/NAME`."""
    summarize: Callable[[ApiObject], JobSummary]


def job_kind(kind: type[J], short_name: str, summarize: Callable[[J], JobSummary]) -> JobKind:
    """Return a kind of job whose summaries are made by a function of that kind alone."""

    def summarize_object(obj: ApiObject) -> JobSummary:
        if not isinstance(obj, kind):
            raise TypeError(f"{type(obj).__name__} is not a {kind.__name__}")
        return summarize(obj)

    return JobKind(kind, short_name, summarize_object)
