"""Tests for which changes of a status are written at once and which are deferred."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from argosy.kinds.scalers import ScaleOutStatus
from argosy.kinds.trainingjob import ReplicaStatus, TrainingJobStatus
from argosy.kinds.trainingrun_status import RoleStatus, TrainingRunStatus
from argosy.reconcile.status_changes import COUNTS_SECONDS, MESSAGES_SECONDS, write_interval

NOW = datetime(2026, 1, 1, tzinfo=UTC)
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
    want: float


CASES = {
    "another phase: at once": Case(replace(OLD, phase="Running"), want=0.0),
    "another reason: at once": Case(replace(OLD, reason="Unschedulable"), want=0.0),
    "newer generation: at once": Case(replace(OLD, observed_generation=2), want=0.0),
    "another attempt: at once": Case(replace(OLD, attempt=2, argosy={**OLD.argosy, "attempt": 2}), want=0.0),
    "attempt of the status catches up with the Record: delayed": Case(
        replace(OLD, attempt=2), want=COUNTS_SECONDS
    ),
    "pod counts: delayed": Case(
        replace(OLD, workers="2/4", roles={"worker": RoleStatus(phase="Starting", replicas=4, active=2)}),
        want=COUNTS_SECONDS,
    ),
    "phase of a role: at once": Case(
        replace(OLD, roles={"worker": RoleStatus(phase="Running", replicas=4, active=1)}), want=0.0
    ),
    "text of messages only: delayed longest": Case(
        replace(OLD, message="2 of 4 running", argosy={**OLD.argosy, "message": "2 of 4"}),
        want=MESSAGES_SECONDS,
    ),
    "message cleared: delayed": Case(replace(OLD, message=""), want=COUNTS_SECONDS),
    "pod counts and the message with them: delayed": Case(
        replace(OLD, message="2 of 4 running", workers="2/4"), want=COUNTS_SECONDS
    ),
    "another phase and message: at once": Case(replace(OLD, phase="Running", message="runs"), want=0.0),
    "number in the Record: at once": Case(
        replace(OLD, argosy={**OLD.argosy, "roles": {"worker": {"created": 5}}}), want=0.0
    ),
}


def test_names_of_running_pods_are_written_like_their_number() -> None:
    old = TrainingJobStatus(phase="Created", current_workers=["w0"], replicas=1, target_workers=["w0", "w1"])
    more = replace(old, current_workers=["w0", "w1"], replicas=2)
    assert write_interval(old, more) == COUNTS_SECONDS
    assert write_interval(old, replace(more, target_workers=["w0"])) == 0.0


def test_the_time_of_a_write_is_no_reason_to_write() -> None:
    old = ScaleOutStatus(phase="Scaling", replica_statuses={"Worker": ReplicaStatus(active=0)})
    more = replace(old, replica_statuses={"Worker": ReplicaStatus(active=1)}, last_reconcile_time=NOW)
    assert write_interval(old, more) == COUNTS_SECONDS


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_write_interval(case: Case) -> None:
    assert write_interval(OLD, case.new) == case.want
