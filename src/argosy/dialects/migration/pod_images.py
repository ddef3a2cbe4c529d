"""Decides from which checkpoint a new pod of a Job starts, and how the pod is changed for that.

The newest complete checkpoint counts whose processes are those that the pod would start, and whose work is
neither done nor done by another pod. A pod for which there is none starts from the beginning, and the reason
is returned. The images of a checkpoint are used all together or not at all.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from argosy.checkpoint.image_names import InvalidImageNameError, is_digest, with_registry
from argosy.checkpoint.pod_templates import base_images, template_containers, template_metadata
from argosy.dialects.migration.job_targets import INDEXED, BatchJob, CronJob, backups_of, is_ours
from argosy.kinds import labels
from argosy.kinds.meta import Json
from argosy.kinds.migration import (
    GOOD_PHASES,
    IMAGE_PUSHED,
    BuiltImage,
    CheckpointBackup,
    CompletedCheckpoint,
    RegistryTarget,
)
from argosy.kinds.spot import RESTORE_CAPABILITY, RESTORED_FROM
from argosy.workload.node_affinity import without_node_labels

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
CONTROLLER_UIDS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
"""Labels of the pods of a Job: its uid."""
PUSHED_PHASES: Final = GOOD_PHASES | {IMAGE_PUSHED}
"""Phases in which the images are in the registry. In ImagePushed the pod is deleted, if that is wanted: its
Job may create the next one before the last phase is written."""
LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class UnusableError(ValueError):
    """A pod is not started from a checkpoint; the message says why."""


class Checkpoint(Struct, frozen=True):
    """A complete checkpoint of a pod."""

    backup: CheckpointBackup
    images: dict[str, str]
    """Whole names of the images, by container."""
    made_at: datetime | None
    """When the processes were in this state; None if nobody says."""
    completed_at: datetime

    @property
    def template(self) -> dict[str, object]:
        return self.backup.status.checkpointed_pod_template

    @property
    def pull_secret(self) -> str:
        """The Secret of the registry, if it is in the namespace of the pod."""
        registry, namespace = self.backup.spec.registry, self.backup.metadata.namespace
        secret = registry.secret_ref if registry is not None else None
        return secret.name if secret is not None and secret.namespace in ("", namespace) else ""


class Choice(Struct, frozen=True):
    """From what a pod starts."""

    checkpoint: Checkpoint | None
    reasons: tuple[str, ...] = ()
    """Why not from a checkpoint, if there are backups of its Job."""


def choose_checkpoint(
    pod: Json, job: BatchJob, cron_job: CronJob | None, backups: Iterable[CheckpointBackup]
) -> Choice:
    """Return from what a pod of the Job starts; the pod must be one of `job_targets.job_of`."""
    mine = list(backups_of(job, cron_job, backups))
    if not mine:
        return Choice(None)
    try:
        _check_job(job)
    except UnusableError as error:
        return Choice(None, (f"Job {job.metadata.name}: {error}",))
    usable: list[Checkpoint] = []
    reasons: list[str] = []
    for backup in mine:
        try:
            checkpoint = _complete_checkpoint(backup)
            _check_owner(checkpoint, job, cron_job)
            _check_index(checkpoint, pod, job)
            _check_program(checkpoint, pod, job)
        except UnusableError as error:
            reasons.append(f"CheckpointBackup {backup.metadata.name}: {error}")
        else:
            usable.append(checkpoint)
    newest = max(usable, key=lambda each: (each.completed_at, each.backup.metadata.name), default=None)
    return Choice(newest) if newest is not None else Choice(None, tuple(reasons))


def pod_patch(pod: Json, checkpoint: Checkpoint, pull_secret: str = "") -> list[Json]:
    """Return the JSON patch by which a pod starts from a checkpoint, on a node that does not refuse to."""
    spec = _mapping(pod.get("spec"))
    changed = without_node_labels(spec, RESTORE_CAPABILITY, ["none"])
    listed = spec.get("imagePullSecrets")
    secrets = listed if isinstance(listed, list) else []
    if pull_secret and {"name": pull_secret} not in secrets:
        changed = {**changed, "imagePullSecrets": [*secrets, {"name": pull_secret}]}
    patch = _annotation_patch(pod, checkpoint)
    for position, container in enumerate(_containers(pod)):
        name, path = str(container.get("name", "")), f"/spec/containers/{position}"
        if name not in checkpoint.images:
            continue
        patch.append({"op": "replace", "path": f"{path}/image", "value": checkpoint.images[name]})
        if container.get("imagePullPolicy") == "Never":
            patch.append({"op": "replace", "path": f"{path}/imagePullPolicy", "value": "IfNotPresent"})
    patch += [
        {"op": "add", "path": f"/spec/{name}", "value": changed[name]}
        for name in ("affinity", "imagePullSecrets")
        if changed.get(name) != spec.get(name)
    ]
    return patch


def _annotation_patch(pod: Json, checkpoint: Checkpoint) -> list[Json]:
    images = {str(item.get("name", "")): str(item.get("image", "")) for item in _containers(pod)}
    original = {name: image for name, image in images.items() if name in checkpoint.images}
    added = {
        labels.RESTORED_CONTAINERS: ",".join(sorted(checkpoint.images)),
        labels.ORIGINAL_IMAGES: msgspec.json.encode(original, order="sorted").decode(),
        RESTORED_FROM: checkpoint.backup.metadata.name,
    }
    if not isinstance(_mapping(pod.get("metadata")).get("annotations"), dict):
        return [{"op": "add", "path": "/metadata/annotations", "value": added}]
    return [
        {"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": value}
        for key, value in added.items()
    ]


def _check_job(job: BatchJob) -> None:
    """Raise UnusableError for a Job whose pods are not restored, whatever backups there are."""
    spec = job.spec
    if job.metadata.deletion_timestamp is not None:
        raise UnusableError("it is being deleted")
    if is_ours(job.metadata.controller):
        raise UnusableError("its controller restores pods itself")
    if spec.completion_mode == INDEXED:
        return
    # Another pod would do the work that the checkpointed one has done or is doing.
    for name, value in (("parallelism", spec.parallelism), ("completions", spec.completions)):
        if value is not None and value > 1:
            raise UnusableError(f"spec.{name}: {value} pods that are not Indexed")


def _complete_checkpoint(backup: CheckpointBackup) -> Checkpoint:
    """Return the last complete checkpoint of a backup, which may be older than the one under way."""
    status, registry = backup.status, backup.spec.registry
    assert registry is not None
    present = CompletedCheckpoint(
        status.completion_time,
        status.last_checkpoint_time,
        status.source_pod_uid,
        status.built_images,
        status.digests,
    )
    earlier = status.last_completed
    problem = f"phase {status.phase or 'Pending'!r}, and no checkpoint before it"
    if status.phase in PUSHED_PHASES:
        try:
            return _checkpoint(backup, registry, present)
        except UnusableError as error:
            problem = str(error)
    if earlier is None or earlier.source_pod_uid != status.source_pod_uid:
        raise UnusableError(problem)
    return _checkpoint(backup, registry, earlier)


def _checkpoint(
    backup: CheckpointBackup, registry: RegistryTarget, completed: CompletedCheckpoint
) -> Checkpoint:
    built = {item.container_name: item for item in completed.built_images}
    images: dict[str, str] = {}
    for name in sorted(_covered(backup) | built.keys()):
        image = built.get(name)
        if image is None or not image.pushed:
            raise UnusableError(f"the image of container {name!r} was not pushed")
        images[name] = _reference(registry, image, completed.digests.get(name, ""))
    if not images:
        raise UnusableError("it has no images")
    times = [item.build_time for item in completed.built_images if item.build_time is not None]
    built_at = max(map(_in_utc, times), default=None)
    done, made = completed.completion_time, completed.last_checkpoint_time
    made_at = _first_time(made, built_at, done)
    return Checkpoint(backup, images, made_at, _first_time(done, made, built_at) or LONG_AGO)


def _covered(backup: CheckpointBackup) -> set[str]:
    """Return the containers of which the backup makes checkpoints."""
    named = {item.name for item in backup.spec.containers}
    return named or set(template_containers(backup.status.checkpointed_pod_template))


def _reference(registry: RegistryTarget, built: BuiltImage, digest: str) -> str:
    """Return the whole name of an image, with its digest alone if it is known.

    CRI-O refuses names with both a tag and a digest in some versions.
    """
    try:
        image = with_registry(registry.url, built.image_name)
    except InvalidImageNameError as error:
        raise UnusableError(str(error)) from error
    if digest and not is_digest(digest):
        raise UnusableError(f"the digest of container {built.container_name!r} is none")
    return f"{image.repository}@{digest}" if digest else str(image)


def _check_owner(checkpoint: Checkpoint, job: BatchJob, cron_job: CronJob | None) -> None:
    """Raise UnusableError if the work of the checkpointed pod is not that of the Job."""
    recorded = template_metadata(checkpoint.template, "labels")
    uids = [recorded[name] for name in CONTROLLER_UIDS if name in recorded]
    if job.metadata.uid in uids:
        return
    if checkpoint.backup.spec.resource_ref.kind == "Job":
        created = job.metadata.creation_timestamp
        if uids:
            raise UnusableError("its pod did not belong to this Job")
        if checkpoint.made_at is None or (created is not None and checkpoint.made_at < _in_utc(created)):
            raise UnusableError("it is older than this Job")
        return
    assert cron_job is not None
    if any(active.uid != job.metadata.uid for active in cron_job.status.active):
        raise UnusableError("another Job of the CronJob runs")
    succeeded = cron_job.status.last_successful_time
    if succeeded is not None and (checkpoint.made_at is None or checkpoint.made_at < _in_utc(succeeded)):
        raise UnusableError("a Job of the CronJob has succeeded since")


def _check_index(checkpoint: Checkpoint, pod: Json, job: BatchJob) -> None:
    if job.spec.completion_mode != INDEXED:
        return
    annotations = _mapping(_mapping(pod.get("metadata")).get("annotations"))
    recorded = template_metadata(checkpoint.template, "annotations").get(COMPLETION_INDEX)
    if recorded is None or recorded != annotations.get(COMPLETION_INDEX):
        raise UnusableError("its pod had another completion index")


def _check_program(checkpoint: Checkpoint, pod: Json, job: BatchJob) -> None:
    """Raise UnusableError if the pod would not start what was checkpointed, as far as that is recorded.

    Of the environment only what the Job itself names is compared: other webhooks may add to it, for each pod
    something else.
    """
    present = {str(item.get("name", "")): item for item in _containers(pod)}
    wanted, recorded = template_containers(job.spec.template), template_containers(checkpoint.template)
    base = base_images(checkpoint.template)
    for name in checkpoint.images:
        if name not in present:
            raise UnusableError(f"the pod has no container {name!r}")
        if not checkpoint.template:
            continue
        if name not in recorded:
            raise UnusableError(f"container {name!r} is not in status.checkpointedPodTemplate")
        if base[name] != present[name].get("image"):
            raise UnusableError(f"container {name!r} has another image now")
        for part in ("command", "args"):
            if (recorded[name].get(part) or []) != (present[name].get(part) or []):
                raise UnusableError(f"container {name!r} has another {part} now")
        variables = _variables(recorded[name])
        if any(variables.get(key) != value for key, value in _variables(wanted.get(name, {})).items()):
            raise UnusableError(f"container {name!r} has another env now")


def _variables(container: Mapping[str, object]) -> dict[str, object]:
    listed = container.get("env")
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return {str(item.get("name", "")): item for item in items}


def _first_time(*times: datetime | None) -> datetime | None:
    return next((_in_utc(time) for time in times if time is not None), None)


def _in_utc(time: datetime) -> datetime:
    """Return the time with a zone, so that any two can be compared."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _containers(pod: Json) -> list[Json]:
    listed = _mapping(pod.get("spec")).get("containers")
    return [_mapping(item) for item in listed] if isinstance(listed, list) else []


def _mapping(value: object) -> Json:
    return dict(value) if isinstance(value, Mapping) else {}
