"""Validates PodDisruptionBudgets."""

from collections.abc import Iterator

from argosy.local.schema.errors import FieldError, invalid, unsupported
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map
from argosy.local.schema.validation.deployment import amount_errors, percentage_of
from argosy.local.schema.validation.workloads import selector_errors

POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def budget_errors(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
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
    yield from unsupported("spec.unhealthyPodEvictionPolicy", policy, POLICIES)
