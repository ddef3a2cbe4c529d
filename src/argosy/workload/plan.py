"""Defines the plan of a reconcile: the Record to write, the actions to execute, and when to reconcile again.

Actions are safe to repeat and to execute late: pods are created under a deterministic name and never replace
anything, and every other write has the uid of its object as a precondition. So a plan that was executed
partly, or twice, does no harm.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.kinds.kubernetes import Pod
from argosy.kinds.pod_groups import PodGroupType
from argosy.plan.actions import Apply, EmitEvent, Exec, Remove
from argosy.workload.record import Record
from argosy.workload.transitions import Transitions


class CreatePod(Struct, frozen=True, tag=True):
    """POST the pod of this replica. Done if it exists, is ours (owner uid, attempt, replacement) and is not
    terminating."""

    role: str
    index: int
    attempt: int
    replacement: int
    added_by: str = ""
    """Name of the object that asks for this replica to be added to the running job, if one does."""


class DeletePod(Struct, frozen=True, tag=True):
    """DELETE the pod of this uid, and of this resourceVersion if one is set. Done if it does not exist."""

    name: str
    uid: str
    grace_period_seconds: int | None = None
    """None: the pod's own grace period. 0: force deletion, since the node is down and cannot confirm it."""
    reason: str = ""
    resource_version: str = ""
    """Set if the pod is deleted because it is running: a pod that has ended since it was observed is kept,
    with its output."""


class ConfirmPod(Struct, frozen=True, tag=True):
    """GET the pod of this replica from the API server, not from a cache. If it does not exist, the replica is
    in `Observed.confirmed_absent` in the next reconcile."""

    role: str
    index: int
    attempt: int
    replacement: int


class PatchMetadata(Struct, frozen=True, tag=True):
    """PATCH labels and annotations of the object with this uid; None removes one. Done if it does not
    exist."""

    kind: type[Pod] | PodGroupType
    name: str
    uid: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)


class DeleteJob(Struct, frozen=True, tag=True):
    """DELETE the job itself, by uid and with background propagation, since its time to live has expired."""

    reason: str


AwaitedAction = CreatePod | DeletePod | ConfirmPod | Apply | Remove | PatchMetadata | DeleteJob
"""Executed by the reconcile that planned it, which waits for the result."""

Action = AwaitedAction | Exec


class Plan(Struct, frozen=True):
    """What one reconcile decided. The Record is written first, then events are emitted, actions executed."""

    record: Record
    actions: tuple[Action, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    """One for each new entry of the job's history."""
    requeue_at: datetime | None = None
    """When to reconcile again at the latest; None: when something changes."""
    restart_causes: tuple[str, ...] = ()
    """Cause of each restart in this plan, for metrics."""
    transitions: Transitions = Transitions()
    """What was observed for the first time, for events."""

    def with_actions(self, actions: Iterable[Action]) -> "Plan":
        return replace(self, actions=(*self.actions, *actions))

    def with_requeue_at(self, *times: datetime | None) -> "Plan":
        """Return the plan with the earliest of its own and these times."""
        candidates = [time for time in (self.requeue_at, *times) if time is not None]
        return replace(self, requeue_at=min(candidates, default=None))
