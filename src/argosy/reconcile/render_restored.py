"""Lets a pod continue from the images of processes, on a node that can restore them.

What the template says of the program stays in the pod, but has no effect on processes that exist already.
"""

from collections.abc import Mapping
from typing import cast

from argosy.kinds import labels
from argosy.kinds.spot import RESTORE_CAPABILITY, RESTORING
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.node_affinity import with_node_labels
from argosy.workload.save_acks import write_resumed

Json = dict[str, object]


def with_restored_images(pod: Json, saved: SavedCheckpoint, pull_secret: str) -> Json:
    """Return the body of a pod whose containers are restored from a checkpoint, and that says so."""
    metadata, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    annotations = {
        **_mapping(metadata.get("annotations")),
        labels.RESTORED_CONTAINERS: ",".join(sorted(saved.images)),
        labels.CHECKPOINT_RESUMED: write_resumed(saved.step, saved.digest),
    }
    containers = [_with_image(_mapping(item), saved.images) for item in _list(spec.get("containers"))]
    changed: Json = with_node_labels({**spec, "containers": containers}, RESTORE_CAPABILITY, RESTORING)
    if pull_secret:
        existing = _list(changed.get("imagePullSecrets"))
        if not any(_mapping(item).get("name") == pull_secret for item in existing):
            changed["imagePullSecrets"] = [*existing, {"name": pull_secret}]
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": changed}


def _with_image(container: Json, images: Mapping[str, str]) -> Json:
    image = images.get(str(container.get("name")))
    return {**container, "image": image} if image else container


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Json:
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else {}
