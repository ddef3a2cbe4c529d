"""Decides the next step of a CheckpointBackup from its status.

Each step is one side effect on the node or one change of phase. Its result is written to the status before
the next step is decided, so after a crash the agent continues where the status ends. It repeats a step whose
result it could not write; so steps can be repeated: the archive of a container is looked for before the
kubelet is asked for one, an image built again has the same digest, and a pod is deleted by its uid.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from argosy.checkpoint.backup_status import ready_changed_at
from argosy.checkpoint.image_names import (
    Image,
    InvalidImageNameError,
    checkpoint_tag,
    local_image,
    registry_host,
    with_registry,
)
from argosy.checkpoint.pod_templates import base_images, template_containers
from argosy.checkpoint.schedules import InvalidScheduleError, Schedule, parse_schedule
from argosy.kinds import migration as phases
from argosy.kinds.migration import (
    CheckpointBackup,
    CheckpointBackupSpec,
    CheckpointBackupStatus,
)
from argosy.kinds.spot import JOB_LABEL
from argosy.kinds.text import unknown_name

DEFAULT_TRUSTED: Final = ("stateful-migration",)
"""Namespaces whose backups may name pods and Secrets of other namespaces."""


class InvalidBackupError(ValueError):
    """A backup cannot be made; the message says why."""


class SourcePod(Struct, frozen=True):
    """The pod of a backup on this node."""

    uid: str
    running: bool
    """Whether the pod runs and is not being deleted."""
    containers: Mapping[str, str] = field(default_factory=dict)
    """Images of the regular containers."""
    stopped: frozenset[str] = frozenset()
    """Containers that do not run."""
    created: datetime | None = None


class Begin(Struct, frozen=True):
    """Record that a new checkpoint is made."""


class Dump(Struct, frozen=True):
    """Make the archive of a container."""

    container: str


class Store(Struct, frozen=True):
    """Copy the archive of a container to the claim for checkpoints."""

    container: str


class Build(Struct, frozen=True):
    """Build the image of a container's archive."""

    container: str
    image: Image


class Push(Struct, frozen=True):
    """Push the image of a container."""

    container: str
    image: Image


class EnterPhase(Struct, frozen=True):
    """Record a phase."""

    phase: str


class Finish(Struct, frozen=True):
    """Delete the archives, and the pod with `stopPod`, and record the end."""


class Wait(Struct, frozen=True):
    """Do nothing until this time, or until the backup changes."""

    until: datetime | None = None


Step = Begin | Dump | Store | Build | Push | EnterPhase | Finish | Wait


def next_step(backup: CheckpointBackup, containers: Collection[str], now: datetime) -> Step:
    """Return the next step. `containers` are those to checkpoint; see `containers_of`."""
    spec, status = backup.spec, backup.status
    files = {item.container_name: item for item in status.checkpoint_files}
    if status.phase in ("", *phases.TERMINAL_PHASES):
        return _when_idle(backup, now)
    if status.phase == phases.CHECKPOINTING:
        missing = [name for name in containers if name not in files]
        return Dump(missing[0]) if missing else EnterPhase(phases.CHECKPOINTED)
    if status.phase == phases.CHECKPOINTED:
        return EnterPhase(phases.STORING_CHECKPOINT if spec.build_image is False else phases.IMAGE_BUILDING)
    if status.phase == phases.STORING_CHECKPOINT:
        missing = [name for name, item in files.items() if not item.storage_path]
        return Store(missing[0]) if missing else EnterPhase(phases.CHECKPOINT_STORED)
    return _image_step(backup, files)


def _image_step(backup: CheckpointBackup, files: Collection[str]) -> Step:
    status = backup.status
    images = {item.container_name: item for item in status.built_images}
    if status.phase == phases.IMAGE_BUILDING:
        missing = [name for name in files if name not in images]
        return (
            Build(missing[0], target_image(backup, missing[0])) if missing else EnterPhase(phases.IMAGE_BUILT)
        )
    if status.phase == phases.IMAGE_BUILT and backup.spec.registry is not None:
        return EnterPhase(phases.IMAGE_PUSHING)
    if status.phase == phases.IMAGE_PUSHING:
        missing = [name for name, item in images.items() if not item.pushed]
        return (
            Push(missing[0], target_image(backup, missing[0])) if missing else EnterPhase(phases.IMAGE_PUSHED)
        )
    if status.phase in (phases.CHECKPOINT_STORED, phases.IMAGE_BUILT, phases.IMAGE_PUSHED):
        return Finish()
    return Wait()  # a phase of another agent


