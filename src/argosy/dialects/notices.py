"""Builds `notices` of a job's status, which are the same for every job API."""

from argosy.kinds.notice_status import NoticeStatus
from argosy.workload import messages
from argosy.workload.notice import OpenNotice
from argosy.workload.record import Record

MAX_REPLICAS = 8
"""Replicas that an entry names."""


def open_notices(record: Record) -> list[NoticeStatus]:
    """Return the announced losses that are still to come, the oldest first."""
    return [_notice_status(notice) for notice in record.notices if notice.observed]


def _notice_status(notice: OpenNotice) -> NoticeStatus:
    return NoticeStatus(
        since=notice.since,
        deadline=notice.deadline,
        cause=notice.cause,
        response=notice.response,
        node=notice.node,
        pod=notice.pod,
        source=notice.source,
        replicas=messages.noticed_replicas(notice)[:MAX_REPLICAS],
        message=messages.open_notice(notice),
    )
