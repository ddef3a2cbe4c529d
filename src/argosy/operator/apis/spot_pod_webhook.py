"""Reviews new pods of Jobs, and lets those start from a checkpoint whose Job or CronJob has a good one.

No pod is ever rejected: whatever goes wrong, it starts from the beginning. The backups are in a cache that
every replica keeps, so only pods with a candidate cost requests. Who asks is not known (see `webhooks`), so
nothing is said about backups before the Job's uid was found to be the one in the pod.
"""

import asyncio
from typing import ClassVar, Final, Literal

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter

from argosy.dialects.migration.job_targets import (
    BY_TARGET,
    BatchJob,
    CronJob,
    cron_job_key,
    cron_job_of,
    job_key,
    job_of,
)
from argosy.dialects.migration.pod_images import Checkpoint, Choice, choose_checkpoint, pod_patch
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.errors import ApiError, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Secret
from argosy.kinds.meta import Json, ObjectMeta, OwnerReference
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.resource import Resource
from argosy.kinds.text import MAX_MESSAGE_CHARS, truncate
from argosy.operator.webhooks import AdmissionRequest, patch_response

log = Logger(__name__)

READ_SECONDS: Final = 3.0
"""For all requests of a review; less than the API server waits."""
MAX_REASONS: Final = 3
"""Reasons in a warning: API servers cut long ones."""
PULL_SECRET_TYPE: Final = "kubernetes.io/dockerconfigjson"  # noqa: S105 a type, no secret

Result = Literal["restored", "not-restored", "failed"]


class SecretType(Struct, frozen=True):
    """A Secret without its data."""

    resource: ClassVar[Resource] = Secret.resource

    metadata: ObjectMeta
    type: str = ""


class PodMetrics:
    """Counts reviews of pods whose Job or CronJob has a backup."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reviews = Counter(
            "argosy_spot_pod_reviews_total",
            "Reviews of new pods of Jobs that have a CheckpointBackup, by result.",
            ["result"],
            registry=registry,
        )

    def count(self, result: Result) -> None:
        self._reviews.labels(result).inc()


class PodReviewer:
    """Answers reviews of pods; `backups` has the index `BY_TARGET`."""

    def __init__(self, client: Client, backups: Cache[CheckpointBackup], metrics: PodMetrics) -> None:
        self._client = client
        self._backups = backups
        self._metrics = metrics

    async def review(self, request: AdmissionRequest) -> Json:
        """Return the response of an AdmissionReview, which always allows the pod."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await self._review(request)
        except Exception as error:  # a pod is never rejected
            log.warning(
                "pod not reviewed; it starts from the beginning",
                namespace=truncate(request.namespace),
                error=truncate(f"{type(error).__name__}: {error}", MAX_MESSAGE_CHARS),
            )
            self._metrics.count("failed")
            return {"allowed": True}

    async def _review(self, request: AdmissionRequest) -> Json:
        pod = await asyncio.to_thread(msgspec.json.decode, request.object, type=dict[str, object])
        owner = job_of(msgspec.convert(pod.get("metadata"), ObjectMeta))
        if owner is None or not (candidates := self._candidates(request.namespace, owner.name)):
            return {"allowed": True}
        job = await self._job(request.namespace, owner)
        if job is None:
            return {"allowed": True}
        cron_job = await self._cron_job(job)
        choice = await asyncio.to_thread(choose_checkpoint, pod, job, cron_job, candidates)
        if choice.checkpoint is None:
            return self._not_restored(job, choice)
        secret = await self._pull_secret(choice.checkpoint)
        patch = await asyncio.to_thread(pod_patch, pod, choice.checkpoint, secret)
        self._metrics.count("restored")
        backup = choice.checkpoint.backup.metadata.name
        log.info("pod restored", namespace=request.namespace, job=owner.name, backup=backup)
        return patch_response(patch)

    def _candidates(self, namespace: str, job: str) -> tuple[CheckpointBackup, ...]:
        keys = job_key(namespace, job), cron_job_key(namespace)
        return tuple(backup for key in keys for backup in self._backups.by(BY_TARGET, key))

    async def _job(self, namespace: str, owner: OwnerReference) -> BatchJob | None:
        """Return the Job of a pod; None if it is gone, or another one has its name."""
        try:
            job = await self._client.get(BatchJob, owner.name, namespace)
        except NotFound:
            return None
        return job if job.metadata.uid == owner.uid else None

    async def _cron_job(self, job: BatchJob) -> CronJob | None:
        """Return the CronJob of a Job, if it has one and that has backups."""
        owner, namespace = cron_job_of(job), job.metadata.namespace
        if owner is None or not self._backups.by(BY_TARGET, cron_job_key(namespace)):
            return None
        try:
            cron_job = await self._client.get(CronJob, owner.name, namespace)
        except NotFound:
            return None
        return cron_job if cron_job.metadata.uid == owner.uid else None

    async def _pull_secret(self, checkpoint: Checkpoint) -> str:
        """Return the Secret of the registry if pods can pull with it; otherwise the pod must have one."""
        if not (name := checkpoint.pull_secret):
            return ""
        try:
            secret = await self._client.get(SecretType, name, checkpoint.backup.metadata.namespace)
        except ApiError:
            return ""
        return name if secret.type == PULL_SECRET_TYPE else ""

    def _not_restored(self, job: BatchJob, choice: Choice) -> Json:
        if not choice.reasons:
            return {"allowed": True}
        self._metrics.count("not-restored")
        shown = "; ".join(choice.reasons[:MAX_REASONS])
        log.info("pod not restored", namespace=job.metadata.namespace, job=job.metadata.name, reason=shown)
        return {"allowed": True, "warnings": [f"the pod starts from the beginning: {shown}"]}
