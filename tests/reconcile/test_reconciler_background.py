"""Tests that a reconcile of a job starts commands in the background and gets their answers as an input."""

from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from msgspec.structs import replace

from argosy.engine.errors import Conflict
from argosy.plan.actions import Exec, ExecResult
from argosy.reconcile import reconciler
from argosy.reconcile.reconciler import CREATED_RECHECK_SECONDS
from argosy.reconcile.status_changes import MESSAGES_SECONDS
from argosy.workload.decide import decide
from argosy.workload.model import Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from tests.support.builders import run
from tests.support.fake_exec import settle
from tests.support.reconciler_harness import KEY, ReconcilerHarness, in_burst
from tests.support.waiting import eventually


class Policy:
    """Decides as jobs do, and runs a command in a pod until it has an answer."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ("check",)
        self.history = ""
        """A reason that is added to the history of the Record."""
        self.message = ""
        """The message of the Record, if it is set."""
        self.seen: list[dict[str, ExecResult]] = []

    def decide(self, workload: Workload, record: Record | None, observed: Observed, now: datetime) -> Plan:
        self.seen.append(dict(observed.exec_results))
        asked = [key for key in self.keys if key not in observed.exec_results]
        execs = [Exec(key, "mnist-worker-0", "u", "main", ("true",)) for key in asked]
        plan = decide(workload, record, observed, now).with_actions(execs)
        changed = plan.record
        if self.history:
            changed = changed.with_history(now, self.history, "")
        if self.message:
            changed = replace(changed, message=self.message)
        return replace(plan, record=changed)


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Policy]:
    policy = Policy()
    monkeypatch.setattr(reconciler, "decide", policy.decide)
    yield policy


@pytest.fixture
def harness() -> ReconcilerHarness:
    return ReconcilerHarness(run().role("worker", 3).build())


async def test_a_command_is_started_after_the_record_is_written_and_is_not_awaited(
    harness: ReconcilerHarness, policy: Policy
) -> None:
    harness.api.error = Conflict(409, "Conflict", "the object has been modified")
    await harness.reconcile()
    await settle()
    assert harness.exec.started == []
    harness.api.error = None
    await harness.reconcile()
    await settle()
    assert harness.exec.running == ["default/check"]
    await harness.reconcile()
    assert harness.exec.started == ["default/check"]


async def test_an_answer_is_an_input_until_a_plan_without_its_key_is_recorded(
    harness: ReconcilerHarness, policy: Policy
) -> None:
    await harness.reconcile()
    await settle()
    answer = ExecResult("check", exit_code=1, stderr=b"still attached")
    await harness.exec.answer("default/check", answer)
    policy.history = "answered"
    harness.api.error = Conflict(409, "Conflict", "the object has been modified")
    await harness.reconcile()
    harness.api.error = None
    await harness.reconcile()
    assert policy.seen[-2:] == [{"check": answer}] * 2
    policy.keys = ()
    await harness.reconcile()
    assert policy.seen[-1] == {}
    assert harness.exec.started == ["default/check"]


async def test_an_answer_is_kept_while_the_write_of_what_follows_from_it_is_put_off(
    harness: ReconcilerHarness, policy: Policy
) -> None:
    policy.message = "checking"
    await until_quiet(harness)
    await harness.exec.answer("default/check")
    policy.message = "still attached"
    harness.clock.advance(0.5)
    assert await harness.reconcile() == pytest.approx(MESSAGES_SECONDS, abs=1)
    assert harness.api.log == []
    assert harness.reconciler.background.exec_results(KEY, "u").keys() == {"check"}
    harness.clock.advance(MESSAGES_SECONDS)
    await harness.reconcile()
    assert harness.api.writes()
    assert harness.reconciler.background.exec_results(KEY, "u") == {}


async def until_quiet(harness: ReconcilerHarness) -> None:
    """Reconcile until nothing more is written."""
    for _ in range(10):
        await harness.reconcile()
        await settle()
        if not harness.api.log:
            return
        harness.clock.advance(0.05)
    raise AssertionError("it does not come to rest")


async def test_an_answer_triggers_a_reconcile_of_its_job(harness: ReconcilerHarness, policy: Policy) -> None:
    async with harness.running_controller():
        await eventually(lambda: harness.exec.running)
        assert not any(policy.seen)
        await harness.exec.answer("default/check")
        await eventually(lambda: any(policy.seen), CREATED_RECHECK_SECONDS / 2)


async def test_a_plan_with_a_command_is_recorded_at_once_in_a_burst(
    harness: ReconcilerHarness, policy: Policy
) -> None:
    harness.reconciler.status.record_support.confirm_write()
    with in_burst(harness):
        await harness.reconcile()
    assert harness.api.log[0] == "status Starting"


ENDS: dict[str, Callable[[ReconcilerHarness], object]] = {
    "its job is deleted": lambda harness: harness.reconciler.on_job_deleted(harness.api.stored()),
    "the term of leadership ends": lambda harness: harness.reconciler.end_term(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
async def test_a_command_is_cancelled_and_answers_are_forgotten_when(
    harness: ReconcilerHarness, policy: Policy, end: Callable[[ReconcilerHarness], object]
) -> None:
    policy.keys = ("first", "second")
    await harness.reconcile()
    await settle()
    await harness.exec.answer("default/first")
    end(harness)
    await settle()
    assert harness.exec.cancelled == ["default/second"]
    assert harness.reconciler.background.exec_results(KEY, "u") == {}
