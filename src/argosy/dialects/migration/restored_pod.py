"""Builds the pod of a CheckpointRestore: the template of the checkpointed pod, with checkpoint images."""

from collections.abc import Mapping

from argosy.checkpoint.image_names import InvalidImageNameError, with_registry
from argosy.kinds import labels
from argosy.kinds.migration import CheckpointBackup, CheckpointRestore
from argosy.kinds.text import unknown_name

Json = dict[str, object]


class InvalidRestoreError(ValueError):
    """There is no pod for this CheckpointRestore; the message says why."""


def restored_pod(restore: CheckpointRestore, backup: CheckpointBackup) -> Json:
    """Return the body of the pod; raises InvalidRestoreError.

    If the CRD of the backup drops the template, the pod has nothing but the containers: what they ran is in
    the images.
    """
    images = _images(restore, backup)
    template = backup.status.checkpointed_pod_template
    recorded = template.get("spec")
    spec: Json = dict(recorded) if isinstance(recorded, dict) else {"restartPolicy": "Never"}
    containers = _containers(spec) or [{"name": name} for name in images]
    known = [str(item.get("name", "")) for item in containers]
    for name in images:
        if name not in known:
            raise InvalidRestoreError(f"spec.containers: {unknown_name('container', name, known)}")
    spec["containers"] = [_with_image(item, images) for item in containers]
    if backup.spec.registry is None and backup.status.node_name:
        spec["affinity"] = _on_node(backup.status.node_name)
    return {"metadata": _metadata(template.get("metadata"), images), "spec": spec}


def _metadata(recorded: object, images: Mapping[str, str]) -> Json:
    metadata: Json = dict(recorded) if isinstance(recorded, dict) else {}
    annotations = metadata.get("annotations")
    kept = dict(annotations) if isinstance(annotations, dict) else {}
    return {**metadata, "annotations": {**kept, labels.RESTORED_CONTAINERS: ",".join(sorted(images))}}


def _images(restore: CheckpointRestore, backup: CheckpointBackup) -> dict[str, str]:
    """Return the images by container: those of the spec, or those that the backup has built."""
    if restore.spec.containers:
        return {item.name: item.image for item in restore.spec.containers}
    registry = backup.spec.registry
    images: dict[str, str] = {}
    for built in backup.status.built_images:
        if registry is not None and not built.pushed:
            raise InvalidRestoreError(f"image {built.image_name} of the backup was not pushed")
        try:
            image = with_registry(registry.url, built.image_name) if registry else built.image_name
        except InvalidImageNameError as error:
            raise InvalidRestoreError(f"status.builtImages of the backup: {error}") from error
        images[built.container_name] = str(image)
    if not images:
        raise InvalidRestoreError("spec.containers: must be set, because the backup has built no images")
    return images


def _with_image(container: Mapping[str, object], images: Mapping[str, str]) -> Json:
    image = images.get(str(container.get("name", "")))
    if image is None:
        return dict(container)
    # An image that is only in the container runtime of the node cannot be pulled.
    local = {"imagePullPolicy": "IfNotPresent"} if image.startswith("localhost/") else {}
    return {**container, "image": image, **local}


def _containers(spec: Mapping[str, object]) -> list[Json]:
    items = spec.get("containers")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _on_node(name: str) -> Json:
    """Return an affinity to the only node that has the images."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
