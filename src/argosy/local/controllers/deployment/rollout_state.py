"""The ReplicaSets of a Deployment during one reconcile, and the limits of its rollout strategy."""

import math
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct, field

from argosy.local.controllers.workloads import Deployment, ReplicaSet

REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
HISTORY_ANNOTATION = "deployment.kubernetes.io/revision-history"
DESIRED_ANNOTATION = "deployment.kubernetes.io/desired-replicas"
MAX_ANNOTATION = "deployment.kubernetes.io/max-replicas"
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")


class SetState(Struct):
    """A ReplicaSet with the size and annotations that this reconcile gives it."""

    replica_set: ReplicaSet
    replicas: int
    annotations: dict[str, str]
    is_new: bool = False
    """Whether it does not exist yet."""

    @classmethod
    def of(cls, existing: ReplicaSet) -> "SetState":
        return cls(existing, existing.spec.replicas, dict(existing.metadata.annotations))

    @property
    def name(self) -> str:
        return self.replica_set.metadata.name

    @property
    def available(self) -> int:
        return self.replica_set.status.available_replicas

    @property
    def age(self) -> tuple[datetime, str]:
        """Sorts the oldest first."""
        return self.replica_set.metadata.creation_timestamp or _EPOCH, self.name

    @property
    def revision(self) -> int:
        return parse_number(self.annotations.get(REVISION_ANNOTATION)) or 0


class RolloutState(Struct):
    deployment: Deployment
    new: SetState | None
    old: list[SetState]
    scale_messages: list[str] = field(default_factory=list)
    """Messages of the ScalingReplicaSet events of this reconcile."""

    @property
    def all(self) -> list[SetState]:
        return [*self.old, self.new] if self.new is not None else list(self.old)

    def resize(self, set_state: SetState, size: int, *, force: bool = False) -> bool:
        """Set a ReplicaSet's size and the size annotations; return True if the size changed."""
        if set_state.replicas == size and not force:
            return False
        set_state.annotations |= size_annotations(self.deployment)
        if set_state.replicas == size:
            return False
        way = "up" if set_state.replicas < size else "down"
        self.scale_messages.append(
            f"Scaled {way} replica set {set_state.name} from {set_state.replicas} to {size}"
        )
        set_state.replicas = size
        return True


def size_annotations(deployment: Deployment) -> dict[str, str]:
    wanted = deployment.spec.replicas
    return {DESIRED_ANNOTATION: str(wanted), MAX_ANNOTATION: str(wanted + max_surge(deployment))}


def active_sets(rollout: Iterable[SetState]) -> list[SetState]:
    return [set_state for set_state in rollout if set_state.replicas > 0]


def total_replicas(rollout: Iterable[SetState]) -> int:
    return sum(set_state.replicas for set_state in rollout)


def is_rolling_update(deployment: Deployment) -> bool:
    return deployment.spec.strategy.type == "RollingUpdate"


def max_surge(deployment: Deployment) -> int:
    """Return how many pods there may be beyond spec.replicas."""
    return _fenceposts(deployment)[0] if is_rolling_update(deployment) else 0


def max_unavailable(deployment: Deployment) -> int:
    """Return how many of spec.replicas may be unavailable."""
    wanted = deployment.spec.replicas
    return min(_fenceposts(deployment)[1], wanted) if is_rolling_update(deployment) else 0


def _fenceposts(deployment: Deployment) -> tuple[int, int]:
    limits, wanted = deployment.spec.strategy.rolling_update, deployment.spec.replicas
    if limits is None:
        return 0, 1
    surge = math.ceil(_share(limits.max_surge, wanted))
    unavailable = math.floor(_share(limits.max_unavailable, wanted))
    # If rounding leaves both at zero, one pod may be unavailable, or the rollout could not progress.
    return surge, unavailable if surge or unavailable else 1


def _share(amount: int | str, whole: int) -> float:
    if isinstance(amount, int):
        return amount
    return (parse_number(amount.removesuffix("%")) or 0) * whole / 100


def parse_number(text: str | None) -> int | None:
    """Parse a non-negative integer of an annotation; None if it is not one."""
    return int(text) if text is not None and text.isdecimal() else None
