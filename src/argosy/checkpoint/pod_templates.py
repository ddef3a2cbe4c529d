"""Makes and reads the template of a pod that was checkpointed, from which a pod can be restored.

It is read from a status, which others may have written: what has another form than expected is not there.
"""

from collections.abc import Collection, Mapping

import msgspec

from argosy.kinds import labels

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def pod_template(metadata: Mapping[str, object], spec: Mapping[str, object]) -> dict[str, object]:
    """Return the pod's labels, annotations and spec, without what belongs to this one pod.

    That is its node, its ephemeral containers, kubectl's annotation, and the volume with the token of its
    ServiceAccount, which the API server adds to the new pod again.
    """
    kept = {name: value for name, value in spec.items() if name not in ("nodeName", "ephemeralContainers")}
    added = {str(item.get("name")) for item in _items(spec, "volumes") if _is_added_volume(item)}
    kept["volumes"] = [item for item in _items(spec, "volumes") if item.get("name") not in added]
    for field in ("containers", "initContainers"):
        kept[field] = [_without_mounts(item, added) for item in _items(spec, field)]
    copied = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    annotations = copied.get("annotations")
    if isinstance(annotations, dict):
        copied["annotations"] = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
    return {"metadata": copied, "spec": {name: value for name, value in kept.items() if value != []}}


def template_containers(template: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return the containers of a recorded template by name."""
    spec = template.get("spec")
    listed = _items(spec, "containers") if isinstance(spec, dict) else []
    return {str(item.get("name", "")): item for item in listed}


def template_metadata(template: Mapping[str, object], part: str) -> dict[str, object]:
    """Return the labels or the annotations of a recorded template."""
    metadata = template.get("metadata")
    values = metadata.get(part) if isinstance(metadata, dict) else None
    return values if isinstance(values, dict) else {}


def base_images(template: Mapping[str, object]) -> dict[str, str]:
    """Return the images of the programs by container; a restored container itself has one of a checkpoint."""
    images = {name: str(item.get("image", "")) for name, item in template_containers(template).items()}
    text = template_metadata(template, "annotations").get(labels.ORIGINAL_IMAGES)
    try:
        original = msgspec.json.decode(str(text or "{}"), type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        return images
    return {name: original.get(name, image) for name, image in images.items()}


def _items(spec: Mapping[str, object], name: str) -> list[dict[str, object]]:
    items = spec.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _is_added_volume(volume: Mapping[str, object]) -> bool:
    """Return True for the volume that the admission plugin ServiceAccount adds."""
    return str(volume.get("name", "")).startswith("kube-api-access-")


def _without_mounts(container: Mapping[str, object], added: Collection[str]) -> dict[str, object]:
    mounts = [item for item in _items(container, "volumeMounts") if item.get("name") not in added]
    fields = {name: value for name, value in container.items() if name != "volumeMounts"}
    return {**fields, "volumeMounts": mounts} if mounts else fields
