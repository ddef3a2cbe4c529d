"""Writes what a pod acknowledges as an annotation of it.

The leader learns it from its watch of pods, so any replica may write it: these are the only writes of a
replica that does not lead.
"""

from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.kinds.kubernetes import Pod
from argosy.operator.job_views import JobView, JobViews
from argosy.reconcile.child_executor import is_other_object
from argosy.wire.messages import HttpError


class PodAnnotations:
    """Writes one annotation of a pod at a time. The client's writes must not depend on the Lease."""

    def __init__(self, client: Client, job_views: JobViews) -> None:
        self._client = client
        self._job_views = job_views
        self._in_progress: set[str] = set()
        """Uids of pods that are being written."""

    def pods(self, job: JobView) -> list[Pod]:
        """Return all pods of a job."""
        return self._job_views.all_pods(job)

    async def write(self, pod: Pod, annotation: str, value: str) -> None:
        """Set the annotation, if the pod still exists; raise `HttpError` if that is not possible."""
        meta = pod.metadata
        if meta.uid in self._in_progress:
            raise HttpError(429, "another acknowledgement of this pod is being written; try again later")
        self._in_progress.add(meta.uid)
        patch = {"metadata": {"uid": meta.uid, "annotations": {annotation: value}}}
        try:
            patched = await self._client.patch(Pod, meta.name, patch, meta.namespace)
        except ApiError as error:
            if is_other_object(error):
                raise HttpError(404, "pod: does not exist any more") from None
            raise HttpError(503, f"the acknowledgement could not be written: {error}") from None
        finally:
            self._in_progress.discard(meta.uid)
        cache = self._job_views.caches.pods
        if cache.get(meta.namespace, meta.name) is not None:  # pods of other controllers are not in it
            # Not as our own write: the leader must notice, and this may be it.
            cache.put(patched)
