"""Records which checkpoints pods have saved, from which they have started, and which step they have reached.

These are annotations of the pods. A job's token allows them for pods of that job only, and only as an answer
to an order that the job has, or to none. A pod is written at most once a second, and a checkpoint that
another pod of the job has acknowledged is not written again: in a folder that all pods share, each sees it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Histogram

from argosy.engine.clock import Clock
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.operator.job_views import ChangeSignal, JobView, JobViews
from argosy.operator.pod_annotations import PodAnnotations
from argosy.wire.messages import HttpError
from argosy.workload.save_acks import CheckpointAck, StepReport, write_ack, write_resumed
from argosy.workload.saves import last_epoch

MAX_ACK_BYTES: Final = 4096
GRACE_SECONDS: Final = 2.0
"""How long a replica waits for its caches to show the pod and the order that are acknowledged."""
MIN_SECONDS_BETWEEN: Final = 1.0
"""Seconds between two writes of a pod."""

Result = Literal["written", "unchanged", "outdated", "rejected", "failed"]
T = TypeVar("T")


class PodName(Struct, frozen=True):
    """The pod that sends a body, as the body names it."""

    pod: str
    uid: str


class CheckpointAckMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._acks = Counter(
            "argosy_checkpoint_acks_total",
            "Acknowledgements of checkpoints by pods, by result.",
            ["result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "argosy_checkpoint_order_seconds",
            "Time from an order to save a checkpoint until it was acknowledged.",
            buckets=(0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600),
            registry=registry,
        )

    def count(self, result: Result) -> None:
        self._acks.labels(result).inc()

    def observe(self, seconds: float) -> None:
        self._seconds.observe(max(seconds, 0.0))


class CheckpointAcks:
    """Records acknowledgements of checkpoints."""

    def __init__(
        self, annotations: PodAnnotations, clock: Clock, job_views: JobViews, metrics: CheckpointAckMetrics
    ) -> None:
        self._annotations = annotations
        self._clock = clock
        self._job_views = job_views
        self._metrics = metrics
        self._written_at: dict[str, float] = {}
        """When pods were written in the last second, by uid."""

    async def record(self, body: bytes, find_job: Callable[[], JobView], changes: ChangeSignal) -> None:
        """Write that a checkpoint is complete; raise `HttpError` if the acknowledgement is not valid."""
        try:
            result = await self._record(body, find_job, changes)
        except HttpError as error:
            self._metrics.count(_RESULTS.get(error.status, "failed"))
            raise
        self._metrics.count(result)

    async def record_resumed(
        self, body: bytes, find_job: Callable[[], JobView], changes: ChangeSignal
    ) -> None:
        """Write from which checkpoint a pod has started."""
        name, resumed = _decode(body, PodName), _decode(body, CheckpointAck)
        _, pod = await self._find(name, 0, find_job, changes)
        value = write_resumed(resumed.step, resumed.digest)
        if pod.metadata.annotations.get(labels.CHECKPOINT_RESUMED) != value:
            await self._write(pod, labels.CHECKPOINT_RESUMED, value)

    async def record_step(self, body: bytes, find_job: Callable[[], JobView], changes: ChangeSignal) -> None:
        """Write which step the program of a pod has reached."""
        name, report = _decode(body, PodName), _decode(body, StepReport)
        _, pod = await self._find(name, 0, find_job, changes)
        if pod.metadata.annotations.get(labels.TRAINING_STEP) != str(report.step):
            await self._write(pod, labels.TRAINING_STEP, str(report.step))

    async def _record(self, body: bytes, find_job: Callable[[], JobView], changes: ChangeSignal) -> Result:
        name, ack = _decode(body, PodName), _decode(body, CheckpointAck)
        if ack.created.tzinfo is None:
            raise HttpError(400, "created: must have a time zone")
        job, pod = await self._find(name, ack.epoch, find_job, changes)
        if self._is_known(job, ack):
            return "unchanged"
        await self._write(pod, labels.CHECKPOINT_ACK, write_ack(ack))
        order = job.record.order_in_force
        if order is not None and order.epoch == ack.epoch:
            self._metrics.observe((self._clock.now() - order.since).total_seconds())
        return "written"

    async def _find(
        self, name: PodName, epoch: int, find_job: Callable[[], JobView], changes: ChangeSignal
    ) -> tuple[JobView, Pod]:
        """Return the job and the pod that acknowledges, as soon as the caches show it and the order."""
        deadline = asyncio.get_running_loop().time() + GRACE_SECONDS
        while True:
            job = find_job()
            if job.workload is not None and job.workload.checkpoint is None:
                raise HttpError(404, "the job keeps no checkpoints")
            pod = next((pod for pod in self._annotations.pods(job) if _is_named(pod, name)), None)
            is_current = epoch <= last_epoch(job.record)
            if pod is not None and is_current:
                return job, pod
            if self._job_views.closing or not await changes.wait(deadline):
                break
        if not is_current:
            raise HttpError(409, "epoch: must be that of an order of the job")
        raise HttpError(404, "pod: must be name and uid of a pod of the job")

    def _is_known(self, job: JobView, ack: CheckpointAck) -> bool:
        """Return True if the job, or an annotation that it will see, has this checkpoint."""
        saved = job.record.saved
        return (saved is not None and saved.digest == ack.digest) or any(
            ack.digest in pod.metadata.annotations.get(labels.CHECKPOINT_ACK, "")
            for pod in self._annotations.pods(job)
        )

    async def _write(self, pod: Pod, annotation: str, value: str) -> None:
        now, uid = self._clock.monotonic(), pod.metadata.uid
        self._written_at = {
            other: at for other, at in self._written_at.items() if now - at < MIN_SECONDS_BETWEEN
        }
        key = f"{uid}/{annotation}"
        if key in self._written_at:
            raise HttpError(429, "the pod was written a moment ago; try again later")
        await self._annotations.write(pod, annotation, value)
        self._written_at[key] = now


_RESULTS: dict[int, Result] = {400: "rejected", 404: "rejected", 409: "outdated"}


def _is_named(pod: Pod, name: PodName) -> bool:
    return (pod.metadata.name, pod.metadata.uid) == (name.pod, name.uid)


def _decode(body: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise HttpError(400, str(error)) from None
