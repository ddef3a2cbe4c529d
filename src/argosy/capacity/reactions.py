"""Maps the error codes of a provider to reactions."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from argosy.capacity import reasons
from argosy.capacity.provider import (
    ALREADY_EXISTS,
    INVALID_CREDENTIALS,
    INVALID_REQUEST,
    JOIN_DATA_MISSING,
    NOT_FOUND,
    PERMISSION_DENIED,
)
from argosy.plan.actions import CallResult, CallStatus


class Reaction(StrEnum):
    """What is done about a refused request."""

    NEXT_ZONE = "NextZone"
    """The zone rests, and the next one is asked at once."""
    NEXT_REGION = "NextRegion"
    """The whole region rests, and the next zone is asked at once."""
    FAIL = "Fail"
    """Nothing is requested until the template, a Secret or another input of the request has changed."""
    FIND = "Find"
    """There is a machine of this name already: it is got by its name, and used if it is ours."""
    RETRY = "Retry"
    """The same request is sent again after a growing time."""


class Outcome(NamedTuple):
    reaction: Reaction
    reason: str


REACTIONS: Final[Mapping[str, Outcome]] = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": Outcome(Reaction.NEXT_ZONE, reasons.ZONE_EXHAUSTED),
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": Outcome(Reaction.NEXT_ZONE, reasons.ZONE_EXHAUSTED),
    "RESOURCE_POOL_EXHAUSTED": Outcome(Reaction.NEXT_ZONE, reasons.ZONE_EXHAUSTED),
    "QUOTA_EXCEEDED": Outcome(Reaction.NEXT_REGION, reasons.QUOTA_EXCEEDED),
    PERMISSION_DENIED: Outcome(Reaction.FAIL, reasons.PERMISSION_DENIED),
    INVALID_CREDENTIALS: Outcome(Reaction.FAIL, reasons.PERMISSION_DENIED),
    INVALID_REQUEST: Outcome(Reaction.FAIL, reasons.INVALID_REQUEST),
    JOIN_DATA_MISSING: Outcome(Reaction.RETRY, reasons.PROVISIONING),
    ALREADY_EXISTS: Outcome(Reaction.FIND, reasons.PROVISIONING),
    "RESOURCE_ALREADY_EXISTS": Outcome(Reaction.FIND, reasons.PROVISIONING),
    NOT_FOUND: Outcome(Reaction.FAIL, reasons.INVALID_REQUEST),
    "RESOURCE_NOT_FOUND": Outcome(Reaction.FAIL, reasons.INVALID_REQUEST),
}
"""By the code of a refusal of a creation, or of an operation that failed."""

TRANSIENT_CODES: Final = frozenset(
    {"INTERNAL_ERROR", "BACKEND_ERROR", "RATE_LIMIT_EXCEEDED", "RESOURCE_OPERATION_RATE_EXCEEDED", "TIMEOUT"}
)


def reaction_to(code: str) -> Outcome:
    """Return the reaction to a code. A request with an unknown code fails: repeating it may not help."""
    if code in TRANSIENT_CODES:
        return Outcome(Reaction.RETRY, reasons.CLOUD_UNAVAILABLE)
    return REACTIONS.get(code, Outcome(Reaction.FAIL, reasons.INVALID_REQUEST))


def reaction_to_result(result: CallResult) -> Outcome:
    """Return the reaction to a call that was refused or had no answer."""
    if result.status is CallStatus.REFUSED:
        return reaction_to(result.code)
    return Outcome(Reaction.RETRY, reasons.CLOUD_UNAVAILABLE)
