"""What a pass decided: the Record to write first, then the actions to perform, then when to look again.

Actions are safe to repeat and to perform late: creations are by deterministic name and never replace
anything, deletions name a uid. So a plan that was performed by half, or twice, does no harm.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.kinds.kubernetes import Pod
from argosy.kinds.pod_groups import PodGroupType
from argosy.plan.actions import Apply, EmitEvent, Remove
from argosy.workload.record import Record
from argosy.workload.transitions import Transitions


class CreatePod(Struct, frozen=True, tag=True):
    """POST the pod of this place. Exists and is ours (owner uid, attempt, replacement, not terminating):
    done."""

    role: str
    index: int
    attempt: int
    replacement: int


class DeletePod(Struct, frozen=True, tag=True):
    """DELETE with the uid, and the version if there is one, as precondition; gone or another uid: done."""

    name: str
    uid: str
    grace_period_seconds: int | None = None
    """None: the pod's own grace period. 0: the node is down and nobody will confirm."""
    reason: str = ""
    resource_version: str = ""
    """Set where the pod goes for what it was last seen doing: an old view must not take one that has ended
    since, and its output with it."""


class ConfirmPod(Struct, frozen=True, tag=True):
    """GET the pod of this place from the API itself; if there is none, put the place in `Observed.absent`
    next time."""

    role: str
    index: int
    attempt: int
    replacement: int


class PatchMetadata(Struct, frozen=True, tag=True):
    """PATCH labels and annotations with the uid as precondition, None takes one away; gone or another uid:
    done."""

    kind: type[Pod] | PodGroupType
    name: str
    uid: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)


class DeleteJob(Struct, frozen=True, tag=True):
    """Delete the job object itself (uid as precondition, background propagation): its time to live is
    over."""

    reason: str


Action = CreatePod | DeletePod | ConfirmPod | Apply | Remove | PatchMetadata | DeleteJob


class Plan(Struct, frozen=True):
    """What one pass decided. The Record is written first, then events are emitted and actions executed."""

    record: Record
    actions: tuple[Action, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    """One for each new entry of the job's history."""
    requeue_at: datetime | None = None
    """When to reconcile again at the latest; None: when something changes."""
    restart_causes: tuple[str, ...] = ()
    """What made each restart necessary that is decided here; only counted, never acted upon."""
    transitions: Transitions = Transitions()
    """What is seen for the first time; only told, never acted upon."""

    def with_actions(self, actions: Iterable[Action]) -> "Plan":
        return replace(self, actions=(*self.actions, *actions))

    def with_requeue_at(self, *times: datetime | None) -> "Plan":
        """The plan that wakes at the earliest of its own and these times."""
        known = [time for time in (self.requeue_at, *times) if time is not None]
        return replace(self, requeue_at=min(known, default=None))
