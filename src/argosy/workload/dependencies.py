"""Roles that wait for other roles. Their pods exist from the start and wait inside, in an init container.

So placement of the whole job and the order of its start do not fight: the scheduler sees all pods at once.
The init container asks the operator, and the answer is computed here.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from argosy.workload import messages
from argosy.workload.model import Dependency, Phase, Problem, Workload
from argosy.workload.record import Record

PATIENCE = 60.0
"""Seconds for which a role may be Failed, and come back, before those who wait for it give up."""

_ORDER = (Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED)


class Answer(Struct, frozen=True):
    """Go on, wait, or give up, with the reason for the latter two."""

    released: bool
    hopeless: bool = False
    reason: str = ""


def answer(workload: Workload, record: Record, wants: Iterable[Dependency], now: datetime) -> Answer:
    """What to tell a pod that waits for these."""
    if record.finished_at:
        return Answer(released=False, hopeless=True, reason=f"the job is {record.phase}")
    for want in wants:
        if want.role not in workload.roles:
            return Answer(released=False, hopeless=True, reason=f"there is no role {want.role}")
        role = record.role(want.role)
        if has_reached(role.phase, want.phase):
            continue
        reason = f"waits for {want.role} to be {want.phase}; it is {role.phase}"
        return Answer(
            released=False, hopeless=_hopeless(role.phase, want.phase, role.phase_since, now), reason=reason
        )
    return Answer(released=True)


def has_reached(phase: Phase, wanted: Phase) -> bool:
    """A later phase is as good as the wanted one; Succeeded and Failed are only themselves."""
    if wanted in (Phase.SUCCEEDED, Phase.FAILED) or phase is Phase.FAILED:
        return phase is wanted
    return _ORDER.index(phase) >= _ORDER.index(wanted)


def releases_waiting(workload: Workload, before: Record | None, after: Record) -> bool:
    """Return True if a phase that pods of another role wait for is reached in `after` and was not before."""
    was = before or Record()
    wants = {want for role in workload.roles.values() for want in role.depends_on or ()}
    return any(
        has_reached(after.role(want.role).phase, want.phase)
        and not has_reached(was.role(want.role).phase, want.phase)
        for want in wants
    )


def problems(dependencies: Mapping[str, Iterable[Dependency]], path: str) -> list[Problem]:
    """Dependencies on a role that is not there, on itself, or in a circle; `path` ends before the role's
    name."""
    found: list[Problem] = []
    for role, wants in dependencies.items():
        for want in wants:
            if want.role == role:
                found.append(Problem(f"{path}.{role}.dependsOn", "a role cannot wait for itself"))
            elif want.role not in dependencies:
                known = messages.join_names(sorted(dependencies), most=8)
                said = f"there is no role {want.role!r}; there are {known}"
                found.append(Problem(f"{path}.{role}.dependsOn", said))
    circle = (
        None if found else _circle({role: [w.role for w in wants] for role, wants in dependencies.items()})
    )
    if circle:
        said = f"roles wait for each other: {' → '.join(circle)}"
        found.append(Problem(f"{path}.{circle[0]}.dependsOn", said))
    return found


def _hopeless(phase: Phase, wanted: Phase, since: datetime | None, now: datetime) -> bool:
    if wanted is Phase.FAILED:
        return phase is Phase.SUCCEEDED
    failed_for = (now - since).total_seconds() if since else 0.0
    return phase is Phase.FAILED and failed_for >= PATIENCE


def _circle(waits: Mapping[str, list[str]]) -> list[str] | None:
    done: set[str] = set()
    return next((circle for role in sorted(waits) if (circle := _visit(role, [], waits, done))), None)


def _visit(role: str, way: list[str], waits: Mapping[str, list[str]], done: set[str]) -> list[str] | None:
    """A function of its own: one inside another that calls itself would be left as garbage by every job."""
    if role in way:
        return [*way[way.index(role) :], role]
    if role in done:
        return None
    for other in waits[role]:
        circle = _visit(other, [*way, role], waits, done)
        if circle:
            return circle
    done.add(role)
    return None
