"""How long waits took that a pass saw end: of roles for other roles, and of jobs for their gang.

Read off the Records before and after the pass, so that no wait is told twice and none needs remembering.
"""

from collections.abc import Iterator

from argosy.workload.dependencies import has_reached
from argosy.workload.model import Phase, Role, Workload
from argosy.workload.record import Record

_WAITING = (Phase.PENDING, Phase.STARTING)


def for_roles(workload: Workload, before: Record | None, after: Record) -> Iterator[float]:
    """Seconds from when pods were asked for until the last role that they wait for was ready, for each role
    that this pass released."""
    if before is None or after.attempt_started_at is None or before.attempt != after.attempt:
        return
    for role in workload.roles.values():
        if not role.depends_on or before.role(role.name).phase not in _WAITING:
            continue
        if _released(role, after) and not _released(role, before):
            since = [
                after.role(want.role).phase_since or after.attempt_started_at for want in role.depends_on
            ]
            yield max((max(since) - after.attempt_started_at).total_seconds(), 0.0)


def for_gang(workload: Workload, before: Record | None, after: Record) -> float | None:
    """Seconds from when the job was first looked at, or stood still, until its gang was let in and its pods
    were asked for; None if this pass did not do that."""
    if (
        workload.gang is None
        or after.attempt_started_at is None
        or (before is not None and before.attempt_started_at is not None)
    ):
        return None
    since = before.phase_since if before is not None else None
    return max((after.attempt_started_at - since).total_seconds(), 0.0) if since is not None else 0.0


def _released(role: Role, record: Record) -> bool:
    return all(has_reached(record.role(want.role).phase, want.phase) for want in role.depends_on or ())