def _when_idle(backup: CheckpointBackup, now: datetime) -> Step:
    status, meta = backup.status, backup.metadata
    if status.phase == "":
        return Begin()
    if status.phase == phases.FAILED and 0 < _observed_generation(status) < meta.generation:
        return Begin()  # the spec was changed
    if status.phase not in (phases.COMPLETED, phases.COMPLETED_WITH_ERROR):
        return Wait()
    try:
        due = next_time(parse_schedule(backup.spec.schedule), status)
    except InvalidScheduleError:
        return Begin()  # which fails
    if due is None:
        return Wait()
    return Begin() if due <= now else Wait(due)


def _observed_generation(status: CheckpointBackupStatus) -> int:
    """Return the generation that the status is about; 0 if an older CRD does not keep it."""
    of_conditions = [item.observed_generation or 0 for item in status.conditions]
    return max(status.observed_generation, *of_conditions, 0)


def next_time(schedule: Schedule, status: CheckpointBackupStatus) -> datetime | None:
    """Return when the next checkpoint is due; missed times give one checkpoint, not many."""
    last = ready_changed_at(status) or status.last_checkpoint_time
    return schedule.next_after(last) if last is not None else None


def check_backup(backup: CheckpointBackup, pod: SourcePod | None, trusted: Collection[str]) -> None:
    """Raise InvalidBackupError if the backup cannot be begun."""
    spec = backup.spec
    try:
        parse_schedule(spec.schedule)
        for name in _named_containers(spec) or (pod.containers if pod else ()):
            target_image(backup, name)
    except (InvalidScheduleError, InvalidImageNameError) as error:
        raise InvalidBackupError(str(error)) from error
    check_namespaces(backup, trusted)
    namespace, name = pod_key(backup)
    if pod is None:
        raise InvalidBackupError(f"spec.podRef: pod {namespace}/{name} not found")
    if not pod.running:
        raise InvalidBackupError(f"spec.podRef: pod {namespace}/{name} is not Running")
    for container in _named_containers(spec) or pod.containers:
        if container not in pod.containers:
            unknown = unknown_name("container", container, pod.containers)
            raise InvalidBackupError(f"spec.containers: pod {namespace}/{name}: {unknown}")
        if container in pod.stopped:
            raise InvalidBackupError(f"container {container!r} of pod {namespace}/{name} is not running")


def check_namespaces(backup: CheckpointBackup, trusted: Collection[str]) -> None:
    """Raise InvalidBackupError if the backup names a pod or Secret of a namespace that it may not name."""
    own = backup.metadata.namespace
    if own in trusted:
        return
    registry = backup.spec.registry
    secret = registry.secret_ref if registry is not None else None
    for path, namespace in (
        ("spec.podRef.namespace", backup.spec.pod_ref.namespace),
        ("spec.registry.secretRef.namespace", secret.namespace if secret else ""),
    ):
        if namespace not in ("", own):
            raise InvalidBackupError(f"{path}: invalid value {namespace!r}: must be {own!r}")


def pod_key(backup: CheckpointBackup) -> tuple[str, str]:
    """Return namespace and name of the pod."""
    reference = backup.spec.pod_ref
    return reference.namespace or backup.metadata.namespace, reference.name


def containers_of(backup: CheckpointBackup, pod: SourcePod | None) -> list[str]:
    """Return the containers to checkpoint: those of the spec, or all of the pod."""
    if named := _named_containers(backup.spec):
        return named
    if pod is not None:
        return list(pod.containers)
    return list(template_containers(backup.status.checkpointed_pod_template))


def target_image(backup: CheckpointBackup, container: str) -> Image:
    """Return the image of a container's checkpoint; raises InvalidImageNameError."""
    spec, registry = backup.spec, backup.spec.registry
    at = ready_changed_at(backup.status) or backup.metadata.creation_timestamp
    if registry is None or spec.build_image is False:
        assert at is not None
        return local_image(spec.pod_ref.name, container, at)
    named = next((item.image for item in spec.containers if item.name == container), "")
    if not named:
        assert at is not None
        named = f"{registry.repository}:{checkpoint_tag(container, int(at.timestamp()))}"
    return with_registry(registry.url, named)


def shown_name(backup: CheckpointBackup, image: Image) -> str:
    """Return the name of an image in the status: without the host of the registry."""
    registry = backup.spec.registry
    if registry is None:
        return str(image)
    return str(image).removeprefix(f"{registry_host(registry.url)}/")


def owner_annotation(backup: CheckpointBackup) -> str:
    """Return whose checkpoint an image is: the SpotInstanceJob's, if the backup is of one."""
    job = backup.metadata.labels.get(JOB_LABEL, "")
    return f"{backup.metadata.namespace}/{job}" if job else ""


def base_image(backup: CheckpointBackup, container: str) -> str:
    """Return the image of a container's program; empty if the status does not say."""
    return base_images(backup.status.checkpointed_pod_template).get(container, "")


def _named_containers(spec: CheckpointBackupSpec) -> list[str]:
    return list(dict.fromkeys(item.name for item in spec.containers))
