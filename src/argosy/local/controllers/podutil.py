"""Readiness and availability of pods, as controllers that manage pods compute them."""

from datetime import datetime, timedelta

from argosy.local.controllers.api_types import Pod


def is_ready(pod: Pod) -> bool:
    return ready_since(pod) is not None


def ready_since(pod: Pod) -> datetime | None:
    """Return when the pod became ready; None if it is not."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            return condition.last_transition_time or pod.metadata.creation_timestamp or _EPOCH
    return None


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")


def seconds_until_available(pod: Pod, seconds: int, now: datetime) -> float | None:
    """Return the time until the pod has been ready for `seconds`: 0 if it has, None if it is not ready."""
    since = ready_since(pod)
    if since is None:
        return None
    return max((since + timedelta(seconds=seconds) - now).total_seconds(), 0.0) if seconds else 0.0
