"""The sizes of a Deployment's ReplicaSets: in a rollout, and when the Deployment itself is scaled. Pure."""

import math

from argosy.local.controllers.deployment.rollout_state import (
    DESIRED,
    MOST,
    Part,
    Parts,
    active,
    max_surge,
    max_unavailable,
    number,
    rolling,
    total,
)


def new_size(parts: Parts, new: Part) -> int:
    """How large the newest set may be now."""
    wanted = parts.deployment.spec.replicas
    if not rolling(parts.deployment):
        return wanted
    room = wanted + max_surge(parts.deployment) - total(parts.all)
    return new.replicas + max(min(room, wanted - new.replicas), 0) if room > 0 else new.replicas


def grow(parts: Parts, new: Part) -> bool:
    """A step of a rolling update: the newest set up to what the surge allows, or down to what is wanted."""
    wanted = parts.deployment.spec.replicas
    if new.replicas == wanted:
        return False
    return parts.resize(new, wanted if new.replicas > wanted else new_size(parts, new))


def shrink(parts: Parts, new: Part) -> bool:
    """The other step: old sets down by what may be missing, pods that do not work first."""
    deployment = parts.deployment
    old = sorted(active(parts.old), key=lambda part: part.age)
    least = deployment.spec.replicas - max_unavailable(deployment)
    may_go = total(parts.all) - least - (new.replicas - new.available)
    if not old or may_go <= 0 or any(part.available > part.replicas for part in old):
        return False  # the last: a set was made smaller and has not said yet what that left
    gone = 0
    for part in old:
        step = max(min(may_go - gone, part.replicas - part.available), 0)
        parts.resize(part, part.replicas - step)
        gone += step
    # What is available is counted as it was: those taken away above were not.
    spare = sum(part.available for part in [*old, new]) - least
    for part in old:
        step = max(min(part.replicas, spare), 0)
        parts.resize(part, part.replicas - step)
        gone, spare = gone + step, spare - step
    return gone > 0


def scaled_meanwhile(parts: Parts) -> bool:
    """Whether the Deployment was given another size since its sets got theirs."""
    sizes = [number(part.notes.get(DESIRED)) for part in active(parts.all)]
    return any(size not in (None, parts.deployment.spec.replicas) for size in sizes)


def scale(parts: Parts) -> None:
    """Bring the sets to the size of the Deployment, each by its share, without rolling anything out."""
    wanted = parts.deployment.spec.replicas
    alone = _active_or_latest(parts)
    if alone is not None:
        parts.resize(alone, wanted)
    elif _saturated(parts):
        for part in active(parts.old):
            parts.resize(part, 0)
    elif rolling(parts.deployment):
        _scale_each(parts)


def _active_or_latest(parts: Parts) -> Part | None:
    running = active(parts.all)
    if len(running) == 1:
        return running[0]
    if running:
        return None
    return parts.new or max(parts.old, key=lambda part: part.age, default=None)


def _saturated(parts: Parts) -> bool:
    new, wanted = parts.new, parts.deployment.spec.replicas
    return (
        new is not None
        and number(new.notes.get(DESIRED)) == wanted
        and new.replicas == new.available == wanted
    )


def _scale_each(parts: Parts) -> None:
    deployment = parts.deployment
    wanted = deployment.spec.replicas
    running = active(parts.all)
    more = (wanted + max_surge(deployment) if wanted else 0) - total(running)
    # The largest first; of equal ones the newest grows first, and the oldest shrinks first.
    running.sort(key=lambda part: part.age, reverse=more > 0)
    running.sort(key=lambda part: -part.replicas)
    sizes: list[int] = []
    for part in running:
        left = more - (sum(sizes) - total(running[: len(sizes)]))
        share = _share(parts, part) if more and left else 0
        sizes.append(part.replicas + (min(share, left) if more > 0 else max(share, left)))
    if more:
        rest = more - (sum(sizes) - total(running))
        sizes[0] = max(sizes[0] + rest, 0)
    for part, size in zip(running, sizes, strict=True):
        parts.resize(part, size, force=True)


def _share(parts: Parts, part: Part) -> int:
    """By how much a set should change so as to keep its part of the whole."""
    wanted = parts.deployment.spec.replicas
    if wanted == 0:
        return -part.replicas
    before = number(part.notes.get(MOST)) or parts.deployment.status.replicas
    if not before:
        return 0
    size = part.replicas * (wanted + max_surge(parts.deployment)) / before
    return math.floor(size + 0.5) - part.replicas
