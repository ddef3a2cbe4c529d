"""Decides the next step of a Deployment: of its rollout, of its scaling, or none. Pure.

A reconcile takes one step and writes the matching status; the resulting changes trigger the next reconcile.
Scaling up comes before scaling down, so that no pod is missing unnecessarily.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.local.controllers.deployment import scaling
from argosy.local.controllers.deployment.revisions import (
    add_new_set,
    rollout_state_of,
    sets_beyond_history,
    update_new_set,
)
from argosy.local.controllers.deployment.rollout_state import (
    REVISION_ANNOTATION,
    RolloutState,
    SetState,
    active_sets,
    is_rolling_update,
)
from argosy.local.controllers.deployment.status import (
    PROGRESSING,
    TIMED_OUT,
    find_condition,
    has_deadline,
    is_complete,
    new_condition,
    record_pause,
    rollout_status,
    seconds_to_deadline,
    set_condition,
    with_counts,
)
from argosy.local.controllers.workloads import Deployment, DeploymentStatus, ReplicaSet


class Plan(Struct):
    rollout: RolloutState
    status: DeploymentStatus
    delete: list[ReplicaSet] = field(default_factory=list)
    requeue_after: float | None = None

    @property
    def create(self) -> SetState | None:
        new = self.rollout.new
        return new if new is not None and new.is_new else None

    @property
    def changed(self) -> list[SetState]:
        """ReplicaSets whose size or annotations change."""
        return [
            set_state
            for set_state in self.rollout.all
            if not set_state.is_new and self._has_changed(set_state)
        ]

    def _has_changed(self, set_state: SetState) -> bool:
        seconds = self.rollout.deployment.spec.min_ready_seconds
        return (
            set_state.replicas != set_state.replica_set.spec.replicas
            or set_state.annotations != set_state.replica_set.metadata.annotations
            or (set_state is self.rollout.new and set_state.replica_set.spec.min_ready_seconds != seconds)
        )

    @property
    def revision(self) -> str:
        """The revision to write to the Deployment."""
        return (
            self.rollout.new.annotations.get(REVISION_ANNOTATION, "") if self.rollout.new is not None else ""
        )


def decide(
    deployment: Deployment, replica_sets: Sequence[ReplicaSet], now: datetime, *, old_pods: bool = False
) -> Plan:
    """Decide the next step; `old_pods` is True while pods of old ReplicaSets exist."""
    rollout = rollout_state_of(deployment, replica_sets)
    status = replace(deployment.status, conditions=list(deployment.status.conditions))
    plan = Plan(rollout, status)
    if rollout.new is not None:
        update_new_set(rollout, rollout.new)
        _record_found(rollout.new, plan, now)
    if deployment.metadata.deletion_timestamp is not None:
        plan.status = with_counts(rollout, status, now)
        return plan
    record_pause(deployment, status, now)
    if deployment.spec.paused or scaling.is_scaling_event(rollout):
        scaling.scale_sets(rollout)
        plan.delete = sets_beyond_history(rollout) if deployment.spec.paused else []
        plan.status = with_counts(rollout, status, now)
        return plan
    stepped = _roll(plan, now) if is_rolling_update(deployment) else _recreate(plan, now, old_pods=old_pods)
    if not stepped and is_complete(deployment, status):
        plan.delete = sets_beyond_history(rollout)
    plan.status = rollout_status(rollout, status, now)
    plan.requeue_after = _deadline_check(plan, now)
    return plan


def _roll(plan: Plan, now: datetime) -> bool:
    new = plan.rollout.new or _add_new_set(plan, now)
    return scaling.scale_new_set(plan.rollout, new) or scaling.scale_down_old_sets(plan.rollout, new)


def _recreate(plan: Plan, now: datetime, *, old_pods: bool) -> bool:
    """Scale all old ReplicaSets to zero before the new one is created."""
    rollout = plan.rollout
    if going := active_sets(rollout.old):
        for set_state in going:
            rollout.resize(set_state, 0)
        return True
    if old_pods or any(set_state.replica_set.status.replicas for set_state in rollout.old):
        return True
    new = rollout.new or _add_new_set(plan, now)
    return new.is_new or rollout.resize(new, rollout.deployment.spec.replicas)


def _add_new_set(plan: Plan, now: datetime) -> SetState:
    rollout = plan.rollout
    new = add_new_set(rollout)
    rollout.resize(new, scaling.new_set_size(rollout, new))
    if has_deadline(rollout.deployment):
        message = f'Created new replica set "{new.name}"'
        set_condition(plan.status, new_condition(PROGRESSING, "True", "NewReplicaSetCreated", message, now))
    return new


def _record_found(new: SetState, plan: Plan, now: datetime) -> None:
    if has_deadline(plan.rollout.deployment) and find_condition(plan.status, PROGRESSING) is None:
        message = f'Found new replica set "{new.name}"'
        set_condition(plan.status, new_condition(PROGRESSING, "True", "FoundNewReplicaSet", message, now))


def _deadline_check(plan: Plan, now: datetime) -> float | None:
    """Return the seconds until the progress deadline must be checked."""
    deployment, existing = plan.rollout.deployment, find_condition(plan.status, PROGRESSING)
    if not has_deadline(deployment) or existing is None or existing.reason == TIMED_OUT:
        return None
    if is_complete(deployment, plan.status):
        return None
    return max(seconds_to_deadline(deployment, plan.status, now), 0.0) + 1.0
