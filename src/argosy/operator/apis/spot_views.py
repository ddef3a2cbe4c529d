"""Answers the pods of SpotInstanceJobs that ask for orders to save, and finds whose acknowledgements are.

A replica is a role of one pod (`names.copy_name`). Its pods belong to the Jobs that the Record names, by uid:
a label alone proves nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from argosy.dialects.spot.names import label_value
from argosy.dialects.spot.pods import JOB_INDEX, ClusterPod, job_value
from argosy.dialects.spot.record import SpotJobRecord
from argosy.engine.cache import Cache, Change
from argosy.kinds.kubernetes import Pod
from argosy.kinds.spot import JOB_LABEL, SpotInstanceJob
from argosy.operator.job_views import JobView, JobViews
from argosy.plan.record import UnsupportedVersionError, decode_record
from argosy.workload.record import Record

JOBS_BY_LABEL: Final = "label"


class SpotJobSource:
    """Finds SpotInstanceJobs in the caches that every replica of the operator keeps."""

    def __init__(self, jobs: Cache[SpotInstanceJob], pods: Cache[ClusterPod]) -> None:
        self._jobs = jobs
        self._pods = pods

    def uid(self, namespace: str, name: str) -> str:
        job = self._jobs.get(namespace, name)
        return job.metadata.uid if job is not None else ""

    def find(self, namespace: str, name: str) -> JobView | None:
        job = self._jobs.get(namespace, name)
        if job is None:
            return None
        record = _record(job)
        pods = self._pods.by(JOB_INDEX, job_value(namespace, label_value(name)))
        owners = set(_job_uids(record))
        return JobView(
            uid=job.metadata.uid,
            namespace=namespace,
            status=job.status,
            record=_orders(record),
            roles=frozenset(),
            pods=tuple(
                Pod(metadata=pod.metadata, status=pod.status)
                for pod in pods
                if pod.metadata.controller is not None and pod.metadata.controller.uid in owners
            ),
        )


def add_job_views(views: JobViews, jobs: Cache[SpotInstanceJob], pods: Cache[ClusterPod]) -> None:
    """Let the endpoint answer pods of SpotInstanceJobs; `jobs` has the index `JOBS_BY_LABEL`."""
    views.add_source(SpotJobSource(jobs, pods), jobs)

    def notify(change: Change[ClusterPod]) -> None:
        pod: Struct | None = change.new or change.old
        if isinstance(pod, ClusterPod) and (label := pod.metadata.labels.get(JOB_LABEL)):
            for job in jobs.by(JOBS_BY_LABEL, job_value(pod.metadata.namespace, label)):
                views.pods_changed(job.metadata.namespace, job.metadata.name)

    pods.subscribe(notify)


def jobs_by_label(job: SpotInstanceJob) -> Iterable[str]:
    """Return by which label the pods of a job are found: a long name is cut in it."""
    return (job_value(job.metadata.namespace, label_value(job.metadata.name)),)


def _record(job: SpotInstanceJob) -> SpotJobRecord:
    try:
        return decode_record(job.status.argosy, SpotJobRecord) or SpotJobRecord()
    except UnsupportedVersionError:
        return SpotJobRecord()


def _orders(record: SpotJobRecord) -> Record:
    """Return the part of the Record that pods read, in the form that all jobs have."""
    if record.order is None or record.ended:
        return Record(answered_epoch=record.last_epoch, saved=record.saved)
    return Record(order=record.order, saved=record.saved)


def _job_uids(record: SpotJobRecord) -> Iterator[str]:
    for replica in record.replicas:
        yield from (each.uid for each in (*replica.old, replica.current) if each.uid)
