"""Turns announced ends of nodes and pods into scale-ins of the replicas of a host list that are there.

A launcher that uses a host when it ends may lose the job. So such replicas are taken out of the host list and
drained before they are deleted, by the same steps as any other scale-in (`scaling`), ahead of all other
requests. Replicas under new indexes are created at once, so that the wanted number stays. If the list would
get too short, the new ones are waited for in the first half of the time.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.workload.announcements import NoticeCause
from argosy.workload.current_pods import current_pods
from argosy.workload.host_list import HostList
from argosy.workload.index_set import EMPTY, IndexSet, next_indexes
from argosy.workload.model import Phase, Workload
from argosy.workload.notice import NoticeResponse, OpenNotice, SaveStep
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.operation import Operation
from argosy.workload.record import Record
from argosy.workload.scale_request import ScaleRequest, ScaleState

RELEASE_PREFIX = "notice/"
"""Start of the id of operations that a notice asks for; the id of the notice follows."""
STOP_SECONDS = 15
"""Seconds before the deadline of a notice at which drained replicas are deleted at the latest."""


def is_release(operation: Operation) -> bool:
    return operation.id.startswith(RELEASE_PREFIX)


def can_release(workload: Workload, record: Record, cause: NoticeCause, pod: ObservedPod) -> bool:
    """Return True if a pod can be drained before its announced end: a launcher runs that may use it."""
    rule = workload.rules.host_list
    if rule is None or pod.role != rule.role or pod.terminating or cause is NoticeCause.OUT_OF_SERVICE:
        return False
    return record.role(rule.launcher).phase is Phase.RUNNING and pod.index in record.role(rule.role).members


def has_released(workload: Workload, record: Record, observed: Observed, notice: OpenNotice) -> bool:
    """Return True if the replicas that leave a host list because of this notice have left."""
    rule = workload.rules.host_list
    return rule is not None and not _left(notice, rule, record, observed)


def release_request(
    workload: Workload, rule: HostList, record: Record, observed: Observed
) -> ScaleRequest | None:
    """Return the request to remove all replicas whose nodes or pods are about to end; None if there are none.

    Several notices become one request, because only one operation is under way at a time.
    """
    found = [
        (notice, indexes)
        for notice in _releases(record)
        if (indexes := _left(notice, rule, record, observed))
    ]
    if not found:
        return None
    first = min((notice for notice, _ in found), key=lambda notice: (notice.deadline, notice.id))
    indexes = IndexSet.of(index for _, replicas in found for index in replicas)
    request = _request(f"{RELEASE_PREFIX}{first.id}", first.since, indexes, first)
    return replace(request, name=f"{workload.name}-release-{first.node}")


def request_of(operation: Operation, record: Record) -> ScaleRequest:
    """Return the request of a release that is under way, with the present deadline of its notice."""
    identity = operation.id.removeprefix(RELEASE_PREFIX)
    notice = next((notice for notice in record.notices if notice.id == identity), None)
    request = _request(operation.id, operation.started_at, operation.index_set, notice)
    return replace(request, name=operation.name, shown=operation.index_set)


def is_announced(operation: Operation, record: Record) -> bool:
    """Return True if the end for which replicas are released is still to come."""
    return is_release(operation) and any(
        notice.observed for notice in record.notices if notice.id == operation.id.removeprefix(RELEASE_PREFIX)
    )


def with_substitutes(rule: HostList, record: Record, observed: Observed, leaving: IndexSet) -> Record:
    """Return the record with a new member for each replica that leaves."""
    last = record.role(rule.role)
    existing = IndexSet.of(pod.index for pod in observed.by_role.get(rule.role, ()))
    added = next_indexes(last.wanted, last.retired | existing, len(leaving))
    return record.with_role(rule.role, last.with_members(last.members | added))


def _request(identity: str, created: datetime, indexes: IndexSet, notice: OpenNotice | None) -> ScaleRequest:
    def select(state: ScaleState) -> IndexSet | str:
        return indexes & state.members

    deadline = notice.deadline - timedelta(seconds=STOP_SECONDS) if notice else created
    half = created + max(deadline - created, timedelta()) / 2
    return ScaleRequest(
        identity, "In", "", created, select, urgent=True, deadline=deadline, min_hosts_until=half
    )


def _releases(record: Record) -> list[OpenNotice]:
    waiting = (SaveStep.SAVING, SaveStep.RELEASED)
    moves = (notice for notice in record.notices if notice.response == NoticeResponse.SCALE_IN)
    return [notice for notice in moves if notice.observed and notice.step not in waiting]


def _left(notice: OpenNotice, rule: HostList, record: Record, observed: Observed) -> IndexSet:
    """Return the members that were there when the notice was answered, and still are."""
    noticed = IndexSet.decode(notice.replicas.get(rule.role, "")) if rule.role in notice.replicas else EMPTY
    members = record.role(rule.role).members & noticed
    return IndexSet.of(
        pod.index
        for pod in current_pods(record, rule.role, observed)
        if pod.index in members
        and pod.node == notice.node
        and notice.pod in ("", pod.name)
        and not (pod.ended or pod.terminating)
    )
