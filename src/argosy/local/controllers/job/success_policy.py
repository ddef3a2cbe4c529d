"""Evaluates a Job's `successPolicy`: whether it has succeeded before all of its indexes have."""

from argosy.local.controllers.job.indexes import parse_indexes
from argosy.local.controllers.kinds import Job, SuccessRule


def matched_success_rule(job: Job, completed: set[int]) -> str:
    """Return a message about the first rule that these indexes satisfy; empty if none does."""
    policy = job.spec.success_policy
    if policy is None or not completed:
        return ""
    limit = job.spec.completions or 0
    for number, rule in enumerate(policy.rules):
        if _is_satisfied(rule, completed, limit):
            return f"Matched rules at index {number}"
    return ""


def _is_satisfied(rule: SuccessRule, completed: set[int], limit: int) -> bool:
    """Return True if enough of the rule's indexes have succeeded: `succeededCount`, else all."""
    count = rule.succeeded_count
    if rule.succeeded_indexes is None:
        return count is not None and len(completed) >= count
    named = {index for index in parse_indexes(rule.succeeded_indexes) if index < limit}
    done = len(named & completed)
    return bool(named) and (done == len(named) or (count is not None and done >= count))
