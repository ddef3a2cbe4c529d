from collections.abc import Mapping

import pytest
from msgspec import Struct

from argosy.workload import dependencies
from argosy.workload.model import Dependency, Phase
from argosy.workload.record import Record, RoleRecord
from tests.support.workloads import NOW, later, role, workload

P, S, R, D, F = Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED


class Case(Struct):
    phase: Phase
    want: Phase
    released: bool
    hopeless: bool = False
    seconds: float = 0


CASES = {
    "not there yet": Case(S, R, released=False),
    "there": Case(R, R, released=True),
    "beyond": Case(D, R, released=True),
    "Succeeded is only itself": Case(R, D, released=False),
    "and itself": Case(D, D, released=True),
    "Failed is what was wanted": Case(F, F, released=True),
    "Failed will never come": Case(D, F, released=False, hopeless=True),
    "a failed role may come back": Case(F, R, released=False),
    "but not for ever": Case(F, R, released=False, hopeless=True, seconds=60),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_answer(case: Case) -> None:
    record = Record(roles={"worker": RoleRecord(phase=case.phase, phase_since=NOW)})
    wants = [Dependency("worker", case.want)]
    answer = dependencies.answer(workload(), record, wants, later(case.seconds))
    assert (answer.released, answer.hopeless) == (case.released, case.hopeless)
    assert bool(answer.reason) is not case.released


def test_nobody_waits_in_a_finished_job() -> None:
    answer = dependencies.answer(workload(), Record(finished_at=NOW, phase=F), [Dependency("worker")], NOW)
    assert (answer.hopeless, answer.reason) == (True, "the job is Failed")


def test_a_role_that_is_not_there() -> None:
    answer = dependencies.answer(workload(role("a")), Record(), [Dependency("b")], NOW)
    assert (answer.hopeless, answer.reason) == (True, "there is no role b")


def waits(**on: str) -> Mapping[str, list[Dependency]]:
    return {name: [Dependency(other) for other in others.split()] for name, others in on.items()}


PROBLEMS = {
    "none": (waits(a="", b="a", c="a b"), []),
    "itself": (waits(a="a"), ["spec.roles.a.dependsOn: a role cannot wait for itself"]),
    "unknown": (waits(a="x", b=""), ["spec.roles.a.dependsOn: there is no role 'x'; there are a and b"]),
    "a circle": (
        waits(a="b", b="c", c="a", d="a"),
        ["spec.roles.a.dependsOn: roles wait for each other: a → b → c → a"],
    ),
}


@pytest.mark.parametrize(("on", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(on: Mapping[str, list[Dependency]], want: list[str]) -> None:
    assert [str(one) for one in dependencies.problems(on, "spec.roles")] == want
