"""Decides again at the end of a reconcile, on what it has written and done.

Usually nothing is left to do then. Deciding is cheap; another reconcile to find that out would cost more.
"""

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from argosy.plan.actions import Apply, Exec, Remove
from argosy.workload.decide import decide
from argosy.workload.model import Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import DeletePod, Plan

MAX_ACTIONS = 32
"""After a plan with more actions it is not worth it."""

_SHOWN_AT_ONCE = (Apply, Exec, Remove, DeletePod)
"""Actions whose results the caches show, or that are repeated without harm until they do."""


def decide_again(
    workload: Workload | None, plan: Plan, observed: Observed, observe: Callable[[], Observed], now: datetime
) -> Plan | None:
    """Return the plan of deciding again after this one was executed, if it would change nothing.

    `observe` returns what is there after its actions. Answers of commands are those on which it was decided:
    a new one leads to a reconcile of its own.
    """
    if workload is None or observed.confirmed_absent or len(plan.actions) > MAX_ACTIONS:
        return None
    if not all(isinstance(action, _SHOWN_AT_ONCE) for action in plan.actions):
        return None
    after = replace(observe(), exec_results=observed.exec_results) if plan.actions else observed
    if after.failed_actions:
        return None
    again = decide(workload, plan.record, after, now)
    is_same = again.record == plan.record and all(action in plan.actions for action in again.actions)
    return again if is_same else None
