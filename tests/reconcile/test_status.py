"""Which changes of a status are written at once."""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from argosy.kinds.trainingrun import RoleStatus, TrainingRunStatus
from argosy.reconcile.status import urgent

OLD = TrainingRunStatus(
    phase="Starting",
    message="1 of 4 running",
    observed_generation=1,
    attempt=1,
    workers="1/4",
    roles={"worker": RoleStatus(phase="Starting", replicas=4, active=1)},
    argosy={"version": 1, "message": "1 of 4", "roles": {"worker": {"created": 4}}},
)


@dataclass
class Case:
    new: TrainingRunStatus
    want: bool


CASES = {
    "nothing changed": Case(OLD, want=False),
    "another phase": Case(replace(OLD, phase="Running"), want=True),
    "another reason": Case(replace(OLD, reason="Unschedulable"), want=True),
    "a newer generation": Case(replace(OLD, observed_generation=2), want=True),
    "another attempt": Case(replace(OLD, attempt=2, argosy={**OLD.argosy, "attempt": 2}), want=True),
    "the attempt that is told with its first pods": Case(replace(OLD, attempt=2), want=False),
    "counts of pods": Case(
        replace(OLD, workers="2/4", roles={"worker": RoleStatus(phase="Starting", replicas=4, active=2)}),
        want=False,
    ),
    "a role's phase": Case(
        replace(OLD, roles={"worker": RoleStatus(phase="Running", replicas=4, active=1)}), want=True
    ),
    "words that repeat the counts": Case(
        replace(OLD, message="2 of 4 running", argosy={**OLD.argosy, "message": "2 of 4"}), want=False
    ),
    "a number in the Record": Case(
        replace(OLD, argosy={**OLD.argosy, "roles": {"worker": {"created": 5}}}), want=True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_urgent(case: Case) -> None:
    assert urgent(OLD, case.new) is case.want
