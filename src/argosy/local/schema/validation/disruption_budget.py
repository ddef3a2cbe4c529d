"""Validation of PodDisruptionBudgets and of the status that the disruption controller writes."""

from collections.abc import Iterator

from argosy.local.schema.errors import FieldError, invalid, not_supported, required
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import part, parts
from argosy.local.schema.validation.deployment import amount_errors, not_negative, percentage_of
from argosy.local.schema.validation.workloads import selector_errors

POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
_STATUSES = ("False", "True", "Unknown")


def budget_errors(obj: Json) -> Iterator[FieldError]:
    spec = part(obj, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        amount = spec.get(field)
        yield from amount_errors(f"spec.{field}", amount)
        if isinstance(amount, str) and percentage_of(amount) > 100:
            yield invalid(f"spec.{field}", amount, "must not be greater than 100%")
    if spec.get("selector") is not None:
        yield from selector_errors(spec["selector"], "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in POLICIES:
        yield not_supported("spec.unhealthyPodEvictionPolicy", policy, POLICIES)


def budget_status_errors(obj: Json) -> Iterator[FieldError]:
    status = part(obj, "status")
    for field in _COUNTS:
        yield from not_negative(f"status.{field}", status.get(field))
    for index, condition in enumerate(parts(status, "conditions")):
        yield from _condition_errors(condition, f"status.conditions[{index}]")


def _condition_errors(condition: Json, path: str) -> Iterator[FieldError]:
    for field in ("type", "reason", "lastTransitionTime"):
        if not condition.get(field):
            yield required(f"{path}.{field}")
    if condition.get("status") not in _STATUSES:
        yield not_supported(f"{path}.status", condition.get("status", ""), _STATUSES)
