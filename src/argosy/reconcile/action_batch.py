"""Executes the actions that one reconcile waits for, and remembers those that failed.

Checks and children come first, children stage by stage: a stage whose predecessor is incomplete waits. Then
come patches, then removals. An action that failed a moment ago is held back; the others are executed all the
same.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

from argosy.engine.clock import Clock
from argosy.engine.errors import ApiError, BadRequest, Forbidden, Invalid, LeaseExpired, NotFound, TooLarge
from argosy.kinds.text import MAX_MESSAGE_CHARS, truncate
from argosy.plan.actions import ActionResult, ActionStatus, Apply, AwaitedAction, Check, Patch, Remove
from argosy.reconcile.child_executor import ChildExecutor
from argosy.reconcile.object_state import ActionKey, ActionRetries


class ActionBatch:
    def __init__(
        self,
        executor: ChildExecutor,
        retries: ActionRetries,
        clock: Clock,
        checks: dict[str, ActionResult] | None = None,
    ) -> None:
        self._executor = executor
        self._retries = retries
        self._clock = clock
        self._checks = {} if checks is None else checks
        """Answers to checks, by their keys. Those that are not asked for any more are removed."""

    async def execute(self, actions: Sequence[AwaitedAction]) -> bool:
        """Return True if all were done.

        Failures are remembered; only `LeaseExpired` is raised, when this process may write no longer.
        """
        self._retries.keep_only({_key(action) for action in actions})
        checks = {action.key: action for action in actions if isinstance(action, Check)}
        for key in [key for key in self._checks if key not in checks]:
            del self._checks[key]
        undecided = [check for key, check in checks.items() if not self._is_decided(key)]
        checked = await self._execute_together(undecided)
        applies = [action for action in actions if isinstance(action, Apply)]
        applied = True
        for stage in sorted({action.child.stage for action in applies}):
            applied = await self._execute_together(
                [action for action in applies if action.child.stage == stage]
            )
            if not applied:
                break
        patched = await self._execute_together([action for action in actions if isinstance(action, Patch)])
        removed = await self._execute_together([action for action in actions if isinstance(action, Remove)])
        return checked and applied and patched and removed

    async def _execute_together(self, actions: Sequence[AwaitedAction]) -> bool:
        """Return True if all were done."""
        results = await asyncio.gather(*map(self._attempt, actions), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return all(results)

    async def _attempt(self, action: AwaitedAction) -> bool:
        """Return True if the action was done."""
        key = kind, name = _key(action)
        if self._retries.is_in_backoff(key, self._clock.monotonic()):
            return False
        try:
            status, message = await self._executor.execute(action), ""
        except LeaseExpired:
            raise
        except ApiError as error:
            status, message = status_of_error(error), error.message or error.reason
        if status is ActionStatus.DONE:
            self._retries.clear(key)
            if isinstance(action, Check):
                self._checks[action.key] = ActionResult(kind, name, verb="Check")
            return True
        message = message or _MESSAGES[status].format(kind=kind, name=name)
        verb: Literal["Create", "Check"] = "Check" if isinstance(action, Check) else "Create"
        failure = ActionResult(kind, name, status, truncate(message, MAX_MESSAGE_CHARS), verb)
        if isinstance(action, Check):
            self._checks[action.key] = failure
            if self._is_decided(action.key):
                self._retries.clear(key)
                return False
        self._retries.record(failure, self._clock.monotonic())
        return False

    def _is_decided(self, check: str) -> bool:
        """Return True if asking again would give the same answer."""
        result = self._checks.get(check)
        return result is not None and result.status in (ActionStatus.DONE, ActionStatus.INVALID)


_MESSAGES = {
    ActionStatus.NAME_CONFLICT: "{kind} {name} exists and does not belong to this object",
    ActionStatus.TERMINATING: "an earlier {kind} {name} is still being deleted",
    ActionStatus.RETRY: "{kind} {name} has changed since it was observed",
}


def status_of_error(error: ApiError) -> ActionStatus:
    """Return what an error of the API server means for an action."""
    if isinstance(error, Invalid | BadRequest | TooLarge):
        return ActionStatus.INVALID
    if isinstance(error, Forbidden | NotFound):
        return ActionStatus.FORBIDDEN
    return ActionStatus.RETRY


def _key(action: AwaitedAction) -> ActionKey:
    if isinstance(action, Apply | Check):
        return action.child.kind.resource.kind, action.child.name
    return action.kind.resource.kind, action.name
