"""Limits how often pods of a role are replaced in a row, for roles with a budget of their own.

Such replacements use no restart of the job. When the budget is used up, lost pods of the role are not
replaced any more, and the job continues without them.
"""

from datetime import datetime

from msgspec.structs import replace

from argosy.workload import messages, reasons
from argosy.workload.index_set import IndexSet
from argosy.workload.model import ReplacementBudget, Workload
from argosy.workload.record import Record
from argosy.workload.restarts.losses import LostPod


def has_budget(workload: Workload, loss: LostPod) -> bool:
    """Return True if replacing this pod uses the budget of its role instead of the job's restarts."""
    return workload.roles[loss.role].replacement.budget is not None


def within_budgets(
    workload: Workload, record: Record, losses: list[LostPod], now: datetime
) -> tuple[list[LostPod], Record]:
    """Return the losses without those that the budget of their role does not allow to replace."""
    allowed: list[LostPod] = []
    budgets = {name: role.replacement.budget for name, role in workload.roles.items()}
    left = {
        name: max(budget.limit - record.role(name).replacements_in_a_row, 0)
        for name, budget in budgets.items()
        if budget
    }
    exhausted: dict[str, list[int]] = {}
    for loss in losses:
        if loss.role not in left or not loss.uses_restart or _was_stable(budgets[loss.role], loss):
            allowed.append(loss)
        elif left[loss.role]:
            left[loss.role] -= 1
            allowed.append(loss)
        else:
            exhausted.setdefault(loss.role, []).append(loss.index)
    for name, lost in sorted(exhausted.items()):
        last = record.role(name)
        retired = last.retired | IndexSet.of(lost)
        record = record.with_role(name, replace(last, retired=retired, budget_exhausted=True))
        if last.budget_exhausted:
            continue
        budget = budgets[name]
        message = messages.budget_exhausted(name, budget.limit if budget else 0)
        record = record.with_history(now, reasons.REPLACEMENT_LIMIT_REACHED, message)
    return allowed, record


def _was_stable(budget: ReplacementBudget | None, loss: LostPod) -> bool:
    return budget is not None and loss.age_seconds is not None and loss.age_seconds > budget.reset
