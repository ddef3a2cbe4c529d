"""Tests for the order of actions and the handling of failed ones."""

from dataclasses import dataclass, field
from typing import cast

import pytest

from argosy.engine.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    LeaseExpired,
    NotFound,
    Throttled,
    TooLarge,
    Unavailable,
)
from argosy.kinds.kubernetes import ConfigMap
from argosy.plan.actions import ActionResult, ActionStatus, Apply, AwaitedAction, Check, Patch, Remove
from argosy.plan.children import Child
from argosy.reconcile.action_batch import ActionBatch, status_of_error
from argosy.reconcile.child_executor import ChildExecutor
from argosy.reconcile.object_state import FIRST_RETRY_SECONDS, ActionRetries
from tests.support.manual_clock import ManualClock


@dataclass
class Executor:
    """Answers actions by the name of their object; all others succeed."""

    answers: dict[str, ActionStatus | ApiError] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)

    async def execute(self, action: AwaitedAction) -> ActionStatus:
        name = action.child.name if isinstance(action, Apply | Check) else action.name
        self.executed.append(name)
        answer = self.answers.get(name, ActionStatus.DONE)
        if isinstance(answer, ApiError):
            raise answer
        return answer


def apply(name: str, stage: int = 0) -> Apply:
    return Apply(Child(ConfigMap, name, {}, stage=stage))


REMOVE = Remove(ConfigMap, "removed", "u")
PATCH = Patch(ConfigMap, "patched", "home", "u", {})


@dataclass
class Batch:
    executor: Executor = field(default_factory=Executor)
    retries: ActionRetries = field(default_factory=ActionRetries)
    clock: ManualClock = field(default_factory=ManualClock)
    checks: dict[str, ActionResult] = field(default_factory=dict)

    async def execute(self, *actions: AwaitedAction) -> list[str]:
        """Return the executed actions."""
        self.executor.executed.clear()
        batch = ActionBatch(cast("ChildExecutor", self.executor), self.retries, self.clock, self.checks)
        self.done = await batch.execute(actions)
        return list(self.executor.executed)


async def test_children_are_written_by_stage_then_patches_then_removals() -> None:
    batch = Batch()
    executed = await batch.execute(REMOVE, PATCH, apply("second", 1), apply("first"))
    assert executed == ["first", "second", "patched", "removed"]
    assert batch.done


async def test_a_stage_waits_until_the_one_before_it_is_complete() -> None:
    batch = Batch(Executor({"first": ActionStatus.TERMINATING}))
    assert await batch.execute(apply("first"), apply("unrelated"), apply("second", 1), PATCH) == [
        "first",
        "unrelated",
        "patched",
    ]
    assert not batch.done
    want = ActionResult(
        "ConfigMap", "first", ActionStatus.TERMINATING, "an earlier ConfigMap first is still being deleted"
    )
    assert list(batch.retries.failures.values()) == [want]


async def test_a_failed_action_is_tried_again_after_its_backoff() -> None:
    batch = Batch(Executor({"a": Forbidden(403, "Forbidden", "exceeded quota")}))
    assert await batch.execute(apply("a"), apply("b")) == ["a", "b"]
    assert batch.retries.failures["ConfigMap", "a"].message == "exceeded quota"
    assert await batch.execute(apply("a"), apply("b")) == ["b"]
    batch.executor.answers.clear()
    batch.clock.advance(FIRST_RETRY_SECONDS)
    assert await batch.execute(apply("a"), apply("b")) == ["a", "b"]
    assert not batch.retries.failures


async def test_a_lost_lease_ends_the_batch() -> None:
    batch = Batch(Executor({"first": LeaseExpired()}))
    with pytest.raises(LeaseExpired):
        await batch.execute(apply("first"), apply("second", 1))
    assert batch.executor.executed == ["first"]
    assert not batch.retries.failures


ERRORS = {
    "an invalid body": (Invalid(422, "Invalid", ""), ActionStatus.INVALID),
    "a bad request": (BadRequest(400, "BadRequest", ""), ActionStatus.INVALID),
    "a body that is too large": (TooLarge(413, "RequestEntityTooLarge", ""), ActionStatus.INVALID),
    "a forbidden write": (Forbidden(403, "Forbidden", ""), ActionStatus.FORBIDDEN),
    "a namespace or kind that does not exist": (NotFound(404, "NotFound", ""), ActionStatus.FORBIDDEN),
    "a conflict": (Conflict(409, "Conflict", ""), ActionStatus.RETRY),
    "a server that throttles": (Throttled(429, "TooManyRequests", ""), ActionStatus.RETRY),
    "a server that does not answer": (Unavailable(0, "Unavailable", ""), ActionStatus.RETRY),
}


@pytest.mark.parametrize(("error", "want"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_decides_what_is_done_about_an_action(error: ApiError, want: ActionStatus) -> None:
    assert status_of_error(error) is want


CHECK = Check(Child(ConfigMap, "checked", {"data": {"a": "1"}}))
CHANGED = Check(Child(ConfigMap, "checked", {"data": {"a": "2"}}))


async def test_a_check_is_answered_once_while_decisions_contain_it() -> None:
    batch = Batch()
    assert await batch.execute(CHECK) == ["checked"]
    assert await batch.execute(CHECK) == []
    assert batch.checks == {CHECK.key: ActionResult("ConfigMap", "checked", verb="Check")}
    assert await batch.execute(CHANGED) == ["checked"]
    assert batch.checks.keys() == {CHANGED.key}
    await batch.execute()
    assert batch.checks == {}


async def test_a_check_that_the_api_server_rejects_for_good_is_not_repeated() -> None:
    batch = Batch(Executor({"checked": Invalid(422, "Invalid", "spec: no")}))
    assert await batch.execute(CHECK) == ["checked"]
    result = batch.checks[CHECK.key]
    assert (result.status, result.message, result.verb) == (ActionStatus.INVALID, "spec: no", "Check")
    assert batch.retries.next_retry_at() is None
    batch.clock.advance(3600)
    assert await batch.execute(CHECK) == []


async def test_a_check_that_is_rejected_for_now_is_repeated() -> None:
    batch = Batch(Executor({"checked": Forbidden(403, "Forbidden", "exceeded quota")}))
    await batch.execute(CHECK)
    assert batch.checks[CHECK.key].status is ActionStatus.FORBIDDEN
    batch.executor.answers.clear()
    batch.clock.advance(FIRST_RETRY_SECONDS)
    await batch.execute(CHECK)
    assert batch.checks[CHECK.key].status is ActionStatus.DONE
