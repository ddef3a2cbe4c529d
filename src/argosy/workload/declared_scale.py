"""Turns a changed number of replicas in the spec into a request to scale a role with a host list.

The number in the spec is what a user or an autoscaler wants until they change it. So an operation that failed
is tried again, ever more rarely, until it succeeds, the number is changed, or another request has scaled the
role meanwhile.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.host_list import HostList
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Workload
from argosy.workload.operation import Operation
from argosy.workload.record import Record, RoleRecord
from argosy.workload.scale_request import ScaleRequest, ScaleState, last_to_go, next_to_add

REPLICAS_PREFIX = "replicas@"
"""Start of the id of these operations; the generation of the spec follows."""
REPLICAS_TIMEOUT_SECONDS = 600.0
"""Time limit of these operations."""
RETRY_SECONDS = 30.0
"""Seconds until one that failed is tried again; doubled up to MAX_RETRY_SECONDS."""
MAX_RETRY_SECONDS = 600.0


class Retry(Struct, frozen=True):
    """When a failed operation is tried again."""

    at: datetime
    seconds: float
    fields: Mapping[str, object]
    """Of the role's record."""


NO_RETRY: Final[Mapping[str, object]] = {"scale_failures": 0, "scale_retry_at": None}
"""Fields of the record of a role that has the wanted number of replicas."""


def is_declared(operation: Operation) -> bool:
    return operation.id.startswith(REPLICAS_PREFIX)


def declared_request(
    workload: Workload, rule: HostList, record: Record, now: datetime
) -> ScaleRequest | None:
    """Return the request of a number of replicas that was changed, or that is to be tried again."""
    replicas, last = workload.roles[rule.role].replicas, record.role(rule.role)
    change = replicas - last.size
    is_due = last.scale_retry_at is not None and last.scale_retry_at <= now
    if not change or (replicas == last.declared and not is_due):
        return None
    return _request(f"{REPLICAS_PREFIX}{workload.generation}", change, now)


def request_of(operation: Operation) -> ScaleRequest:
    """Return the request of an operation that is under way."""
    request = _request(operation.id, 1 if operation.kind == "Out" else -1, operation.started_at)
    return replace(request, shown=operation.index_set)


def is_outdated(workload: Workload, rule: HostList, record: Record, operation: Operation) -> bool:
    """Return True if the spec asks for another number than the one that replicas are being added for."""
    replicas, last = workload.roles[rule.role].replicas, record.role(rule.role)
    return is_declared(operation) and operation.kind == "Out" and replicas != last.declared


def without_reached(workload: Workload, rule: HostList, record: Record) -> Record:
    """Return the record without a retry, if the role has the number of the spec."""
    replicas, last = workload.roles[rule.role].replicas, record.role(rule.role)
    if replicas != last.size or (replicas == last.declared and last.scale_retry_at is None):
        return record
    return record.with_role(rule.role, replace(last, declared=replicas, **NO_RETRY))


def with_declared(workload: Workload, rule: HostList, record: Record) -> Record:
    """Return the record in which the number of the spec is being followed."""
    replicas, last = workload.roles[rule.role].replicas, record.role(rule.role)
    failures = last.scale_failures if replicas == last.declared else 0
    return record.with_role(
        rule.role, replace(last, declared=replicas, scale_failures=failures, scale_retry_at=None)
    )


def after_failure(last: RoleRecord, now: datetime) -> Retry:
    """Return when an operation that has just failed is tried again."""
    seconds = min(RETRY_SECONDS * 2.0 ** min(last.scale_failures, 30), MAX_RETRY_SECONDS)
    at = now + timedelta(seconds=seconds)
    return Retry(at, seconds, {"scale_failures": last.scale_failures + 1, "scale_retry_at": at})


def retry_at(rule: HostList, record: Record, now: datetime) -> datetime | None:
    """Return when a failed operation is to be tried again; None if none is, or it is under way."""
    due = record.role(rule.role).scale_retry_at
    return due if due is not None and now < due and record.operation is None else None


def _request(identity: str, change: int, created: datetime) -> ScaleRequest:
    def select(state: ScaleState) -> IndexSet | str:
        return next_to_add(state, change) if change > 0 else last_to_go(state, -change)

    kind: Literal["Out", "In"] = "Out" if change > 0 else "In"
    return ScaleRequest(identity, kind, "", created, select, timeout=REPLICAS_TIMEOUT_SECONDS)
