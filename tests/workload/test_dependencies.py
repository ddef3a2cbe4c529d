from collections.abc import Mapping

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.helper import initializer
from argosy.workload import dependencies, phases, pods
from argosy.workload.model import Dependency, Phase
from argosy.workload.record import Record, RoleRecord
from tests.support.workloads import NOW, later, observation, role, role_record, workload

P, S, R, D, F = Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED


class Case(Struct):
    phase: Phase
    wanted: Phase
    want_reached: bool = False
    want_unreachable: str = ""
    seconds: float = 0


CASES = {
    "Starting, Running wanted: waits": Case(S, R),
    "Running, Running wanted: reached": Case(R, R, want_reached=True),
    "Succeeded, Running wanted: reached": Case(D, R, want_reached=True),
    "Running, Succeeded wanted: waits": Case(R, D),
    "Succeeded, Succeeded wanted: reached": Case(D, D, want_reached=True),
    "Failed, Failed wanted: reached": Case(F, F, want_reached=True),
    "Failed for long, Failed wanted: reached": Case(F, F, want_reached=True, seconds=90),
    "Succeeded, Failed wanted: unreachable": Case(
        D, F, want_unreachable="role worker has succeeded and will not fail"
    ),
    "Failed for 59 s, Running wanted: waits": Case(F, R, seconds=59),
    "Failed for 60 s, Running wanted: unreachable": Case(
        F, R, want_unreachable="role worker has been Failed for 60 s", seconds=60
    ),
    "Starting for an hour, Running wanted: waits": Case(S, R, seconds=3600),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_dependency_waits_is_reached_or_becomes_unreachable(case: Case) -> None:
    record = Record(roles={"worker": RoleRecord(phase=case.phase, phase_since=NOW)})
    state = dependencies.evaluate(record, Dependency("worker", case.wanted), later(case.seconds))
    assert (state.reached, state.unreachable) == (case.want_reached, case.want_unreachable)


def test_no_phase_is_reachable_in_a_finished_job() -> None:
    record = Record(phase=F, roles={"worker": RoleRecord(phase=R, phase_since=NOW)})
    state = dependencies.evaluate(record, Dependency("worker", R), NOW)
    assert (state.reached, state.unreachable) == (False, "the job is Failed")


@pytest.mark.parametrize("wanted", dependencies.ROLE_PHASES)
@pytest.mark.parametrize("phase", dependencies.ROLE_PHASES)
def test_the_initializer_has_the_same_rules(phase: Phase, wanted: Phase) -> None:
    assert dependencies.has_reached(phase, wanted) is initializer.is_reached(phase.value, wanted.value)
    for seconds in (0.0, 59.9, 60.0, 3600.0):
        assert dependencies.unreachable_reason("a", phase, wanted, seconds) == initializer.unreachable_reason(
            "a", phase.value, wanted.value, seconds
        )


def waits(**on: str) -> Mapping[str, list[Dependency]]:
    return {name: [Dependency(other) for other in others.split()] for name, others in on.items()}


PROBLEMS = {
    "roles that depend on others without a cycle: no problem": (waits(a="", b="a", c="a b"), []),
    "role that depends on itself: one problem": (
        waits(a="a"),
        ["spec.roles.a.dependsOn: a role cannot wait for itself"],
    ),
    "role that depends on an unknown role: one problem": (
        waits(a="x", b=""),
        ['spec.roles.a.dependsOn: unknown role "x" (known roles: a, b)'],
    ),
    "cycle of three roles: one problem with the whole cycle": (
        waits(a="b", b="c", c="a", d="a"),
        ["spec.roles.a.dependsOn: roles wait for each other: a → b → c → a"],
    ),
}


@pytest.mark.parametrize(("on", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_self_dependencies_unknown_roles_and_cycles_are_problems(
    on: Mapping[str, list[Dependency]], want: list[str]
) -> None:
    assert [str(problem) for problem in dependencies.problems(on, "spec.roles")] == want


HOLDS = {
    "other role Starting: held": (S, P, True),
    "other role Running: created": (R, P, False),
    "other role lost pods after this one started: not held again": (S, S, False),
}


@pytest.mark.parametrize(("other", "own", "want"), HOLDS.values(), ids=HOLDS.keys())
def test_pods_are_not_created_before_the_other_role_has_the_phase(
    other: Phase, own: Phase, want: bool
) -> None:
    launcher = replace(role("launcher", 1), depends_on=(Dependency("worker", R, holds_creation=True),))
    job = workload(role("worker", 1), launcher)
    roles = {"worker": role_record(other, size=1), "launcher": role_record(own, size=1)}
    record = Record(attempt_started_at=NOW, roles=roles)
    assert dependencies.is_creation_held(launcher, record) is want
    created = pods.plan_creation(job, record, observation(), NOW).create
    assert ("launcher" in [action.role for action in created]) is not want
    started = phases.with_attempt_started(job, record, NOW)
    assert started.role("launcher").phase is (P if want else S)
