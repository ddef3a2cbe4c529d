"""Validates how a Deployment rolls out."""

import re
from collections.abc import Iterator

from argosy.local.schema.errors import FieldError, forbidden, invalid, not_supported
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_int, get_map, is_integer

_PERCENT = re.compile(r"[0-9]+%")
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
    "regex used for validation is '[0-9]+%')"
)


def rollout_errors(spec: Json) -> Iterator[FieldError]:
    """Yield the errors of a Deployment's strategy and timeouts."""
    yield from _strategy(get_map(spec, "strategy"))
    for field in ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        yield from not_negative(f"spec.{field}", spec.get(field))
    deadline = spec.get("progressDeadlineSeconds")
    if is_integer(deadline) and deadline <= get_int(spec, "minReadySeconds"):
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _strategy(strategy: Json) -> Iterator[FieldError]:
    match strategy.get("type"):
        case "RollingUpdate":
            yield from _rolling(get_map(strategy, "rollingUpdate"))
        case "Recreate":
            if "rollingUpdate" in strategy:
                message = "may not be specified when strategy `type` is 'Recreate'"
                yield forbidden("spec.strategy.rollingUpdate", message)
        case other:
            yield not_supported("spec.strategy", other or "", ("Recreate", "RollingUpdate"))


def _rolling(limits: Json) -> Iterator[FieldError]:
    path, unavailable, surge = "spec.strategy.rollingUpdate", "maxUnavailable", "maxSurge"
    for field in (unavailable, surge):
        yield from amount_errors(f"{path}.{field}", limits.get(field))
    if not percentage_of(limits.get(unavailable)) and not percentage_of(limits.get(surge)):
        message = "may not be 0 when `maxSurge` is 0"
        yield invalid(f"{path}.{unavailable}", limits.get(unavailable), message)
    most = limits.get(unavailable)
    if isinstance(most, str) and percentage_of(most) > 100:
        yield invalid(f"{path}.{unavailable}", most, "must not be greater than 100%")


def amount_errors(path: str, amount: object) -> Iterator[FieldError]:
    """Yield the errors of a number or percentage."""
    if isinstance(amount, str) and not _PERCENT.fullmatch(amount):
        yield invalid(path, amount, _NO_PERCENT)
    yield from not_negative(path, amount)


def percentage_of(amount: object) -> int:
    """Return the number of a number or percentage."""
    if isinstance(amount, str):
        return int(amount[:-1]) if _PERCENT.fullmatch(amount) else 0
    return amount if is_integer(amount) else 0


def not_negative(path: str, value: object) -> Iterator[FieldError]:
    if is_integer(value) and value < 0:
        yield invalid(path, value, "must be greater than or equal to 0")
