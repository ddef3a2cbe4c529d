"""Records which host files a launcher has written, as an annotation of its pod.

A job's token allows it for the launcher of that job only, and only for the files that the
Record has now: nobody can repeat an old acknowledgement, or make us write more than once for each list.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Final, Literal

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Histogram

from argosy.engine.clock import Clock
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.operator.job_views import ChangeSignal, HostsView, JobView, JobViews
from argosy.operator.pod_annotations import PodAnnotations
from argosy.wire.messages import HttpError

MAX_ACK_BYTES: Final = 1024
GRACE_SECONDS: Final = 2.0
"""How long a replica waits for its caches to show the pod and the files that are acknowledged."""

_ETAG: Final = re.compile(r"(?P<version>[0-9]{1,18})-[0-9a-f]{16}")

Result = Literal["written", "unchanged", "outdated", "rejected", "failed"]


class HostAck(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an acknowledgement."""

    pod: str
    uid: str
    etag: str


class HostAckMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._acks = Counter(
            "argosy_host_list_acks_total",
            "Acknowledgements of host lists by launchers, by result.",
            ["result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "argosy_host_list_ack_seconds",
            "Time from the change of a host list until its launcher had written it.",
            buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30),
            registry=registry,
        )

    def count(self, result: Result) -> None:
        self._acks.labels(result).inc()

    def observe(self, seconds: float) -> None:
        self._seconds.observe(max(seconds, 0.0))


class HostAcks:
    """Records acknowledgements of host files."""

    def __init__(
        self, annotations: PodAnnotations, clock: Clock, job_views: JobViews, metrics: HostAckMetrics
    ) -> None:
        self._annotations = annotations
        self._clock = clock
        self._job_views = job_views
        self._metrics = metrics

    async def record(self, body: bytes, find_job: Callable[[], JobView], changes: ChangeSignal) -> None:
        """Write the acknowledgement, unless it is written already; raise `HttpError` if it is not valid."""
        try:
            result = await self._record(_decode(body), find_job, changes)
        except HttpError as error:
            self._metrics.count(_RESULTS.get(error.status, "failed"))
            raise
        self._metrics.count(result)

    async def _record(self, ack: HostAck, find_job: Callable[[], JobView], changes: ChangeSignal) -> Result:
        view, pod = await self._find(ack, find_job, changes)
        if pod.metadata.annotations.get(labels.HOSTS_ACK) == ack.etag:
            return "unchanged"
        await self._write(pod, view)
        return "written"

    async def _find(
        self, ack: HostAck, find_job: Callable[[], JobView], changes: ChangeSignal
    ) -> tuple[HostsView, Pod]:
        """Return what is acknowledged, and by whom, as soon as the caches show both."""
        version = etag_version(ack.etag)
        deadline = asyncio.get_running_loop().time() + GRACE_SECONDS
        while True:
            job = find_job()
            view, pod = self._job_views.hosts(job), self._launcher(job, ack)
            if view is not None and view.version > version:
                break
            is_current = view is not None and view.etag == ack.etag
            if view is not None and is_current and pod is not None:
                return view, pod
            if self._job_views.closing or not await changes.wait(deadline):
                if is_current:
                    raise HttpError(404, "pod: must be name and uid of the launcher of the job")
                break
        raise HttpError(409, "etag: must be that of the current host files")

    def _launcher(self, job: JobView, ack: HostAck) -> Pod | None:
        """Return the pod that acknowledges, if it belongs to this job and has its host list."""
        rule = job.workload.rules.host_list if job.workload else None
        for pod in self._annotations.pods(job):
            meta = pod.metadata
            is_launcher = rule is not None and meta.labels.get(labels.ROLE) == rule.launcher
            if (meta.name, meta.uid) == (ack.pod, ack.uid) and is_launcher:
                return pod
        return None

    async def _write(self, pod: Pod, view: HostsView) -> None:
        await self._annotations.write(pod, labels.HOSTS_ACK, view.etag)
        if pod.metadata.annotations.get(labels.HOSTS_ACK):
            # The first one of a pod tells when it started, not how long the list took. Clocks may differ.
            self._metrics.observe(self._clock.now().timestamp() - view.version / 1_000_000)


_RESULTS: dict[int, Result] = {400: "rejected", 404: "rejected", 409: "outdated"}


def etag_version(etag: str) -> int:
    """Return the version of the host list that an etag stands for."""
    match = _ETAG.fullmatch(etag)
    if match is None:
        raise HttpError(400, f'etag: invalid value "{etag[:32]}": must be VERSION-DIGEST')
    return int(match["version"])


def _decode(body: bytes) -> HostAck:
    try:
        return msgspec.json.decode(body, type=HostAck)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HttpError(400, str(error)) from None
