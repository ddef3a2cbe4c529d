"""Computes the sizes of a Deployment's ReplicaSets, in a rollout and when the Deployment is scaled. Pure."""

import math

from argosy.local.controllers.deployment.rollout_state import (
    DESIRED_ANNOTATION,
    MAX_ANNOTATION,
    RolloutState,
    SetState,
    active_sets,
    is_rolling_update,
    max_surge,
    max_unavailable,
    parse_number,
    total_replicas,
)


def new_set_size(rollout: RolloutState, new: SetState) -> int:
    """Return the size that the new ReplicaSet may have now."""
    wanted = rollout.deployment.spec.replicas
    if not is_rolling_update(rollout.deployment):
        return wanted
    allowed = wanted + max_surge(rollout.deployment) - total_replicas(rollout.all)
    return new.replicas + max(min(allowed, wanted - new.replicas), 0) if allowed > 0 else new.replicas


def scale_new_set(rollout: RolloutState, new: SetState) -> bool:
    """Scale the new ReplicaSet up as far as the surge allows, or down to spec.replicas."""
    wanted = rollout.deployment.spec.replicas
    if new.replicas == wanted:
        return False
    return rollout.resize(new, wanted if new.replicas > wanted else new_set_size(rollout, new))


def scale_down_old_sets(rollout: RolloutState, new: SetState) -> bool:
    """Scale old ReplicaSets down by what may be unavailable, unhealthy pods first."""
    deployment = rollout.deployment
    old = sorted(active_sets(rollout.old), key=lambda set_state: set_state.age)
    least = deployment.spec.replicas - max_unavailable(deployment)
    may_go = total_replicas(rollout.all) - least - (new.replicas - new.available)
    if not old or may_go <= 0 or any(set_state.available > set_state.replicas for set_state in old):
        return False  # the last: a ReplicaSet was scaled down and its status is not updated yet
    gone = 0
    for set_state in old:
        step = max(min(may_go - gone, set_state.replicas - set_state.available), 0)
        rollout.resize(set_state, set_state.replicas - step)
        gone += step
    # The pods removed above were unavailable, so availability is unchanged.
    spare = sum(set_state.available for set_state in [*old, new]) - least
    for set_state in old:
        step = max(min(set_state.replicas, spare), 0)
        rollout.resize(set_state, set_state.replicas - step)
        gone, spare = gone + step, spare - step
    return gone > 0


def is_scaling_event(rollout: RolloutState) -> bool:
    """Return True if spec.replicas changed since the ReplicaSets were scaled."""
    sizes = [
        parse_number(set_state.annotations.get(DESIRED_ANNOTATION)) for set_state in active_sets(rollout.all)
    ]
    return any(size not in (None, rollout.deployment.spec.replicas) for size in sizes)


def scale_sets(rollout: RolloutState) -> None:
    """Scale the ReplicaSets proportionally to the Deployment's size, without a rollout."""
    wanted = rollout.deployment.spec.replicas
    alone = _active_or_latest(rollout)
    if alone is not None:
        rollout.resize(alone, wanted)
    elif _is_saturated(rollout):
        for set_state in active_sets(rollout.old):
            rollout.resize(set_state, 0)
    elif is_rolling_update(rollout.deployment):
        _scale_proportionally(rollout)


def _active_or_latest(rollout: RolloutState) -> SetState | None:
    running = active_sets(rollout.all)
    if len(running) == 1:
        return running[0]
    if running:
        return None
    return rollout.new or max(rollout.old, key=lambda set_state: set_state.age, default=None)


def _is_saturated(rollout: RolloutState) -> bool:
    new, wanted = rollout.new, rollout.deployment.spec.replicas
    return (
        new is not None
        and parse_number(new.annotations.get(DESIRED_ANNOTATION)) == wanted
        and new.replicas == new.available == wanted
    )


def _scale_proportionally(rollout: RolloutState) -> None:
    deployment = rollout.deployment
    wanted = deployment.spec.replicas
    running = active_sets(rollout.all)
    more = (wanted + max_surge(deployment) if wanted else 0) - total_replicas(running)
    # The largest first; of equal ones the newest grows first, and the oldest shrinks first.
    running.sort(key=lambda set_state: set_state.age, reverse=more > 0)
    running.sort(key=lambda set_state: -set_state.replicas)
    sizes: list[int] = []
    for set_state in running:
        left = more - (sum(sizes) - total_replicas(running[: len(sizes)]))
        share = _share(rollout, set_state) if more and left else 0
        sizes.append(set_state.replicas + (min(share, left) if more > 0 else max(share, left)))
    if more:
        remainder = more - (sum(sizes) - total_replicas(running))
        sizes[0] = max(sizes[0] + remainder, 0)
    for set_state, size in zip(running, sizes, strict=True):
        rollout.resize(set_state, size, force=True)


def _share(rollout: RolloutState, set_state: SetState) -> int:
    """Return by how much a ReplicaSet changes to keep its proportion."""
    wanted = rollout.deployment.spec.replicas
    if wanted == 0:
        return -set_state.replicas
    previous = parse_number(set_state.annotations.get(MAX_ANNOTATION)) or rollout.deployment.status.replicas
    if not previous:
        return 0
    size = set_state.replicas * (wanted + max_surge(rollout.deployment)) / previous
    return math.floor(size + 0.5) - set_state.replicas
