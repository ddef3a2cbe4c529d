"""Evaluates dependencies of roles on phases of other roles.

Pods of a dependent role are created with all others and wait in an init container, so that a gang scheduler
sees all pods at once; with `holds_creation` they are created later instead. The init container asks the
operator's endpoint, which answers with `evaluate`. The initializer of AresJobs has a copy of the rules, as it
runs in images without this package; a test compares both.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from argosy.kinds.text import unknown_name
from argosy.workload.model import Dependency, Phase, Problem, Role, Workload
from argosy.workload.record import Record

FAILED_ROLE_GRACE_SECONDS = 60.0
"""Seconds for which pods wait for a role that is Failed: its pods may be replaced and run again."""

PHASE_ORDER = (Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED)
"""Phases of a role in the order in which it reaches them."""
ROLE_PHASES = (*PHASE_ORDER, Phase.FAILED)
"""Phases of a role that others can wait for."""


class DependencyState(Struct, frozen=True):
    """Whether a pod that waits for a phase of a role may start."""

    reached: bool = False
    unreachable: str = ""
    """Why the phase will not be reached any more; empty while it may be."""


def evaluate(record: Record, dependency: Dependency, now: datetime) -> DependencyState:
    """Return whether the dependency is met; nothing is in a job that has finished."""
    if record.phase.terminal:
        return DependencyState(unreachable=f"the job is {record.phase}")
    role = record.role(dependency.role)
    if has_reached(role.phase, dependency.phase):
        return DependencyState(reached=True)
    seconds = (now - role.phase_since).total_seconds() if role.phase_since else 0.0
    reason = unreachable_reason(dependency.role, role.phase, dependency.phase, seconds)
    return DependencyState(unreachable=reason)


def is_creation_held(role: Role, record: Record) -> bool:
    """Return True if the pods of a role must not exist yet.

    Once the role has started it is not held again in this attempt: the other role may lose pods meanwhile.
    """
    if record.role(role.name).phase is not Phase.PENDING:
        return False
    return any(
        want.holds_creation and not has_reached(record.role(want.role).phase, want.phase)
        for want in role.depends_on or ()
    )


def has_reached(phase: Phase, wanted: Phase) -> bool:
    """Return True if a role in `phase` meets a dependency on `wanted`.

    A later phase is as good as the wanted one, but Succeeded and Failed are met by themselves only.
    """
    if wanted.terminal or phase not in PHASE_ORDER:
        return phase is wanted
    return wanted in PHASE_ORDER and PHASE_ORDER.index(phase) >= PHASE_ORDER.index(wanted)


def unreachable_reason(role: str, phase: Phase, wanted: Phase, seconds: float) -> str:
    """Return why a role that has been in `phase` for so long will not reach `wanted`; empty if it may."""
    if wanted is Phase.FAILED and phase is Phase.SUCCEEDED:
        return f"role {role} has succeeded and will not fail"
    if phase is Phase.FAILED and seconds >= FAILED_ROLE_GRACE_SECONDS:
        return f"role {role} has been Failed for {FAILED_ROLE_GRACE_SECONDS:g} s"
    return ""


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
    """Return dependencies on unknown roles, on the role itself and in cycles; `path` is that of the roles."""
    problems: list[Problem] = []
    for role, wants in dependencies.items():
        for want in wants:
            if want.role == role:
                problems.append(Problem(f"{path}.{role}.dependsOn", "a role cannot wait for itself"))
            elif want.role not in dependencies:
                message = unknown_name("role", want.role, dependencies)
                problems.append(Problem(f"{path}.{role}.dependsOn", message))
    if problems:
        return problems
    cycle = _find_cycle({role: [want.role for want in wants] for role, wants in dependencies.items()})
    if cycle:
        message = f"roles wait for each other: {' → '.join(cycle)}"
        problems.append(Problem(f"{path}.{cycle[0]}.dependsOn", message))
    return problems


def _find_cycle(waits: Mapping[str, list[str]]) -> list[str] | None:
    visited: set[str] = set()
    return next((cycle for role in sorted(waits) if (cycle := _visit(role, [], waits, visited))), None)


def _visit(role: str, path: list[str], waits: Mapping[str, list[str]], visited: set[str]) -> list[str] | None:
    """Return a cycle that can be reached from the role.

    Not a nested function: one that calls itself is a reference cycle, which every job would leave behind.
    """
    if role in path:
        return [*path[path.index(role) :], role]
    if role in visited:
        return None
    for other in waits[role]:
        cycle = _visit(other, [*path, role], waits, visited)
        if cycle:
            return cycle
    visited.add(role)
    return None
