"""The status of a TrainingRun. `kubectl explain` shows these docstrings."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, field

from argosy.kinds.checkpoint_status import CheckpointStatus, RecoveryStatus
from argosy.kinds.notice_status import NoticeStatus
from argosy.kinds.restart_status import RestartStatus
from argosy.kinds.usage_status import UsageStatus


class RunCondition(Struct, frozen=True, rename="camel"):
    """A condition of the run, for `kubectl wait`."""

    type: str
    status: str
    reason: str
    last_transition_time: datetime
    message: str = ""
    observed_generation: int | None = None


class RoleStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of a role."""

    phase: str = ""
    """Pending, Starting, Running, Succeeded or Failed."""
    reason: str = ""
    message: str = ""
    replicas: int = 0
    """Number of desired pods."""
    current_replicas: int = 0
    """Number of pods that the role has now, while an elastic role has fewer than desired."""
    pending: int = 0
    active: int = 0
    """Number of running pods."""
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    terminating: int = 0
    restarts: int = 0
    """Number of restarts after failures."""


class TrainingRunStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the run."""

    phase: str = ""
    """Pending, Starting, Running, Restarting, Suspended, Succeeded or Failed."""
    reason: str = ""
    """Why the run is in this phase, as one CamelCase word."""
    message: str = ""
    """Why the run is in this phase, as a sentence."""
    observed_generation: int = 0
    """The generation of the run that this status describes."""
    attempt: int = 0
    """How many times the whole run was started; 0 before its first pods are created."""
    restarts: int = 0
    """Number of restarts used, of limits.restarts."""
    workers: str = ""
    """Running or succeeded pods of desired pods, of role worker or, without such a role, of all roles."""
    replicas: int = 0
    """Number of existing pods of role worker, for kubectl scale."""
    selector: str = ""
    """Label selector of the pods of role worker, for kubectl scale."""
    start_time: datetime | None = None
    running_time: datetime | None = None
    """When all roles were running for the first time."""
    completion_time: datetime | None = None
    waiting_since: datetime | None = None
    """Since when the run has waited for what reason and message describe."""
    conditions: Annotated[
        list[RunCondition],
        Meta(
            max_length=16,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = field(default_factory=list)
    roles: dict[str, RoleStatus] = field(default_factory=dict)
    """The roles by name."""
    restart_history: list[RestartStatus] = field(default_factory=list)
    """The last twenty restarts, the newest last."""
    notices: list[NoticeStatus] = field(default_factory=list)
    """Announced ends of nodes and pods that concern the run, the oldest first."""
    checkpoint: CheckpointStatus | None = None
    """The last good checkpoint, if the run keeps any."""
    recoveries: list[RecoveryStatus] = field(default_factory=list)
    """The last ten losses of pods of a run with checkpoints, the newest last."""
    usage: UsageStatus = UsageStatus()
    """How the time of the run's replicas was spent, and what it has cost."""
    argosy: dict[str, object] = field(default_factory=dict)
    """The operator's internal record of the run; other clients should not read it."""
