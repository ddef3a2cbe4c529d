"""Tests for the deletion of a machine: when it counts as deleted, and when it is requested again."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.capacity import reasons
from argosy.capacity.machine_plan import Context, MachineFacts
from argosy.capacity.machine_record import MachineNotice, MachineRecord, MachineState
from argosy.capacity.provider import (
    NOT_FOUND,
    Identity,
    ObservedMachine,
    ObservedOperation,
    OperationKind,
    Presence,
    ZoneState,
)
from argosy.capacity.providers.gce import Gce
from argosy.capacity.removal import REPEAT_DELETION_SECONDS, UNWANTED, remove
from argosy.capacity.running import LOST, improve_cause
from argosy.capacity.settings import MachineSettings
from argosy.plan.actions import CallResult, CallStatus
from argosy.plan.contract import ViewState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATE = timedelta(seconds=MachineSettings().late_seconds)
RECORD = MachineRecord(
    state=MachineState.DELETING,
    name="vm",
    project="project",
    zone="zone-a",
    attempt=1,
    requested_at=NOON - timedelta(hours=1),
    sent=True,
    confirmed=True,
    deletion_reason=UNWANTED,
    deleting_since=NOON,
)
MACHINE = ObservedMachine("vm", "STOPPING", Presence.LOST)
DONE = CallResult("", CallStatus.DONE)
ABSENT = CallResult("", CallStatus.REFUSED, code=NOT_FOUND)


def deletion(*, done: bool, code: str = "") -> ObservedOperation:
    request_id = RECORD.request_id("uid", "delete")
    return ObservedOperation("1", OperationKind.DELETE, "vm", request_id, done, code, "no reason", NOON)


def insertion(*, done: bool) -> ObservedOperation:
    return ObservedOperation("2", OperationKind.INSERT, "vm", "request", done, at=NOON)


def context(
    record: MachineRecord,
    answer: CallResult | None,
    operations: Sequence[ObservedOperation] = (),
    machines: Sequence[ObservedMachine] = (),
    now: datetime = NOON,
) -> Context:
    zone = ZoneState({machine.name: machine for machine in machines}, {"vm": tuple(operations)})
    key = f"delete-{record.attempt}-{record.zone}-{record.tries}"
    facts = MachineFacts(
        name="vm",
        namespace="research",
        identity=Identity("uid", "cluster"),
        now=now,
        results={} if answer is None else {key: answer},
        zone=ViewState(zone, now),
        deleting=True,
    )
    return Context(facts, Gce(), MachineSettings())


class Case(Struct):
    answer: CallResult | None = None
    operations: tuple[ObservedOperation, ...] = ()
    machines: tuple[ObservedMachine, ...] = ()
    confirmed: bool = True
    now: datetime = NOON
    want_state: MachineState = MachineState.DELETING
    want_calls: int = 1
    want_tries: int = 0
    want_reason: str = ""


CASES = {
    "nothing requested yet: requested": Case(),
    "deletion in progress: waited for": Case(DONE, (deletion(done=False),), (MACHINE,)),
    "deletion in progress for long: requested again": Case(
        DONE,
        (deletion(done=False),),
        (MACHINE,),
        now=NOON + timedelta(seconds=REPEAT_DELETION_SECONDS),
        want_tries=1,
    ),
    "deletion done and the machine still listed: waited for": Case(DONE, (deletion(done=True),), (MACHINE,)),
    "deletion done: requested again, to learn that there is no machine": Case(
        DONE, (deletion(done=True),), want_tries=1
    ),
    "deletion failed: tried again later, with the reason": Case(
        DONE,
        (deletion(done=True, code="INTERNAL_ERROR"),),
        want_calls=0,
        want_tries=1,
        want_reason=reasons.CLOUD_UNAVAILABLE,
    ),
    "no such machine: deleted": Case(ABSENT, want_state=MachineState.DELETED, want_calls=0),
    "no such machine, whose creation may still arrive: looked for again": Case(
        ABSENT, confirmed=False, want_calls=0, want_tries=1
    ),
    "no such machine, whose creation did not arrive in time: deleted": Case(
        ABSENT, confirmed=False, now=NOON + LATE, want_state=MachineState.DELETED, want_calls=0
    ),
    "no such machine, whose creation is still in progress after that time: looked for again": Case(
        ABSENT, (insertion(done=False),), confirmed=False, now=NOON + LATE, want_calls=0, want_tries=1
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_deletion(case: Case) -> None:
    record = replace(RECORD, confirmed=case.confirmed)
    plan = remove(record, context(record, case.answer, case.operations, case.machines, case.now))
    assert plan.record.state is case.want_state
    assert len(plan.calls) == case.want_calls
    assert (plan.record.tries, plan.record.reason) == (case.want_tries, case.want_reason)


def notice(cause: str) -> MachineNotice:
    return MachineNotice("STOPPING", NOON, NOON, cause)


CAUSES: dict[str, tuple[str, OperationKind, str]] = {
    "unknown, and an operation took the machine back: preempted": (
        reasons.UNKNOWN,
        OperationKind.PREEMPTED,
        reasons.PREEMPTED,
    ),
    "unknown, and an operation explains nothing: stays unknown": (
        reasons.UNKNOWN,
        OperationKind.OTHER,
        reasons.UNKNOWN,
    ),
    "known already: stays": (reasons.MAINTENANCE, OperationKind.PREEMPTED, reasons.MAINTENANCE),
}


@pytest.mark.parametrize(("cause", "kind", "want"), CAUSES.values(), ids=CAUSES.keys())
def test_cause_of_a_loss(cause: str, kind: OperationKind, want: str) -> None:
    lost = MachineRecord(
        name="vm", zone="zone-a", requested_at=NOON, deletion_reason=LOST, notice=notice(cause)
    )
    operation = ObservedOperation("3", kind, "vm", done=True, at=NOON)
    after = improve_cause(lost, context(lost, None, (operation,)))
    assert after.notice is not None
    assert after.notice.cause == want
