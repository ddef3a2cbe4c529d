"""What a Deployment does next: one step of its rollout, of its scaling, or nothing. Pure.

A pass takes one step and the status that goes with it; what that brings about makes the next pass. A step up
comes before a step down, so that pods are not missed that need not be.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.local.controllers.deployment import scaling
from argosy.local.controllers.deployment.revisions import add_new, forgotten, parts_of, renew
from argosy.local.controllers.deployment.rollout_state import REVISION, Part, Parts, active, rolling
from argosy.local.controllers.deployment.status import (
    PROGRESSING,
    TIMED_OUT,
    complete,
    condition,
    counted,
    deadline_in,
    find,
    has_deadline,
    note_pause,
    put,
    rollout_status,
)
from argosy.local.controllers.workloads import Deployment, DeploymentStatus, ReplicaSet


class Plan(Struct):
    parts: Parts
    status: DeploymentStatus
    delete: list[ReplicaSet] = field(default_factory=list)
    wake: float | None = None

    @property
    def create(self) -> Part | None:
        new = self.parts.new
        return new if new is not None and new.new else None

    @property
    def changed(self) -> list[Part]:
        """The sets that are to get another size or other annotations."""
        return [part for part in self.parts.all if not part.new and self._changed(part)]

    def _changed(self, part: Part) -> bool:
        seconds = self.parts.deployment.spec.min_ready_seconds
        return (
            part.replicas != part.set.spec.replicas
            or part.notes != part.set.metadata.annotations
            or (part is self.parts.new and part.set.spec.min_ready_seconds != seconds)
        )

    @property
    def revision(self) -> str:
        """The revision that the Deployment is to show."""
        return self.parts.new.notes.get(REVISION, "") if self.parts.new is not None else ""


def decide(
    deployment: Deployment, sets: Sequence[ReplicaSet], now: datetime, *, old_pods: bool = False
) -> Plan:
    """`old_pods` says whether pods of sets other than the newest are still there."""
    parts = parts_of(deployment, sets)
    status = replace(deployment.status, conditions=list(deployment.status.conditions))
    plan = Plan(parts, status)
    if parts.new is not None:
        renew(parts, parts.new)
        _note_found(parts.new, plan, now)
    if deployment.metadata.deletion_timestamp is not None:
        plan.status = counted(parts, status, now)
        return plan
    note_pause(deployment, status, now)
    if deployment.spec.paused or scaling.scaled_meanwhile(parts):
        scaling.scale(parts)
        plan.delete = forgotten(parts) if deployment.spec.paused else []
        plan.status = counted(parts, status, now)
        return plan
    stepped = _roll(plan, now) if rolling(deployment) else _recreate(plan, now, old_pods=old_pods)
    if not stepped and complete(deployment, status):
        plan.delete = forgotten(parts)
    plan.status = rollout_status(parts, status, now)
    plan.wake = _look_again(plan, now)
    return plan


def _roll(plan: Plan, now: datetime) -> bool:
    new = plan.parts.new or _add(plan, now)
    return scaling.grow(plan.parts, new) or scaling.shrink(plan.parts, new)


def _recreate(plan: Plan, now: datetime, *, old_pods: bool) -> bool:
    """All old pods go before the first new one comes."""
    parts = plan.parts
    if going := active(parts.old):
        for part in going:
            parts.resize(part, 0)
        return True
    if old_pods or any(part.set.status.replicas for part in parts.old):
        return True
    new = parts.new or _add(plan, now)
    return new.new or parts.resize(new, parts.deployment.spec.replicas)


def _add(plan: Plan, now: datetime) -> Part:
    parts = plan.parts
    new = add_new(parts)
    parts.resize(new, scaling.new_size(parts, new))
    if has_deadline(parts.deployment):
        told = f'Created new replica set "{new.name}"'
        put(plan.status, condition(PROGRESSING, "True", "NewReplicaSetCreated", told, now))
    return new


def _note_found(new: Part, plan: Plan, now: datetime) -> None:
    if has_deadline(plan.parts.deployment) and find(plan.status, PROGRESSING) is None:
        told = f'Found new replica set "{new.name}"'
        put(plan.status, condition(PROGRESSING, "True", "FoundNewReplicaSet", told, now))


def _look_again(plan: Plan, now: datetime) -> float | None:
    """When to see whether the rollout is late."""
    deployment, known = plan.parts.deployment, find(plan.status, PROGRESSING)
    if not has_deadline(deployment) or known is None or known.reason == TIMED_OUT:
        return None
    if complete(deployment, plan.status):
        return None
    return max(deadline_in(deployment, plan.status, now), 0.0) + 1.0
