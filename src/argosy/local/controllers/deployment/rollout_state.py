"""The ReplicaSets of a Deployment as one pass sees and leaves them, and the room that its strategy gives."""

import math
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct, field

from argosy.local.controllers.workloads import Deployment, ReplicaSet

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
_EVER = datetime.fromisoformat("1970-01-01T00:00:00Z")


class Part(Struct):
    """A ReplicaSet with the size and annotations that this pass gives it."""

    set: ReplicaSet
    replicas: int
    notes: dict[str, str]
    new: bool = False
    """Not made yet."""

    @classmethod
    def of(cls, existing: ReplicaSet) -> "Part":
        return cls(existing, existing.spec.replicas, dict(existing.metadata.annotations))

    @property
    def name(self) -> str:
        return self.set.metadata.name

    @property
    def available(self) -> int:
        return self.set.status.available_replicas

    @property
    def age(self) -> tuple[datetime, str]:
        """Sorts the oldest first."""
        return self.set.metadata.creation_timestamp or _EVER, self.name

    @property
    def revision(self) -> int:
        return number(self.notes.get(REVISION)) or 0


class Parts(Struct):
    deployment: Deployment
    new: Part | None
    old: list[Part]
    scaled: list[str] = field(default_factory=list)
    """What was scaled in this pass, as its events say it."""

    @property
    def all(self) -> list[Part]:
        return [*self.old, self.new] if self.new is not None else list(self.old)

    def resize(self, part: Part, size: int, *, force: bool = False) -> bool:
        """Give a part a size, and note what it was computed from; whether that changed the size."""
        if part.replicas == size and not force:
            return False
        part.notes |= size_notes(self.deployment)
        if part.replicas == size:
            return False
        way = "up" if part.replicas < size else "down"
        self.scaled.append(f"Scaled {way} replica set {part.name} from {part.replicas} to {size}")
        part.replicas = size
        return True


def size_notes(deployment: Deployment) -> dict[str, str]:
    wanted = deployment.spec.replicas
    return {DESIRED: str(wanted), MOST: str(wanted + max_surge(deployment))}


def active(parts: Iterable[Part]) -> list[Part]:
    return [part for part in parts if part.replicas > 0]


def total(parts: Iterable[Part]) -> int:
    return sum(part.replicas for part in parts)


def rolling(deployment: Deployment) -> bool:
    return deployment.spec.strategy.type == "RollingUpdate"


def max_surge(deployment: Deployment) -> int:
    """How many pods there may be beyond those wanted."""
    return _fenceposts(deployment)[0] if rolling(deployment) else 0


def max_unavailable(deployment: Deployment) -> int:
    """How many of the wanted pods may be missing."""
    wanted = deployment.spec.replicas
    return min(_fenceposts(deployment)[1], wanted) if rolling(deployment) else 0


def _fenceposts(deployment: Deployment) -> tuple[int, int]:
    limits, wanted = deployment.spec.strategy.rolling_update, deployment.spec.replicas
    if limits is None:
        return 0, 1
    surge = math.ceil(_share(limits.max_surge, wanted))
    unavailable = math.floor(_share(limits.max_unavailable, wanted))
    # Rounding may leave no room for anything: then one pod may be missing.
    return surge, unavailable if surge or unavailable else 1


def _share(amount: int | str, whole: int) -> float:
    if isinstance(amount, int):
        return amount
    return (number(amount.removesuffix("%")) or 0) * whole / 100


def number(text: str | None) -> int | None:
    """A number that is not negative, from an annotation; None if it is none."""
    return int(text) if text is not None and text.isdecimal() else None
