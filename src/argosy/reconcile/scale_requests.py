"""Finds the objects that ask for a job to be scaled, and wakes the job when one of them changes."""

from collections.abc import Callable, Sequence
from functools import partial

from argosy.dialects.base import RequestKind
from argosy.engine.cache import Cache, Change
from argosy.engine.objects import Key
from argosy.plan.children import KubernetesObject
from argosy.reconcile.runner import Queue
from argosy.reconcile.sources import Sources
from argosy.workload.model import Workload
from argosy.workload.scale_request import ScaleRequest

JOB = "job"
"""The index by namespace and name of the job that an object is for."""


FindRequests = Callable[[Workload], tuple[ScaleRequest, ...]]
"""Returns what objects of other kinds ask of a job."""


def no_requests(workload: Workload) -> tuple[ScaleRequest, ...]:
    """Return nothing: the API has no objects that ask for jobs to be scaled."""
    del workload
    return ()


class ScaleRequests:
    """The requests for the jobs of one API."""

    def __init__(self, kinds: Sequence[RequestKind], sources: Sources) -> None:
        self._kinds = kinds
        self._caches: dict[type[KubernetesObject], Cache[KubernetesObject]] = {}
        for kind in kinds:
            [cache] = sources.declare((), {kind.kind: {JOB: partial(_job_keys, kind)}})
            self._caches[kind.kind] = cache

    @property
    def caches(self) -> tuple[Cache[KubernetesObject], ...]:
        return tuple(self._caches.values())

    def for_job(self, workload: Workload) -> tuple[ScaleRequest, ...]:
        """Return what objects in the job's namespace ask of it, in no order."""
        requests = (
            kind.to_request(obj, workload)
            for kind in self._kinds
            for obj in self._caches[kind.kind].by(JOB, f"{workload.namespace}/{workload.name}")
        )
        return tuple(request for request in requests if request is not None)

    def subscribe(self, queue: Queue) -> None:
        """Enqueue the job of every object that asks for something else than before."""
        for kind in self._kinds:
            self._caches[kind.kind].subscribe(partial(_enqueue_job, kind, queue))


def _job_keys(kind: RequestKind, obj: KubernetesObject) -> tuple[str, ...]:
    name = kind.job_name(obj)
    return (f"{obj.metadata.namespace}/{name}",) if name else ()


def _enqueue_job(kind: RequestKind, queue: Queue, change: Change[KubernetesObject]) -> None:
    objects = (change.old, change.new)
    before, after = (kind.asks(obj) if obj is not None else None for obj in objects)
    if before == after:
        return
    keys = {Key(obj.metadata.namespace, kind.job_name(obj)): None for obj in objects if obj is not None}
    for key in keys:
        if key.name:
            queue.enqueue(key)
