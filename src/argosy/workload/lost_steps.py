"""Computes how many steps of training a loss of pods has undone.

Programs report their step into a file; the sidecar of a role's first pod passes it on once a minute, when the
pod ends, and when training goes back. So the number is exact where a pod ends in an orderly way, and may lack
up to a minute of training if its node disappears. It is not known if no pod has reported a step.
"""

from datetime import datetime

from msgspec.structs import replace

from argosy.workload.checkpoint_record import Recovery
from argosy.workload.current_pods import is_current
from argosy.workload.observed import Observed
from argosy.workload.record import Record


def max_step(*steps: int | None) -> int | None:
    """Return the highest step that is known."""
    return max((step for step in steps if step is not None), default=None)


def with_reached_step(record: Record, observed: Observed, recovery: Recovery, now: datetime) -> Recovery:
    """Return the recovery with the last step that was reported before the pods were replaced.

    When it is recorded that they are, all pods count; later only those that are replaced, which may report
    until they have ended.
    """
    if recovery.outcome or recovery.replaced_at is None:
        return recovery
    is_first = recovery.replaced_at == now
    reports = [
        pod.training_step
        for pod in (*observed.pods, *observed.recently_deleted)
        if pod.training_step is not None and (is_first or not is_current(record, pod))
    ]
    reached = max_step(recovery.reached_step, *reports)
    return recovery if reached == recovery.reached_step else replace(recovery, reached_step=reached)


def steps_lost(record: Record, recovery: Recovery, restored: int | None) -> int | None:
    """Return how many steps are computed again by pods that have started from this step; None: not known."""
    if recovery.saved_level:
        return None  # an image of the processes has no step
    if restored is None and record.saved is None:
        restored = 0  # there is no checkpoint
    if restored is None or recovery.reached_step is None:
        return None
    # The checkpoint may be newer than the last report.
    reached = max(recovery.reached_step, recovery.saved_step or 0)
    return max(reached - restored, 0)


def with_steps_lost(before: Record, after: Record) -> Record:
    """Return the record with the sum of the recoveries that have ended now.

    Several that were ended by the same replacement of pods count once.
    """
    ended = [
        recovery
        for old, recovery in zip(before.recoveries, after.recoveries, strict=True)
        if not old.outcome and recovery.outcome
    ]
    lost: dict[datetime | None, int] = {}
    for recovery in ended:
        if recovery.steps_lost is not None:
            lost[recovery.replaced_at] = max(lost.get(recovery.replaced_at, 0), recovery.steps_lost)
    return replace(after, steps_lost=(after.steps_lost or 0) + sum(lost.values())) if lost else after
